"""More than a network's own row: the deviation over its last map, and the means of earlier stages.

A stage ends where the number of channels changes from one block to the next. Blocks are the network's children and
the children of its containers, as long as they give maps (n, channels, side, side) with more than one position.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import nn

from ghofl.encoders.views import Views
from ghofl.errors import EncoderError

MOST_STAGES = 5


class WithMaps(nn.Module):
    """The network's row, followed by the deviations over the map of one block and the means of the maps of others.

    `deviation` is the block whose map's deviations are appended, `stages` are those whose means are, in the order of the
    network.
    """

    def __init__(self, network: nn.Module, deviation: str, stages: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.deviation, self.stages = network, deviation, stages

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Rows of planes."""
        maps: dict[str, torch.Tensor] = {}
        names = (*self.stages, *([self.deviation] if self.deviation else []))
        with _Kept(self.network, names, maps):
            row = self.network(planes)
        parts = [maps[name].mean((2, 3)) for name in self.stages]
        if self.deviation:
            parts.insert(0, _deviation(maps[self.deviation]))
        return torch.cat([row, *parts], dim=1)


def with_maps(network: nn.Module, size: int, views: Views, name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network with the maps that `views` ask for, and the settings that enter the fingerprint."""
    if not views.has_maps:
        return network, {}
    ends = stage_ends(network, size)
    deviation = ends[-1:] if views.pool == "mean+std" else []
    stages = tuple(ends[:-1][-MOST_STAGES:]) if views.stages else ()
    if len(ends) < 2:  # one map alone is how a transformer cuts an image into patches
        raise EncoderError(
            f"{name} has no earlier maps to pool, as convolutional networks have; leave 'stages' and "
            "'mean+std' out of `views`."
        )
    settings = {"pool": views.pool} if views.pool != "mean" else {}
    settings |= {"deviation": deviation[0]} if deviation else {}
    settings |= {"stages": list(stages)} if stages else {}
    return WithMaps(network, deviation[0] if deviation else "", stages).eval(), settings


@torch.inference_mode()
def stage_ends(network: nn.Module, size: int) -> list[str]:
    """The last block of every stage, in the order they run for an input of this size."""
    order: list[tuple[str, int]] = []

    def note(name: str, out: Any) -> None:
        if isinstance(out, torch.Tensor) and out.ndim == 4 and out.shape[2] == out.shape[3] > 1:
            order.append((name, out.shape[1]))

    handles = [
        module.register_forward_hook(lambda _m, _i, out, name=name: note(name, out))
        for name, module in _blocks(network, "")
    ]
    try:
        network.eval()(torch.zeros(1, 3, size, size))
    finally:
        for handle in handles:
            handle.remove()
    return [[name for name, _ in group][-1] for _, group in groupby(order, key=lambda pair: pair[1])]


def _blocks(network: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, module in network.named_children():
        if isinstance(module, nn.Sequential):
            yield from _blocks(module, f"{prefix}{name}.")
        yield prefix + name, module


def _deviation(maps: torch.Tensor) -> torch.Tensor:
    # In two passes, and with a floor under the root, so that half precision works and a constant map gives about 0.
    return ((maps - maps.mean((2, 3), keepdim=True)) ** 2).mean((2, 3)).clamp(min=1e-12).sqrt()


class _Kept:
    """A context that keeps the maps of some blocks as they are computed."""

    def __init__(self, network: nn.Module, names: tuple[str, ...], maps: dict[str, torch.Tensor]) -> None:
        self.network, self.names, self.maps, self.handles = network, names, maps, []  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        for name in self.names:
            self.handles.append(self.network.get_submodule(name).register_forward_hook(self._keep(name)))

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _keep(self, name: str) -> Any:
        def keep(_module: nn.Module, _inputs: Any, out: torch.Tensor) -> None:
            self.maps[name] = out

        return keep
