"""What every head promises."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, get_type_hints, runtime_checkable

import numpy as np
import scipy

from ghofl import notebook
from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.options import HeadOptions
from ghofl.shapes import Float, Int64, axes_of
from ghofl.statistics.arrays import pieces


@runtime_checkable
class Head(Protocol):
    """A rule that scores features for every class; built from Gaussians, never from rows.

    `needs` lists, best first, the sets of statistics that are enough to fit it, and `Options` is the record of its
    options. `scores_are_log_posteriors` says whether scores are log π_c + log p(x|c), up to a common term.
    A head is a frozen dataclass whose fields are arrays, so that it can be saved and loaded without knowing which head
    it is.

    Guarantees
    ----------
    Scores of a row do not depend on the other rows beyond rounding. A class nobody has scores −∞ and is never
    predicted; no score is NaN. The head fitted on a total is the same however the rows were split over sites. Two heads
    are equal when they are of one kind and hold the same numbers.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[tuple[str, ...], ...]]
    Options: ClassVar[type[HeadOptions]]
    scores_are_log_posteriors: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(_is_equal(a, theirs[name]) for name, a in mine.items())

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def __repr__(self) -> str:
        return notebook.line(self, {name: array.shape for name, array in self.arrays().items()})

    def _repr_html_(self) -> str:
        facts = {name: f"{array.dtype} {array.shape}" for name, array in self.arrays().items()}
        return notebook.table(self, {"head": self.name, **facts})

    @classmethod
    def fit(cls, gaussians: Gaussians, options: Any = ...) -> "Head":
        """The head of these Gaussians; `options` is an instance of its `Options`, by default with all defaults."""
        ...

    @classmethod
    def needs_with(cls, options: Any) -> tuple[tuple[str, ...], ...]:
        """What the head needs with these options, best first: `needs`, unless it depends on them."""
        return cls.needs

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """One number per row and class; the largest is the prediction."""
        ...

    def scores_for_temperature(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The scores that a temperature is fitted to: `scores`, unless Gaussian draws make those misleading."""
        return self.scores(x)

    def predict(self, x: Float[np.ndarray, "n dim"]) -> Int64[np.ndarray, " n"]:
        """The number of the best class of each row."""
        return self.scores(x).argmax(axis=1)

    def predict_proba(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The softmax of the scores: posteriors for the Gaussian heads, a ranking for the others."""
        return scipy.special.softmax(self.scores(x), axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """The head as named arrays."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {f.name: np.asarray(getattr(self, f.name), order="C") for f in fields}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> "Head":
        """The head that `arrays` came from; raises `HeadError` unless their names, types and shapes are those of such a head."""
        return cls(**check_arrays(cls, arrays, axes)[0])


def check_arrays(
    kind: type, arrays: Mapping[str, np.ndarray], axes: Mapping[str, int], left_out: tuple[str, ...] = ()
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The arrays of a head from a file, and the sizes of its axes; `HeadError` when they are not such a head's.

    Shapes are read off the fields' annotations, e.g. "classes dim", and must agree with `axes` and each other.
    """
    expected = {f.name for f in dataclasses.fields(kind)} - set(left_out)
    if set(arrays) != expected:
        raise HeadError(f"it holds {sorted(arrays)}, and such a head has {sorted(expected)}")
    hints, sizes = get_type_hints(kind, include_extras=True), dict(axes)
    for name, array in arrays.items():
        if array.dtype.kind not in "fi" or _has_nan(array):
            raise HeadError(f"its {name} hold something other than numbers")
        names = axes_of(hints[name])
        same = [sizes.setdefault(axis, n) == n for axis, n in zip(names, array.shape, strict=False)]
        if array.ndim != len(names) or not all(same):
            raise HeadError(f"its {name} have shape {array.shape}, expected ({', '.join(names)}) with {sizes}")
    return dict(arrays), sizes


def _is_equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and all(np.array_equal(x, y) for x, y in pieces(a, b))


def _has_nan(array: np.ndarray) -> bool:
    return any(bool(np.isnan(some).any()) for (some,) in pieces(array))


def with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a head inside another, under its name."""
    return {f"{prefix}:{name}": array for name, array in arrays.items()}


def group_by_prefix(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Arrays grouped by the name before their first colon; the head's own under the empty name."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        prefix, colon, name = key.partition(":")
        groups.setdefault(prefix if colon else "", {})[name if colon else key] = array
    return groups


def linear_scores(
    x: Float[np.ndarray, "n dim"], weights: Float[np.ndarray, "classes dim"], bias: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, "n classes"]:
    """w_c·x + b_c for every row and class."""
    return x @ weights.T + bias
