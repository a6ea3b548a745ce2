"""Encoders of timm: any of its networks, with timm's own pooling."""

from pathlib import Path
from typing import Any

import timm
import torch
from timm.data.config import resolve_model_data_config

from ghofl.encoders import checkpoints
from ghofl.encoders.base import Runtime
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.torch_images import image_encoder
from ghofl.encoders.views import Views, ViewsRequest
from ghofl.errors import EncoderError
from ghofl.rows import hub


def load(
    name: str,
    runtime: Runtime,
    weights: str | Path | None = None,
    fit: str | None = None,
    views: Views | ViewsRequest | None = None,
) -> ImageEncoder:
    """A network by timm's name, with its pretrained weights or a local checkpoint's."""
    if not timm.is_model(name.split(".")[0]):
        near = timm.list_models(f"*{name.split('.')[0][:6]}*")[:4]
        raise EncoderError(f"timm has no network {name!r}{f'; similar are {chr(44).join(near)}' if near else ''}.")
    network, has_classifier = _download(name) if weights is None else _load_local(name, weights)
    layer = network.get_classifier()
    is_linear = has_classifier and isinstance(layer, torch.nn.Linear)
    classifier = layer.weight.detach().float().numpy().copy() if is_linear else None
    preprocessing = _preprocessing(resolve_model_data_config(network), fit)
    network.reset_classifier(0)
    settings: dict[str, Any] = {"network": f"timm:{name}", "pooling": "timm"}
    return image_encoder(f"timm:{name}", network, preprocessing, settings, runtime, views, classifier)


def _download(name: str) -> tuple[Any, bool]:
    if not hub.is_reachable():
        raise EncoderError(
            f"the weights of timm:{name} could not be downloaded (the Hugging Face hub cannot be reached); give a local "
            "checkpoint in `weights`."
        )
    try:
        return timm.create_model(name, pretrained=True).eval(), True
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EncoderError(
            f"the weights of timm:{name} could not be downloaded ({reason}); give a local checkpoint in `weights`."
        ) from None


def _load_local(name: str, weights: str | Path) -> tuple[Any, bool]:
    state = checkpoints.read(weights)
    network: Any = timm.create_model(name, pretrained=False).eval()
    path = str(network.pretrained_cfg.get("classifier", "fc"))
    if f"{path}.weight" in state:
        network = timm.create_model(name, pretrained=False, num_classes=len(state[f"{path}.weight"])).eval()
    return network, checkpoints.load_weights(network, state, path, weights)


def _preprocessing(config: dict[str, Any], fit: str | None) -> Preprocessing:
    return Preprocessing(
        size=int(config["input_size"][-1]),
        fit=fit or "crop",
        share=float(config.get("crop_pct") or 0.875),
        kernel="bicubic" if config.get("interpolation") == "bicubic" else "bilinear",
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
