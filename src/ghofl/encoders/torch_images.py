"""An encoder of images from any torch network: its views settled, its maps pooled, its fingerprint taken."""

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
from ghofl.encoders.views import Views, Wanted
from ghofl.errors import EncoderError
from ghofl.shapes import Float


def image_encoder(
    name: str,
    network: nn.Module,
    preprocessing: Preprocessing,
    settings: dict[str, Any],
    runtime: Runtime,
    views: Views | Wanted | None = None,
    classifier: Float[np.ndarray, "classes dim"] | None = None,
    speed_up: Callable[[nn.Module], nn.Module] = lambda module: module,
) -> ImageEncoder:
    """The encoder of a network that gives rows for planes.

    `settings` is what decides a row beside weights and preprocessing; views add to it only where there are some, so an
    encoder without views has the fingerprint it always had. `speed_up` gives the same function, faster.
    """
    network = network.eval()
    chosen = _settled(network, preprocessing, views, name)
    if chosen.kernel:
        preprocessing = replace(preprocessing, kernel=chosen.kernel)
    module, pooled = with_maps(network, preprocessing.size, chosen, name)
    decides = settings | chosen.settings() | pooled | {"preprocessing": preprocessing.settings()}
    mark = fingerprint_of(network, decides)
    dim = len(_row(module, preprocessing.size))
    if classifier is not None and classifier.shape[1] != dim:
        classifier = None  # more than the classifier sees, or layers before it: its directions are not the embedding's
    forward = ImageForward(speed_up(module), preprocessing, runtime, chosen)
    return ImageEncoder(name, dim, mark, preprocessing, forward, classifier, views=chosen)


def _settled(network: nn.Module, preprocessing: Preprocessing, views: Views | Wanted | None, name: str) -> Views:
    """The views asked for, with sizes that the network takes; those of a named quality leave out sizes it does not."""
    chosen = views if isinstance(views, Views) else (views or Wanted("paper")).views(preprocessing.size)
    refused = [size for size in chosen.scales if size != preprocessing.size and not _takes(network, size)]
    if refused and isinstance(views, Wanted) and views.scales is None:
        return replace(chosen, scales=())
    if refused:
        raise EncoderError(
            f"{name} takes images of {preprocessing.size} pixels and not of {refused[0]}; leave out --scales, or write "
            "--scales none."
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
