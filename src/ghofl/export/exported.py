"""A file of ``ghofl export`` as ONNX Runtime runs it: samples in, labels, probabilities and novelty out."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.encoders import Preprocessing, Runtime
from ghofl.encoders.base import doorway
from ghofl.encoders.onnx_file import DESCRIPTION, Description
from ghofl.encoders.tokens import Tokens, padded
from ghofl.errors import EncoderError, HeadError, MessageError, RecipeError
from ghofl.heads.novelty import threshold_of
from ghofl.recipe.schema import build
from ghofl.shapes import Float, Shaped

METADATA = "ghofl.classifier"
AT_ONCE = 32  # samples of one run, so that memory does not grow with their number
KINDS = {"row": "rows", "image": "images", "text": "texts"}


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What a file says about samples, in their order; `novelty` is None where its head cannot tell."""

    label: Shaped[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n classes"]
    novelty: Float[np.ndarray, " n"] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A classifier in an ONNX file, alone or behind its encoder.

    `kind` is what it takes: a ``row`` of numbers, an ``image`` of bytes (height, width, 3) or a ``text``. `about` is
    what the file says of its head: classes, recipe, sites, rows, guarantee.
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
        room = doorway("ghofl.encoders.from_onnx", "a file of 'ghofl export'", "onnx")
        session = room.open_session(path.read_bytes(), path, Runtime())
        said = session.get_modelmeta().custom_metadata_map
        if METADATA not in said:
            raise MessageError(f"{path} was not written by 'ghofl export'; nobody knows its classes.")
        try:
            about = json.loads(said[METADATA])
            classes, dim = tuple(map(str, about["classes"])), int(about["dim"])
            levels = about.get("novelty_levels")
            described = build(Description, json.loads(said[DESCRIPTION]), "") if DESCRIPTION in said else None
            levels = None if levels is None else np.asarray(levels, dtype=np.float64).reshape(-1)
        except (ValueError, KeyError, TypeError, RecipeError, EncoderError) as error:
            raise MessageError(f"{path} has metadata that cannot be read ({error}); export it again.") from None
        names = [given.name for given in session.get_inputs()]
        inputs = partial(_inputs, _converter(described), names)
        kind = "row" if described is None else described.kind
        return cls(kind, dim, classes, about, levels, lambda samples: session.run(None, inputs(samples)))

    def predict(self, samples: Sequence[Any]) -> Predictions:
        """The predictions for samples of the file's kind."""
        runs = [self._run(samples[i : i + AT_ONCE]) for i in range(0, len(samples), AT_ONCE)]
        label, probabilities, _, *more = (np.concatenate(parts) for parts in zip(*runs, strict=True))
        return Predictions(label, probabilities, more[0] if more else None)

    def novelty_threshold(self, rate: float) -> float:
        """The novelty that this share of the rows of the classes exceeds."""
        if self.levels is None:
            raise HeadError("this file cannot tell samples that are none of its classes; leave out --reject.")
        return threshold_of(self.levels, rate)


def _converter(described: Description | None) -> Callable[[Sequence[Any]], tuple[np.ndarray, ...]]:
    if described is None:
        return _doubles
    if described.kind == "text":
        return partial(_tokens, Tokens.of(described.tokenizer, described.longest))
    assert described.preprocessing is not None  # as `Description` has checked
    return partial(_planes, described.preprocessing)


def _inputs(convert: Callable[..., tuple[np.ndarray, ...]], names: list[str], samples: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, convert(samples), strict=True))


def _doubles(rows: Sequence[Any]) -> tuple[np.ndarray, ...]:
    return (np.ascontiguousarray(rows, dtype=np.float64),)


def _planes(preprocessing: Preprocessing, images: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return (np.concatenate([preprocessing.planes(image[None]) for image in images]),)


def _tokens(tokens: Tokens, texts: Sequence[str]) -> tuple[np.ndarray, ...]:
    return padded(tokens.numbers(texts))
