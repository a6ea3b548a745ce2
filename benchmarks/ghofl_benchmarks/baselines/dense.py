"""DENSE (Zhang et al. 2022): a student taught by the mean of clients' networks on what a generator makes.

The generator minimises CE(D(x̂), y) + λ₁ L_norms − λ₂ KL(D(x̂) ‖ S(x̂)), the last term on rows where ensemble D and
student S name different classes: close to the decision boundary. Then the student minimises KL(D(x̂) ‖ S(x̂)).
Here the class is an input of the generator, which the published one has to learn from pairs of noise and class.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from ghofl_benchmarks.baselines.distillation import Course, Distillation, Ensemble, disagreement, distil
from ghofl_benchmarks.baselines.local import autocast


def dense(
    networks: Sequence[nn.Module],
    student: nn.Module,
    generator: nn.Module,
    classes: int,
    evaluate: Callable[[], float],
    how: Distillation = Distillation(),  # noqa: B008  (frozen)
    seed: int = 0,
) -> Course:
    """Teach the student in place; `evaluate` measures it."""
    return distil(networks, student, generator, classes, evaluate, how, seed, _loss, lambda _, x, *__: x)


def _loss(ensemble: Ensemble, student: nn.Module, x: torch.Tensor, y: torch.Tensor, how: Distillation) -> torch.Tensor:
    scores, gap = ensemble.scores_and_gap(x)
    common = torch.einsum("k,knc->nc", ensemble.weights, scores)
    student.eval()
    with autocast(x.device, how.bfloat16):
        own = student(x).float()
    differ = (common.argmax(dim=1) != own.argmax(dim=1)).float()
    apart = (differ * disagreement(common, own)).mean()
    return functional.cross_entropy(common, y) + how.norms * gap - how.disagreement * apart
