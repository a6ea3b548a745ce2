"""Rules out of head files: arrays become a rule only where they are exactly those of the form that the header names."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ghofl.errors import HeadError
from ghofl.heads.rules.averaged import Averaged
from ghofl.heads.rules.base import Rule, check_arrays
from ghofl.heads.rules.composed import SKETCH, Mapped, Standardised, Summed, key_of
from ghofl.heads.rules.linear import Cosine, Diagonal, Factored, Linear
from ghofl.heads.rules.quadratic import LowRank, Quadratic
from ghofl.names import shorten

LEAVES: dict[str, type] = {rule.kind: rule for rule in (Linear, Factored, Cosine, Diagonal, Quadratic, LowRank)}
DEEPEST, MOST, LONGEST = 8, 64, 40  # rules within rules, rules of a sum, letters of a rule's name


def read_rule(form: object, arrays: Mapping[str, np.ndarray], classes: int, dim: int) -> Rule:
    """The rule of a form (`Rule.form`) that these arrays make; raises `HeadError` where they do not.

    >>> read_rule("linear", {"weights": np.eye(2), "bias": np.zeros(2)}, classes=2, dim=2).form
    'linear'
    """
    reader = _Reader(dict(arrays), classes)
    rule = reader.read(form, "", dim, DEEPEST)
    left = reader.left.keys() - ({SKETCH} if SKETCH in rule.arrays() else set())
    if left:
        raise HeadError(f"it holds {sorted(arrays)}, and such a head has {sorted(arrays.keys() - left)}")
    return rule


class _Reader:
    """The arrays that no rule has claimed yet."""

    def __init__(self, left: dict[str, np.ndarray], classes: int) -> None:
        self.left, self.classes = left, classes

    def read(self, form: Any, part: str, dim: int, depth: int) -> Rule:
        if isinstance(form, str) and form in LEAVES:
            return self._leaf(LEAVES[form], part, dim)
        if form == Averaged.kind:
            return self._averaged(part, dim)
        kind, *inner = form if isinstance(form, list) and form and depth else [None]
        if kind == Mapped.kind and len(inner) == 2 and inner[0] in (SKETCH, "basis"):
            return self._mapped(inner[0], inner[1], part, dim, depth)
        if kind in (Summed.kind, Standardised.kind) and 0 < len(inner) <= MOST and all(map(_is_part, inner)):
            return self._several(Summed if kind == Summed.kind else Standardised, inner, part, dim, depth)
        raise HeadError(f"its rule is {shorten(form, 60)}, which is not known here")

    def _leaf(self, kind: type, part: str, dim: int) -> Rule:
        found = self._claim(part, *(f.name for f in fields(kind)))
        check_arrays(kind, found, {"classes": self.classes, "dim": dim})
        return kind(**found)

    def _averaged(self, part: str, dim: int) -> Rule:
        """Both linear rules, whose arrays have the name of the rule in front, and the widths."""
        rules = {}
        for name in ("posterior", "regression"):
            found = self._claim(part, *(f"{name}_{f.name}" for f in fields(Linear)))
            found = {key.removeprefix(f"{name}_"): array for key, array in found.items()}
            check_arrays(Linear, found, {"classes": self.classes, "dim": dim})
            rules[name] = Linear(**found)
        widths = self._claim(part, "widths").get("widths")
        if widths is None or not _are_factors(widths, self.classes):
            raise HeadError("it has no widths, and such a head has one positive number per class")
        return Averaged(widths=widths, **rules)

    def _mapped(self, name: str, inner: Any, part: str, dim: int, depth: int) -> Rule:
        if name == SKETCH:
            found = {"matrix": self.left[SKETCH]} if SKETCH in self.left else {}
        else:
            found = {{"basis": "matrix"}.get(key, key): a for key, a in self._claim(part, "basis", "shift").items()}
        is_whole = len(found) == (1 if name == SKETCH else 2)
        if not is_whole or (found["matrix"].dtype.kind == "i") != (name == SKETCH):
            raise HeadError(f"it has no {name} of numbers that its rule looks through")
        sizes = check_arrays(Mapped, found, {"dim": dim}, left_out=("rule",))
        return Mapped(rule=self.read(inner, part, sizes["k"], depth - 1), **found)

    def _several(self, kind: Any, inner: list[Any], part: str, dim: int, depth: int) -> Rule:
        names = [name for name, _ in inner]
        rules = [self.read(form, ":".join(filter(None, (part, name))), dim, depth - 1) for name, form in inner]
        key = "shares" if kind is Summed else "spreads"
        factors = self._claim(part, key).get(key)
        if not _are_factors(factors, len(rules)):
            raise HeadError(f"it has {key} other than one positive number per rule, or none at all")
        return kind(tuple(zip(names, rules, strict=True)), factors)

    def _claim(self, part: str, *names: str) -> dict[str, np.ndarray]:
        keys = {name: key_of(part, name) for name in names}
        return {name: self.left.pop(key) for name, key in keys.items() if key in self.left}


def _is_part(given: Any) -> bool:
    is_pair = isinstance(given, list) and len(given) == 2 and isinstance(given[0], str)
    return is_pair and len(given[0]) <= LONGEST and ":" not in given[0]


def _are_factors(factors: np.ndarray | None, count: int) -> bool:
    if factors is None:
        return True
    is_one_each = factors.shape == (count,) and factors.dtype.kind == "f"
    return is_one_each and bool((factors > 0).all() and np.isfinite(factors).all())
