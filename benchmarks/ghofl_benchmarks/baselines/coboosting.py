"""Co-Boosting (Dai et al. 2024): samples and ensemble make each other better, by turns.

Each epoch (1) the generator minimises (1 − p_y) CE(D(x̂), y) + λ₁ L_norms − λ₂ KL(D(x̂) ‖ S(x̂)): what the ensemble D
finds easy counts little, and what the student S knows already counts little; (2) its samples are made harder, by a
step of length ε from each along the gradient of u·D(x̂) for a random direction u; (3) the weights of the ensemble
take a step against the sign of their gradient of CE(D(x̃), y) on those, within the simplex; (4) the student learns the
reweighted ensemble on them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ghofl_benchmarks.baselines.distillation import Course, Distillation, Ensemble, disagreement, distil
from ghofl_benchmarks.baselines.local import autocast

STEP = 0.1  # of the ensemble's weights, divided by the number of networks


def coboosting(
    networks: Sequence[nn.Module],
    student: nn.Module,
    generator: nn.Module,
    classes: int,
    evaluate: Callable[[], float],
    how: Distillation = Distillation(),  # noqa: B008  (frozen)
    seed: int = 0,
) -> Course:
    """Teach the student in place; `evaluate` measures it."""

    def prepare(ensemble: Ensemble, x: Tensor, y: Tensor, random: torch.Generator) -> Tensor:
        harder = harden(ensemble, x, how.reach, random)
        ensemble.weights = reweighted(ensemble.weights, ensemble_scores(ensemble, harder), y)
        return harder

    return distil(networks, student, generator, classes, evaluate, how, seed, hard_sample_loss, prepare)


def hard_sample_loss(ensemble: Ensemble, student: nn.Module, x: Tensor, y: Tensor, how: Distillation) -> Tensor:
    """What the generator minimises."""
    scores, gap = ensemble.scores_and_gap(x)
    common = torch.einsum("k,knc->nc", ensemble.weights, scores)
    difficulty = 1.0 - functional.softmax(common.detach(), dim=1).gather(1, y[:, None])[:, 0]
    student.eval()
    with autocast(x.device, how.bfloat16):
        own = student(x).float()
    hard = (difficulty * functional.cross_entropy(common, y, reduction="none")).mean()
    return hard + how.norms * gap - how.disagreement * disagreement(common, own).mean()


def harden(ensemble: Ensemble, x: Tensor, reach: float, random: torch.Generator) -> Tensor:
    """Every sample, moved by `reach` times the root of its size along the gradient of a random mix of scores."""
    x = x.detach().requires_grad_(True)
    scores = ensemble(x)
    mix = torch.randn(scores.shape, generator=random).to(scores.device)
    (gradient,) = torch.autograd.grad((mix * scores).sum(), x)
    length = gradient.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, *[1] * (x.dim() - 1))
    return (x + reach * x[0].numel() ** 0.5 * gradient / length).detach()


def ensemble_scores(ensemble: Ensemble, x: Tensor) -> Tensor:
    """Scores of every network, without gradients."""
    with torch.no_grad():
        return ensemble.scores(x)


def reweighted(weights: Tensor, scores: Tensor, y: Tensor) -> Tensor:
    """The ensemble's weights after one step against the sign of their gradient, back in the simplex."""
    weights = weights.detach().requires_grad_(True)
    loss = functional.cross_entropy(torch.einsum("k,knc->nc", weights, scores), y)
    (gradient,) = torch.autograd.grad(loss, weights)
    moved = (weights - STEP / len(weights) * gradient.sign()).detach().clamp(0.0, 1.0)
    return moved / moved.sum().clamp_min(1e-12)
