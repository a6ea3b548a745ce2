"""What users set about a fitted head: priors and thresholds, and the class that follows from probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ghofl.errors import HeadError
from ghofl.names import shorten
from ghofl.shapes import Float, Int64

NAMED = 5  # classes that an error names


def priors_of(
    given: str | Mapping[str, float] | Sequence[float], classes: tuple[str, ...]
) -> Float[np.ndarray, " classes"]:
    """The priors that a user wrote, in the order of the classes."""
    if isinstance(given, str):
        if given != "uniform":
            raise HeadError(f"priors {shorten(given, 40)!r} are unknown; give 'uniform', or one number per class.")
        return np.ones(len(classes))
    if isinstance(given, Mapping):
        strangers = [name for name in given if name not in classes]
        if strangers:
            raise HeadError(
                f"there is no class {shorten(strangers[0], 40)!r} to give a prior to; see the head's recipe."
            )
        given = [given.get(name, 0.0) for name in classes]
    try:
        return np.asarray(given, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise HeadError(f"priors are {shorten(given, 60)}; give one number per class.") from None


def check_thresholds(given: Any, classes: tuple[str, ...]) -> dict[str, float]:
    """Thresholds by class name; raises `HeadError` unless they are probabilities of classes of the head."""
    if not isinstance(given, Mapping):
        raise HeadError(f"thresholds are {shorten(given, 60)}; give a probability by class name.")
    for name, value in given.items():
        if name not in classes or not isinstance(value, int | float | np.floating) or not 0 < value <= 1:
            raise HeadError(
                f"threshold {shorten(name, 40)}={shorten(value, 40)} does not name a class of the head and a probability above "
                f"0 and up to 1; classes are {', '.join(map(repr, classes[:NAMED]))}, …"
            )
    return {name: float(value) for name, value in given.items()}


def limits_of(thresholds: Mapping[str, float], classes: tuple[str, ...]) -> Float[np.ndarray, " classes"]:
    """The threshold of each class; infinite where it has none."""
    return np.array([thresholds.get(name, np.inf) for name in classes])


def decide(
    probabilities: Float[np.ndarray, "n classes"], limits: Float[np.ndarray, " classes"]
) -> Int64[np.ndarray, " n"]:
    """The class of each row: the most probable one, unless classes have thresholds.

    Of the classes whose probability reaches their threshold, it is the one that exceeds it by the largest factor.
    Where none does, it is the most probable class without a threshold, or −1 if every class has one.

    >>> decide(np.array([[0.7, 0.3], [0.95, 0.05]]), np.array([np.inf, 0.2]))
    array([1, 0])
    """
    if np.isinf(limits).all():
        return probabilities.argmax(axis=1)
    factors = probabilities / limits
    free = np.where(np.isinf(limits), probabilities, -1.0)
    rest = np.where(free.max(axis=1) >= 0, free.argmax(axis=1), -1)
    return np.where(factors.max(axis=1) >= 1.0, factors.argmax(axis=1), rest)
