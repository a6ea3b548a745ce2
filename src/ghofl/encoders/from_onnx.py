"""Encoders that run in ONNX Runtime, without torch."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ghofl.encoders.base import Runtime, SampleEncoder, cores, fingerprint
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.onnx_file import DESCRIPTION, description_of
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.text import TextEncoder
from ghofl.encoders.tokens import Tokens
from ghofl.encoders.views import Views
from ghofl.errors import EncoderError, GhoflError
from ghofl.names import shorten

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Images that one core resizes and encodes at once, so few that their activations stay in its cache.
IMAGES_AT_ONCE = 4
NOWHERE = os.path.join(os.devnull, "no folder")


def load(path: Path, runtime: Runtime) -> SampleEncoder:
    """The encoder of a file written by ``ghofl export``, or of any network from image planes to rows.

    An exported file has the fingerprint of the encoder it came from. The fingerprint of any other file covers the whole
    file, and images are squashed to its input size with ImageNet's mean and deviation.
    """
    if runtime.precision != "fp32":
        raise EncoderError(f"an ONNX file computes in its own precision; leave out `precision` {runtime.precision}.")
    data = path.read_bytes()
    name, described = f"onnx:{path.name}", description_of(data, path)
    if described is not None and described.kind == "text":
        with _report_unusable(path):
            tokens = Tokens.of(described.tokenizer, described.longest)
        forward = _TokenForward(_open_session(data, path, runtime))
        return TextEncoder(name, described.dim, described.fingerprint, described.pooling, tokens, forward)
    session = _open_session(data, path, runtime, threads=1)
    workers = cores() if runtime.device == "cpu" else 0
    if described is None:
        return _foreign(name, data, session, path, workers)
    preprocessing = described.preprocessing
    assert preprocessing is not None  # as `Description` has checked
    views = Views.parse(described.views)
    with _report_unusable(path):
        forward = _ImageForward(session, preprocessing, workers, views)
    return ImageEncoder(name, described.dim, described.fingerprint, preprocessing, forward, views=views)


@contextmanager
def _report_unusable(path: Path) -> Iterator[None]:
    """Inside the block, what ONNX Runtime or a tokenizer raises about a file is an `EncoderError`.

    Both raise plain exceptions, and whatever Python makes of names that are not text, of a network without inputs or of
    one whose output is not rows.
    """
    try:
        yield
    except GhoflError:
        raise
    except Exception as error:
        reason = shorten((str(error).strip().splitlines() or [type(error).__name__])[0], 160)
        raise EncoderError(
            f"{path} is not an ONNX file that ONNX Runtime can run ({reason}); export it again."
        ) from None


class _ImageForward:
    """Byte images to embeddings, a few images per thread, as threads that share an image wait for one another."""

    def __init__(self, session: Any, preprocessing: Preprocessing, workers: int, views: Views | None = None) -> None:
        self.session, self.preprocessing, self.views = session, preprocessing, views or Views()
        self.input = session.get_inputs()[0].name
        self.pool = ThreadPoolExecutor(workers) if workers else None

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if self.pool is None:
            return self._rows(images)
        parts = [images[i : i + IMAGES_AT_ONCE] for i in range(0, len(images), IMAGES_AT_ONCE)]
        return np.concatenate(list(self.pool.map(self._rows, parts)))

    def _rows(self, images: np.ndarray) -> np.ndarray:
        return self.views.mean(self._view, images, self.preprocessing)

    def _view(self, preprocessing: Preprocessing, images: np.ndarray) -> np.ndarray:
        x = self.session.run(None, {self.input: preprocessing.planes(images)})[0]
        return x.reshape(len(images), -1)


class _TokenForward:
    def __init__(self, session: Any) -> None:
        self.session = session
        self.inputs = [given.name for given in session.get_inputs()]

    def __call__(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return self.session.run(None, dict(zip(self.inputs, (ids, mask), strict=True)))[0]


def _open_session(data: bytes, path: Path, runtime: Runtime, threads: int = 0) -> Any:
    """A network ready to run; weights in separate files are not loaded."""
    device = runtime.device.partition(":")[0]
    if PROVIDERS.get(device) not in onnxruntime.get_available_providers():
        raise EncoderError(
            f"ONNX Runtime has no device {runtime.device!r} here; write `device` cpu"
            + (", or pip install onnxruntime-gpu." if device == "cuda" else ".")
        )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = threads  # 0: all
    # A thread that waits for others would otherwise use its core as if it computed, for half the time in all.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Neither checksum nor fingerprint would cover weights in separate files, so they are not loaded.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
    with _report_unusable(path):
        session = onnxruntime.InferenceSession(data, options, providers=[PROVIDERS[device]])
        if session.get_inputs() and session.get_outputs():
            return session
    raise EncoderError(
        f"{path} is not an ONNX file that ONNX Runtime can run (it has no input or no output); export it again."
    )


def _foreign(name: str, data: bytes, session: Any, path: Path, workers: int) -> ImageEncoder:
    with _report_unusable(path):
        metadata = session.get_modelmeta().custom_metadata_map
    if DESCRIPTION in metadata:
        raise EncoderError(f"{path} was changed after 'ghofl export' wrote it; export it again.")
    inputs = session.get_inputs()
    shape = list(inputs[0].shape)
    if len(inputs) != 1 or len(shape) != 4 or shape[1] != 3 or shape[2] != shape[3] or not isinstance(shape[2], int):
        raise EncoderError(
            f"{path} takes {', '.join(f'{i.name} {i.shape}' for i in inputs)}; expected one input (n, 3, size, size), or "
            "a file written by 'ghofl export'."
        )
    with _report_unusable(path):
        preprocessing = Preprocessing(size=shape[2])
        forward = _ImageForward(session, preprocessing, workers)
        dim = forward(np.zeros((1, 8, 8, 3), dtype=np.uint8)).shape[1]
    mark = fingerprint({"file": np.frombuffer(data, np.uint8)}, {"preprocessing": preprocessing.settings()})
    return ImageEncoder(name, dim, mark, preprocessing, forward)
