"""What every rule promises."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, get_type_hints, runtime_checkable

import numpy as np

from ghofl import notebook
from ghofl.compute.arrays import pieces
from ghofl.errors import HeadError
from ghofl.shapes import Float, Int64, axes_of

Base = Float[np.ndarray, "n classes"] | None  # scores that others are added to


@runtime_checkable
class Graph(Protocol):
    """Operations in the order they are added, each of which returns the name of its result (`ghofl.export.graph`)."""

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of one ONNX operation."""
        ...

    def constant(self, value: Any, dtype: Any = ...) -> str:
        """A constant, in doubles unless said otherwise."""
        ...

    def total(self, x: str, axis: int = 1) -> str:
        """Sums over an axis, which is kept with length 1."""
        ...


@runtime_checkable
class Rule(Protocol):
    """A formula that scores features for every class: what a head is once it is fitted.

    A rule is a frozen dataclass of arrays, or of arrays and other rules. It knows its scores, its arrays in a file
    (`ghofl.heads.rules.read_rule` reads them) and the same scores as ONNX operations.

    Guarantees
    ----------
    Scores of a row do not depend on the other rows beyond rounding. A class without rows scores −∞; no score is NaN. Two
    rules are equal when they are of one kind and hold the same numbers. What `write` writes gives the same scores.
    """

    kind: ClassVar[str]

    has_planes: ClassVar[bool] = False  # between any two classes

    @property
    def inner(self) -> "tuple[Rule, ...]":
        """The rules that it consists of."""
        return ()

    @property
    def is_linear(self) -> bool:
        """Whether planes divide the classes, by every part of the rule."""
        return all(rule.is_linear for rule in self.inner) if self.inner else self.has_planes

    @property
    def form(self) -> Any:
        """The kind of the rule and of the rules in it, as a head file's header has it."""
        return self.kind

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """One number per row and class, added to `base` where it is given."""
        ...

    def without_tails(self) -> "Rule":
        """The rule in the limit of Gaussian tails, to which a temperature is fitted; itself where it has no others."""
        return self

    def predict(self, x: Float[np.ndarray, "n dim"]) -> Int64[np.ndarray, " n"]:
        """The number of the class with the largest score; a `Classifier` predicts the most probable one."""
        return self.scores(x).argmax(axis=1)

    def write(self, graph: Graph, x: str) -> str:
        """The scores of features `x` as operations of a graph."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """The rule as named arrays."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return {name: np.asarray(value, order="C") for name, value in fields if value is not None}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or other.form != self.form:
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return mine.keys() == theirs.keys() and all(_is_equal(a, theirs[name]) for name, a in mine.items())

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def __repr__(self) -> str:
        return notebook.line(self, {name: array.shape for name, array in self.arrays().items()})

    def _repr_html_(self) -> str:
        facts = {name: f"{array.dtype} {array.shape}" for name, array in self.arrays().items()}
        return notebook.table(self, {"rule": self.kind, **facts})


def check_arrays(
    kind: type, arrays: Mapping[str, np.ndarray], axes: Mapping[str, int], left_out: tuple[str, ...] = ()
) -> dict[str, int]:
    """The sizes of all axes of a rule's arrays from a file; `HeadError` when they are not such a rule's.

    Shapes are read off the fields' annotations, e.g. "classes dim", and must agree with `axes` and each other. A field
    whose default is None may be missing.
    """
    own = [f for f in dataclasses.fields(kind) if f.name not in left_out]
    missing = {f.name for f in own if f.default is dataclasses.MISSING} - set(arrays)
    if missing:
        raise HeadError(f"it holds {sorted(arrays)}, and such a head has {sorted({*arrays, *missing})}")
    hints, sizes = get_type_hints(kind, include_extras=True), dict(axes)
    for name, array in arrays.items():
        kinds = "fi" if name == "matrix" else "f"  # a sketch is a matrix of whole numbers
        if array.dtype.kind not in kinds or _has_nan(array):
            raise HeadError(f"its {name} hold something other than numbers")
        names = axes_of(hints[name])
        same = [sizes.setdefault(axis, n) == n for axis, n in zip(names, array.shape, strict=False)]
        if array.ndim != len(names) or not all(same):
            raise HeadError(f"its {name} have shape {array.shape}, expected ({', '.join(names)}) with {sizes}")
    return sizes


def add(base: Base, scores: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """The sum of both, or the scores alone."""
    return scores if base is None else base + scores


def _is_equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and all(np.array_equal(x, y) for x, y in pieces(a, b))


def _has_nan(array: np.ndarray) -> bool:
    return any(bool(np.isnan(some).any()) for (some,) in pieces(array))


def softmax(x: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """exp(x_c) as shares of each row's sum; scipy has both, and takes longer to import than to compute."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
