"""What one client does: some epochs of stochastic gradient descent on its own rows, and what everybody measures.

Rows live where the model does; `Look` turns row numbers into inputs and labels, so that whole image sets stay on a GPU
as bytes and are resized a batch at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Look = Callable[[Tensor], tuple[Tensor, Tensor]]
State = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """How a client trains. The defaults are the paper's for its multi-round baselines."""

    rate: float = 1e-3
    momentum: float = 0.9
    batch: int = 256
    epochs: int = 1
    proximal: float = 0.0
    decay: float = 0.0
    bfloat16: bool = False
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy


PAPER = LocalTraining()


def train_locally(
    model: nn.Module,
    look: Look,
    rows: Tensor,
    training: LocalTraining,
    generator: torch.Generator,
    correction: Sequence[Tensor] | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
) -> list[Tensor] | None:
    """Train the model in place on some rows; with a `correction`, the mean of the uncorrected gradients as well.

    Every step goes along ∇ℓ(w) + μ(w − w₀) + correction, where w₀ is the model as it came and μ is
    `training.proximal`. Momentum starts at zero. `forward` is a faster way to call the model, if there is one.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in parameters] if training.proximal else None
    gradients = [torch.zeros_like(p) for p in parameters] if correction is not None else None
    optimizer = torch.optim.SGD(parameters, training.rate, training.momentum, weight_decay=training.decay)
    model.train()
    steps = 0
    for batch in batches(rows, training, generator):
        x, y = look(batch)
        call = forward if forward is not None and len(batch) == training.batch else model
        with autocast(x.device, training.bfloat16):
            loss = training.loss(call(x).float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        found = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        if gradients is not None:
            torch._foreach_add_(gradients, found)
        _bend(parameters, found, start, training.proximal, correction)
        optimizer.step()
        steps += 1
    if gradients is not None and steps:
        torch._foreach_div_(gradients, steps)
    return gradients


def _bend(
    parameters: list[nn.Parameter],
    gradients: list[Tensor],
    start: list[Tensor] | None,
    proximal: float,
    correction: Sequence[Tensor] | None,
) -> None:
    """Add the pull to the start and the correction to the gradients that the optimizer is going to use."""
    with torch.no_grad():
        if start is not None:
            apart = torch._foreach_sub([p.detach() for p in parameters], start)
            torch._foreach_add_(gradients, apart, alpha=proximal)
        if correction is not None:
            torch._foreach_add_(gradients, list(correction))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def batches(rows: Tensor, training: LocalTraining, generator: torch.Generator) -> Iterator[Tensor]:
    """The rows in a new order every epoch, a batch at a time; the order comes from a generator on the CPU.

    A last row that would be alone goes with the batch before: batch norm knows no statistics of one row.
    """
    for _ in range(training.epochs):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        parts = list(rows[order].split(training.batch))
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        yield from parts


def least_rows(model: nn.Module) -> int:
    """How many rows a client needs to train this network: two where batches are normalised."""
    return 2 if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1


def autocast(device: torch.device, bfloat16: bool) -> AbstractContextManager:
    """Matrix products in bfloat16 where that is asked for."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext()


@torch.no_grad()
def accuracy(
    model: Callable[[Tensor], Tensor], look: Look, rows: Tensor, batch: int = 1000, bfloat16: bool = False
) -> float:
    """The share of rows whose class is predicted; an `nn.Module` is put into evaluation mode."""
    if isinstance(model, nn.Module):
        model.eval()
    right = 0
    for part in rows.split(batch):
        x, y = look(part)
        with autocast(x.device, bfloat16):
            right += int((model(x).argmax(dim=1) == y).sum())
    return right / len(rows)


def state_of(model: nn.Module) -> State:
    """A copy of every floating-point number of a model: what is sent, averaged and put back."""
    return {name: value.detach().clone() for name, value in model.state_dict().items() if value.is_floating_point()}


def put(model: nn.Module, state: State) -> None:
    """Give a model these numbers; what is not among them stays."""
    model.load_state_dict(state, strict=False)


def bytes_of(state: State) -> int:
    """What it takes to send these numbers in float32."""
    return 4 * sum(value.numel() for value in state.values())


def rows_of(tensor: Tensor, labels: Tensor) -> Look:
    """A `Look` at rows that are inputs as they are."""
    return lambda rows: (tensor[rows], labels[rows])
