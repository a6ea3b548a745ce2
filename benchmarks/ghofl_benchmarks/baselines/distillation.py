"""What DENSE and Co-Boosting share: an ensemble of clients' networks, a generator, and a student without any data.

Clients send the networks they trained, once. The server trains a generator so that the ensemble recognises what it
makes, and teaches a student to agree with the ensemble on it. The generator also makes the batches' statistics those
that the clients' batch norms remember, and looks for inputs on which ensemble and student disagree.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from ghofl_benchmarks.baselines.local import autocast

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass(frozen=True, slots=True)
class Distillation:
    """How long and how the server learns. `seconds`, if given, ends it early."""

    epochs: int = 40
    generator_steps: int = 10
    student_steps: int = 20
    batch: int = 128
    generator_rate: float = 1e-3
    student_rate: float = 0.01
    norms: float = 1.0
    disagreement: float = 0.5
    temperature: float = 4.0
    kept: int = 64
    reach: float = 8 / 255
    seconds: float | None = None
    bfloat16: bool = False


@dataclass(slots=True)
class Course:
    """How the student did: accuracy by epoch, seconds, and the last weights of the ensemble."""

    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    epochs: int = 0


class Ensemble:
    """Frozen networks whose scores are added up with weights; it also tells how far batch statistics are from theirs."""

    def __init__(self, networks: Sequence[nn.Module], bfloat16: bool = False) -> None:
        if not networks:
            raise ValueError("an ensemble needs at least one network.")
        self.networks, self._bfloat16 = list(networks), bfloat16
        self._gaps: list[Tensor] = []
        self._listens = False
        for network in self.networks:
            network.eval().requires_grad_(False)
            for module in network.modules():
                if isinstance(module, NORMS):
                    module.register_forward_hook(self._hear)
        device = next(p.device for n in self.networks for p in n.parameters())
        self.weights = torch.full((len(self.networks),), 1 / len(self.networks), device=device)

    def __call__(self, x: Tensor) -> Tensor:
        """Weighted sum of scores."""
        return torch.einsum("k,knc->nc", self.weights, self.scores(x))

    def scores(self, x: Tensor) -> Tensor:
        """Scores of every network, (networks, rows, classes)."""
        with autocast(x.device, self._bfloat16):
            return torch.stack([network(x).float() for network in self.networks])

    def scores_and_gap(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with how far the statistics of this batch are from what batch norms remember, per network."""
        self._gaps, self._listens = [], True
        scores = self.scores(x)
        self._listens = False
        gap = torch.stack(self._gaps).sum() if self._gaps else torch.zeros((), device=x.device)
        return scores, gap / len(self.networks)

    def _hear(self, module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if self._listens and isinstance(module, NORMS):
            x = inputs[0].float()
            axes = [0, *range(2, x.dim())]
            mean, variance = x.mean(dim=axes), x.var(dim=axes, unbiased=False)
            assert module.running_mean is not None
            assert module.running_var is not None
            self._gaps.append((mean - module.running_mean).norm() + (variance - module.running_var).norm())


class LinearEnsemble(Ensemble):
    """The same for linear heads behind batch norms without parameters: all of them in one product."""

    def __init__(self, networks: Sequence[nn.Module], bfloat16: bool = False) -> None:
        self.networks, self._bfloat16 = list(networks), bfloat16
        norms, layers = zip(*([*network] for network in self.networks), strict=True)
        self._means = torch.stack([norm.running_mean for norm in norms])
        self._variances = torch.stack([norm.running_var for norm in norms])
        scale = (self._variances + norms[0].eps).rsqrt()
        weights = torch.stack([layer.weight.detach() for layer in layers]) * scale[:, None]
        self._weights = weights.flatten(0, 1).T.contiguous()
        self._biases = torch.stack([layer.bias.detach() for layer in layers])
        self._biases -= torch.einsum("kcd,kd->kc", weights, self._means)
        self.weights = torch.full((len(self.networks),), 1 / len(self.networks), device=weights.device)

    def scores(self, x: Tensor) -> Tensor:
        """Scores of every head, (heads, rows, classes)."""
        heads, classes = self._biases.shape
        return (x @ self._weights).view(len(x), heads, classes).transpose(0, 1) + self._biases[:, None]

    def scores_and_gap(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with the distance of this batch's mean and variance from what norms remember, per head."""
        mean, variance = x.mean(dim=0), x.var(dim=0, unbiased=False)
        gap = (mean - self._means).norm(dim=1) + (variance - self._variances).norm(dim=1)
        return self.scores(x), gap.mean()


def ensemble_of(networks: Sequence[nn.Module], bfloat16: bool = False) -> Ensemble:
    """The quickest ensemble of some networks."""
    return (LinearEnsemble if all(map(_is_linear, networks)) else Ensemble)(networks, bfloat16)


def _is_linear(network: nn.Module) -> bool:
    if not isinstance(network, nn.Sequential) or len(network) != 2:
        return False
    return isinstance(network[0], nn.BatchNorm1d) and not network[0].affine and isinstance(network[1], nn.Linear)


def disagreement(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(teacher ‖ student) of every row."""
    old = functional.log_softmax(teacher / temperature, dim=1)
    new = functional.log_softmax(student / temperature, dim=1)
    return functional.kl_div(new, old, reduction="none", log_target=True).sum(dim=1)


def teach(
    student: nn.Module, ensemble: Ensemble, x: Tensor, optimizer: torch.optim.Optimizer, how: Distillation
) -> None:
    """One step of the student towards the ensemble on some inputs."""
    student.train()
    with torch.no_grad():
        target = ensemble(x)
    with autocast(x.device, how.bfloat16):
        scores = student(x)
    loss = disagreement(target, scores.float(), how.temperature).mean() * how.temperature**2
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


class Pool:
    """The latest batches that a generator made, with their classes."""

    def __init__(self, kept: int) -> None:
        self._kept, self._batches = kept, list[tuple[Tensor, Tensor]]()

    def add(self, x: Tensor, y: Tensor) -> None:
        """Keep a batch, and forget the oldest beyond what is kept."""
        self._batches = [*self._batches, (x.detach(), y)][-self._kept :]

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Any batch."""
        return self._batches[int(torch.randint(len(self._batches), (), generator=generator))]


def draw_classes(
    how: Distillation, classes: int, noise: int, generator: torch.Generator, device: torch.device
) -> tuple:
    """Noise and classes for one batch."""
    z = torch.randn(how.batch, noise, generator=generator)
    y = torch.randint(classes, (how.batch,), generator=generator)
    return z.to(device), y.to(device)


def distil(
    networks: Sequence[nn.Module],
    student: nn.Module,
    generator: nn.Module,
    classes: int,
    evaluate: Callable[[], float],
    how: Distillation,
    seed: int,
    loss_of: Callable[[Ensemble, nn.Module, Tensor, Tensor, Distillation], Tensor],
    prepare: Callable[[Ensemble, Tensor, Tensor, torch.Generator], Tensor],
) -> Course:
    """Epochs of a generator that minimises `loss_of`, each followed by a student that learns what `prepare` makes."""
    ensemble = ensemble_of(networks, how.bfloat16)
    device = ensemble.weights.device
    random = torch.Generator().manual_seed(seed)
    artist = torch.optim.Adam(generator.parameters(), how.generator_rate, betas=(0.5, 0.999))
    optimizer = torch.optim.SGD(student.parameters(), how.student_rate, momentum=0.9)
    pool = Pool(how.kept)

    def epoch() -> None:
        generator.train()
        for _ in range(how.generator_steps):
            z, y = draw_classes(how, classes, generator.noise, random, device)
            x = generator(z, y)
            loss = loss_of(ensemble, student, x, y, how)
            artist.zero_grad(set_to_none=True)
            loss.backward()
            artist.step()
            pool.add(x, y)
        for _ in range(how.student_steps):
            x, y = pool.draw(random)
            teach(student, ensemble, prepare(ensemble, x, y, random), optimizer, how)

    return run_epochs(epoch, how, evaluate, ensemble)


def run_epochs(
    epoch: Callable[[], None], how: Distillation, evaluate: Callable[[], float], ensemble: Ensemble
) -> Course:
    """Epochs until there were enough or the time is over; the student is measured at ten or so moments."""
    course, started = Course(), time.perf_counter()
    every = max(1, how.epochs // 10)
    for number in range(1, how.epochs + 1):
        epoch()
        course.epochs = number
        late = how.seconds is not None and time.perf_counter() - started > how.seconds
        if number % every == 0 or number == how.epochs or late:
            course.accuracies.append(evaluate())
            course.seconds.append(time.perf_counter() - started)
        if late:
            break
    course.weights = ensemble.weights.tolist()
    return course
