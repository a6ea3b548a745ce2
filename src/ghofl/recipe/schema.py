"""Recipes to plain values and back, with a check of every key and type."""

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import numpy as np

from ghofl.errors import RecipeError
from ghofl.names import shorten


def check(claim: bool, otherwise: str) -> None:
    """Raise `RecipeError` with this text unless the claim holds."""
    if not claim:
        raise RecipeError(otherwise)


def to_plain(value: Any) -> Any:
    """A dataclass as plain values, without the fields that are not set."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f.name, to_plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return {name: v for name, v in pairs if v is not None and v not in ([], "", {})}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def to_canonical(value: Any) -> Any:
    """Plain values with floats as hexadecimal texts, the same on every platform."""
    if isinstance(value, dict):
        return {key: to_canonical(v) for key, v in value.items()}
    if isinstance(value, list):
        return [to_canonical(v) for v in value]
    return value.hex() if isinstance(value, float) else value


def coerce(section: Any, where: str, kind: type | None = None) -> None:
    """Convert the fields of a new frozen dataclass to the types they are declared with, or raise `RecipeError`.

    NumPy scalars become Python's, arrays and lists become tuples, whole numbers become floats where floats are
    declared, so that equal values have one fingerprint, one hash and one TOML text. Errors put `where` before the keys.
    Where a base class is given as `kind`, only its fields are converted.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: float
    ...     def __post_init__(self):
    ...         coerce(self, "size.")
    >>> Size(np.int64(3))
    Size(width=3.0)
    """
    hints = _hints(kind or type(section))
    for f in dataclasses.fields(kind or section):
        object.__setattr__(section, f.name, _convert(getattr(section, f.name), hints[f.name], where + f.name))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def build(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """An instance of a dataclass from plain values, with a check of every key and type."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    hints = _hints(cls)
    check_keys(values, fields, where)
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        check(name in values or not required, f"{where}{name} is missing; {_EXPECTED.get(name, 'it must be given')}.")
    return cls(**{key: _convert(value, hints[key], where + key) for key, value in values.items()})


def check_keys(values: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise `RecipeError` for a key that is not known, and name the nearest one that is."""
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {where}{near[0]}?" if near else f"known are {', '.join(known)}."
            raise RecipeError(f"unknown key {where}{shorten(key)}; {hint}")


_EXPECTED = {
    "classes": 'write the class names, e.g. classes = ["cat", "dog"]',
    "encoder": "write a section [encoder] with dim and name",
    "dim": "write the number of dimensions, e.g. dim = 512",
}


def _convert(value: Any, hint: Any, key: str) -> Any:
    if isinstance(hint, UnionType):
        if value is None:
            return None
        hint = next(option for option in get_args(hint) if option is not NoneType)
    if dataclasses.is_dataclass(hint):
        if type(value) is hint:
            return value
        _check_kind(isinstance(value, dict), value, key, f"write it as a section [{key}]")
        return build(hint, value, f"{key}.")  # type: ignore[arg-type]
    value = without_numpy(value)
    if get_args(hint):  # tuple[item, ...]
        _check_kind(isinstance(value, list | tuple), value, key, "write a list")
        return tuple(_convert(item, get_args(hint)[0], key) for item in value)
    if hint is float and type(value) is int:
        return float(value)
    _check_kind(type(value) is hint, value, key, f"it must be {_WORDS[hint]}")
    return value + 0.0 if hint is float else value  # there is one zero


def _check_kind(claim: bool, value: Any, key: str, expected: str) -> None:
    if not claim:  # only then is the value written out, which may be a matrix
        raise RecipeError(f"{key} is {shorten(repr(value))}; {expected}.")


def without_numpy(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's; everything else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.floating):  # `item` would leave a long double as it is
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}
