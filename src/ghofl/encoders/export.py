"""An encoder as one ONNX file, checked against the original before it is written."""

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxscript  # noqa: F401 - needed later; imported here so that its absence is reported before the work
import torch

from ghofl import files
from ghofl.encoders import from_onnx
from ghofl.encoders.base import Runtime, SampleEncoder
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.onnx_file import DESCRIPTION, SEAL, Description, seal_of
from ghofl.encoders.text import TextEncoder
from ghofl.encoders.torch_forward import TorchForward
from ghofl.errors import EncoderError
from ghofl.recipe.schema import to_plain

LARGEST_DIFFERENCE = 1e-3
TEXTS = ("A short text.", "Another one, which is quite a bit longer than the first of the two.", "three")


def export(encoder: SampleEncoder, path: str | Path) -> float:
    """Write the encoder to `path`; returns the largest difference of an entry from the original's, relative to its row.

    The difference is measured on a few samples before the file is written; one larger than `LARGEST_DIFFERENCE` raises.
    """
    forward = getattr(encoder, "forward", None)
    if not isinstance(encoder, ImageEncoder | TextEncoder) or not isinstance(forward, TorchForward):
        raise EncoderError(f"{encoder.name} is not a torch encoder; export one of torchvision:, timm: or hf:.")
    data = seal(_network(encoder, forward), _description(encoder))
    path = Path(path)
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_bytes(data)
        difference = _difference(encoder, from_onnx.load(trial, Runtime()))
    if not difference <= LARGEST_DIFFERENCE:
        raise EncoderError(
            f"the exported network differs from {encoder.name} by {difference:.1e} of a row's largest entry, and at most "
            f"{LARGEST_DIFFERENCE:.0e} is allowed; the file was not written. Use the encoder with torch instead."
        )
    files.write(path, data)
    return difference


def _network(encoder: ImageEncoder | TextEncoder, forward: TorchForward) -> bytes:
    n = torch.export.Dim("n", min=1, max=2**16)
    if isinstance(encoder, TextEncoder):
        inputs: tuple[torch.Tensor, ...] = (torch.ones(2, 7, dtype=torch.int64), torch.ones(2, 7, dtype=torch.int64))
        t = torch.export.Dim("t", min=2, max=encoder.tokens.longest)
        shapes: tuple[dict[int, Any], ...] = ({0: n, 1: t}, {0: n, 1: t})
        names = ["ids", "mask"]
    else:
        size = encoder.preprocessing.size
        sides = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC} if encoder.views.scales else {}
        inputs, shapes, names = (torch.zeros(2, 3, size, size),), ({0: n, **sides},), ["planes"]
    with tempfile.TemporaryDirectory() as folder, _quietly():
        file = Path(folder) / "network.onnx"
        torch.onnx.export(
            forward.module.cpu(), inputs, str(file), dynamo=True, dynamic_shapes=shapes, input_names=names,
            output_names=["rows"], external_data=False, verbose=False,
        )  # fmt: skip
        return file.read_bytes()


def seal(network: bytes, description: Description) -> bytes:
    """A file of a network and its description."""
    body = network + _metadata(DESCRIPTION, json.dumps(to_plain(description), sort_keys=True, ensure_ascii=False))
    return body + _metadata(SEAL, seal_of(body, f"{len(network):016x}"))


def _metadata(key: str, value: str) -> bytes:
    """The bytes of a model with one metadata entry and nothing else: appended to a model, they add the entry."""
    entry = onnx.StringStringEntryProto(key=key, value=value)
    return onnx.ModelProto(metadata_props=[entry]).SerializeToString()


def _description(encoder: ImageEncoder | TextEncoder) -> Description:
    common = (encoder.name, encoder.dim, encoder.fingerprint, encoder.kind)
    if isinstance(encoder, TextEncoder):
        tokens = encoder.tokens
        return Description(*common, tokenizer=tokens.definition, longest=tokens.longest, pooling=encoder.pooling)
    return Description(*common, preprocessing=encoder.preprocessing, views=str(encoder.views))


def _difference(encoder: SampleEncoder, exported: SampleEncoder) -> float:
    rng = np.random.default_rng(0)
    images = [rng.integers(256, size=(h, w, 3)).astype(np.uint8) for h, w in ((32, 32), (40, 57), (32, 32))]
    batch: Any = list(TEXTS) if encoder.kind == "text" else images
    a, b = (next(iter(e.encode([batch]))) for e in (encoder, exported))
    return float((np.abs(a - b).max(axis=1) / np.maximum(np.abs(a).max(axis=1), 1e-12)).max())


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide the exporter's own deprecation warnings and progress, which are not about the user's encoder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(max(before, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(before)
