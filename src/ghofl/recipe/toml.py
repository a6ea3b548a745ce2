"""TOML from outside, looked over before it is parsed.

The parser's time and memory grow with the square of the parts of one dotted key (49 kB of ``a.a.a…`` take half a minute),
and every key costs it a kilobyte. So what a text may hold is counted first, in one pass over its quotes and brackets.
"""

import re
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 2**20  # room for a public matrix
MOST_PARTS = 16  # of one dotted key
MOST_DEPTH = 16  # of lists and tables in one another
MOST_NAMES = 500_000  # keys and tables: room for a schema of 65,536 columns
LARGE = 2**20
_INT64 = 2**63

TOO_DEEP = "is nested too deeply or has a number that is too long"


# Quoted texts and comments, whose content does not count. Each ends with its line or with the file at the latest, so that
# no character is looked at twice. One or two more quotes may stand before the three that end a text of several lines; "up to
# five" says that, because `re` of Python 3.11.2 takes three for "three to five" after a repetition that gives nothing back.
_QUOTED = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}'
    r"|'''(?:[^']|'(?!''))*+'{0,5}"
    r'|"(?:[^"\\\n]|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?:^|[\n\[\]{{}}=,])(?:[^\n\[\]{{}}=,.]*+\.){{{MOST_PARTS}}}")  # a number has one dot at most
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_one_large = threading.Lock()


class NotTomlError(ValueError):
    """A text that is not TOML, or not TOML that is read; its words follow the name of the file: "has 3 keys …"."""


def parse(text: str, most: int = MOST_BYTES) -> dict[str, Any]:
    """The values of a TOML text of at most `most` characters; raises `NotTomlError` for anything else.

    Guarantees
    ----------
    A text with too many bytes, keys, parts of a key or levels is refused before it is parsed. Large texts are parsed one
    at a time, so that many of them do not need memory at once. Whole numbers have 64 bits, as TOML demands.
    """
    if len(text) > most:
        raise NotTomlError(f"has {len(text):,} characters, and at most {most:,} are read")
    if len(text) <= LARGE:
        return _parse(text)
    with _one_large:
        return _parse(text)


def read(path: str | Path, most: int = MOST_BYTES) -> dict[str, Any]:
    """The values of a TOML file of at most `most` bytes; raises `NotTomlError` for anything else."""
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise NotTomlError(f"has more than the {most:,} bytes that are read at most")
    try:
        return parse(data.decode("utf-8"), most)
    except UnicodeDecodeError as error:
        raise NotTomlError(f"is not a text file in UTF-8 (byte {error.start})") from None


def _parse(text: str) -> dict[str, Any]:
    check_structure(text)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(f"is not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits
        raise NotTomlError(TOO_DEEP) from None
    _check_numbers(values)
    return values


def check_structure(text: str) -> None:
    """Raise `NotTomlError` where parsing a text might take much more time or memory than its length suggests."""
    bare = _QUOTED.sub("_", text)
    names = bare.count("=") + bare.count("{") + sum(1 for _ in _TABLE.finditer(bare))
    _check(names <= MOST_NAMES, f"has {names:,} keys and tables, and at most {MOST_NAMES:,} are read")
    _check(_LONG_KEY.search(bare) is None, f"has a key of more than {MOST_PARTS} parts with dots between them")
    brackets = _NO_BRACKETS.sub("", bare)
    for _ in range(MOST_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
    _check(len(brackets) <= MOST_DEPTH, TOO_DEEP)  # a few that are not closed are the parser's to name


def _check(claim: bool, otherwise: str) -> None:
    if not claim:
        raise NotTomlError(otherwise)


def _check_numbers(values: dict[str, Any]) -> None:
    for value in _leaves(values):
        if type(value) is int and not -_INT64 <= value < _INT64:
            raise NotTomlError(f"{TOO_DEEP}: whole numbers have 64 bits")


def _leaves(values: Any) -> Iterator[Any]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, dict | list):
            yield from _leaves(value)
        else:
            yield value
