"""Encoders of torchvision: any of its classification networks, without the last linear layer."""

from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import nn
from torchvision import models

from ghofl.encoders import checkpoints
from ghofl.encoders.base import Runtime
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.torch_images import image_encoder
from ghofl.encoders.views import Views, ViewsRequest
from ghofl.errors import EncoderError

PUBLIC = "IMAGENET1K_V1"
EVERY_CLASS = 1000


def load(
    name: str,
    runtime: Runtime,
    weights: str | Path | None = None,
    fit: str | None = None,
    views: Views | ViewsRequest | None = None,
) -> ImageEncoder:
    """A network by torchvision's name, with its ImageNet weights or a local checkpoint's."""
    known = models.list_models(module=models)
    if name not in known:
        raise EncoderError(f"torchvision has no network {name!r}; it has {', '.join(known[:6])}, … resnet18, … vgg16.")
    network, has_classifier = _download(name) if weights is None else _load_local(name, weights)
    path, last = last_linear(network)
    classifier = last.weight.detach().float().numpy().copy() if has_classifier else None
    _replace(network, path, nn.Identity())
    settings: dict[str, Any] = {"network": f"torchvision:{name}", "pooling": "penultimate"}
    return image_encoder(
        f"torchvision:{name}", network, Preprocessing(fit=fit or "squash"), settings, runtime, views, classifier, fuse
    )


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """The classifier: the last linear layer, and where it is."""
    linear = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise EncoderError(
            f"{type(network).__name__} has no linear layer at its end, so its embedding is not known; choose another."
        )
    return linear[-1]


def fuse(network: nn.Module) -> nn.Module:
    """The network with every batch norm folded into the convolution before it, where torch can trace it."""
    from torch.fx.experimental import optimization

    try:
        return optimization.fuse(network.eval())
    except Exception:  # control flow that depends on the input: the network runs as it is
        return network


def _download(name: str) -> tuple[nn.Module, bool]:
    try:
        return models.get_model(name, weights=PUBLIC).eval(), True
    except (URLError, OSError) as error:
        raise EncoderError(
            f"the {PUBLIC} weights of {name} could not be downloaded ({getattr(error, 'reason', error)}); give a local "
            "checkpoint in `weights`."
        ) from None
    except (KeyError, ValueError):
        raise EncoderError(f"torchvision has no {PUBLIC} weights for {name}; give a checkpoint in `weights`.") from None


def _load_local(name: str, weights: str | Path) -> tuple[nn.Module, bool]:
    state = checkpoints.read(weights)
    with torch.device("meta"):  # only to find the classifier's name; nothing is initialised
        path = last_linear(models.get_model(name, weights=None))[0]
    classes = len(state[f"{path}.weight"]) if f"{path}.weight" in state else EVERY_CLASS
    network = models.get_model(name, weights=None, num_classes=classes).eval()
    return network, checkpoints.load_weights(network, state, path, weights)


def _replace(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, child = path.rpartition(".")
    setattr(network.get_submodule(parent), child, module)
