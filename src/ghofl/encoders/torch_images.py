"""An encoder of images from any torch network, with its views, pooled maps and fingerprint."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ghofl.encoders.base import Runtime
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.maps import with_maps
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.torch_forward import ImageForward, fingerprint_of
from ghofl.encoders.views import Views, ViewsRequest
from ghofl.errors import EncoderError
from ghofl.shapes import Float


def image_encoder(
    name: str,
    network: nn.Module,
    preprocessing: Preprocessing,
    settings: dict[str, Any],
    runtime: Runtime,
    views: Views | ViewsRequest | None = None,
    classifier: Float[np.ndarray, "classes dim"] | None = None,
    speed_up: Callable[[nn.Module], nn.Module] = lambda module: module,
) -> ImageEncoder:
    """The encoder of a network that gives rows for planes.

    `settings` is what affects a row besides weights and preprocessing. Views add to it only where there are some, so an
    encoder without views keeps its fingerprint. `speed_up` returns a faster network with the same output.
    """
    network = network.eval()
    chosen = _choose_views(network, preprocessing, views, name)
    if chosen.kernel:
        preprocessing = replace(preprocessing, kernel=chosen.kernel)
    module, pooled = with_maps(network, preprocessing.size, chosen, name)
    settings = settings | chosen.settings() | pooled | {"preprocessing": preprocessing.settings()}
    mark = fingerprint_of(network, settings)
    dim = len(_row(module, preprocessing.size))
    if classifier is not None and classifier.shape[1] != dim:
        classifier = None  # it takes other numbers than the embedding has, so its directions are of no use
    forward = ImageForward(speed_up(module), preprocessing, runtime, chosen)
    return ImageEncoder(name, dim, mark, preprocessing, forward, classifier, views=chosen)


def _choose_views(
    network: nn.Module, preprocessing: Preprocessing, views: Views | ViewsRequest | None, name: str
) -> Views:
    """The views asked for; a named quality has no sizes where the network takes only its own."""
    chosen = views if isinstance(views, Views) else (views or ViewsRequest("paper")).views(preprocessing.size)
    refused = [size for size in chosen.scales if size != preprocessing.size and not _takes(network, size)]
    if refused and isinstance(views, ViewsRequest):
        return replace(chosen, scales=())
    if refused:
        raise EncoderError(
            f"{name} takes images of {preprocessing.size} pixels, not of {refused[0]}; leave that size out of `views`."
        )
    return chosen


def _takes(network: nn.Module, size: int) -> bool:
    try:
        return bool(len(_row(network, size)))
    except (RuntimeError, AssertionError, ValueError):
        return False


@torch.inference_mode()
def _row(module: nn.Module, size: int) -> torch.Tensor:
    return module(torch.zeros(1, 3, size, size))[0]
