"""A file of ``ghofl export`` as ONNX Runtime runs it: samples in, labels, probabilities and novelty out."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.encoders import Runtime
from ghofl.encoders.base import doorway
from ghofl.encoders.onnx_file import DESCRIPTION, Description
from ghofl.encoders.tokens import Tokens, pad
from ghofl.errors import HeadError, MessageError
from ghofl.heads.novelty import threshold_of
from ghofl.names import shorten
from ghofl.recipe.schema import build
from ghofl.shapes import Float, Shaped

METADATA = "ghofl.classifier"
AT_ONCE = 32  # samples per run, so that memory does not grow with their number
KINDS = {"row": "rows", "image": "images", "text": "texts"}


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions for samples, in their order; `novelty` is None where the head cannot measure it."""

    label: Shaped[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n classes"]
    novelty: Float[np.ndarray, " n"] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A classifier in an ONNX file, alone or with its encoder.

    `kind` is what it takes: a ``row`` of numbers, an ``image`` of bytes (height, width, 3) or a ``text``. `about` is
    what the file says about its head: classes, recipe, sites, rows, guarantee.
    """

    kind: str
    dim: int
    classes: tuple[str, ...]
    about: Mapping[str, Any] = field(repr=False)
    levels: Float[np.ndarray, " levels"] | None = field(repr=False)
    _run: Callable[[Sequence[Any]], list[np.ndarray]] = field(repr=False)

    @classmethod
    def load(cls, path: str | Path) -> "Exported":
        """The classifier in a file; `MessageError` where ``ghofl export`` did not write it."""
        path = Path(path)
        from_onnx = doorway("ghofl.encoders.from_onnx", "a file of 'ghofl export'", "onnx")
        session = from_onnx.open_session(path.read_bytes(), path, Runtime())
        metadata = from_onnx.metadata_of(session, path)
        if METADATA not in metadata:
            raise MessageError(
                f"{path} was not written by 'ghofl export', so its classes are not known; export the head."
            )
        try:
            about = json.loads(metadata[METADATA])
            classes, dim = tuple(map(str, about["classes"])), int(about["dim"])
            levels = about.get("novelty_levels")
            described = build(Description, json.loads(metadata[DESCRIPTION]), "") if DESCRIPTION in metadata else None
            levels = None if levels is None else np.asarray(levels, dtype=np.float64).reshape(-1)
        # GhoflErrors about the values are among them, as is a number beyond the floats.
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise MessageError(
                f"{path} has metadata that cannot be read ({shorten(error)}); export it again."
            ) from None
        kind = "row" if described is None else described.kind
        with from_onnx.report_unusable(path):
            names, convert = [given.name for given in session.get_inputs()], _converter(described)

        def run(samples: Sequence[Any]) -> list[np.ndarray]:
            return session.run(None, dict(zip(names, convert(samples), strict=True)))

        return cls(kind, dim, classes, about, levels, _one_by_one(run) if kind == "image" else run)

    def predict(self, samples: Sequence[Any]) -> Predictions:
        """The predictions for samples of the file's kind."""
        runs = [self._run(samples[i : i + AT_ONCE]) for i in range(0, len(samples), AT_ONCE)]
        label, probabilities, _, *more = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        return Predictions(label, probabilities, more[0] if more else None)

    def novelty_threshold(self, rate: float) -> float:
        """The novelty that this share of the rows of the classes exceeds."""
        if self.levels is None:
            raise HeadError(
                f"this file, of the head {self.about.get('head')!r}, cannot recognise samples that fit none of "
                "its classes; leave out --reject."
            )
        return threshold_of(self.levels, rate)


def _converter(described: Description | None) -> Callable[[Sequence[Any]], tuple[np.ndarray, ...]]:
    """The function from samples to the network's inputs."""
    if described is None:
        return lambda rows: (np.ascontiguousarray(rows, dtype=np.float32),)
    if described.kind == "text":
        tokens = Tokens.of(described.tokenizer, described.longest)
        return lambda texts: pad(tokens.numbers(texts))
    return lambda images: (np.stack(images),)


def _one_by_one(run: Callable[[Sequence[Any]], list[np.ndarray]]) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """A run of images, which have sizes of their own; one at a time, as a few large ones would fill the memory."""

    def run_all(images: Sequence[Any]) -> list[np.ndarray]:
        return [np.concatenate(parts) for parts in zip(*(run([image]) for image in images), strict=True)]

    return run_all
