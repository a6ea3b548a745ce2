"""Names and ids that come from outside: of sites, classes and messages.

A name is shown in tables, logs and reports, so it must look like what it is: in Unicode's normal form C, and without
characters that are invisible, control a terminal or change the direction of a text. Two sites of one federation may not
look alike either (Unicode TR39): ``north`` with a Cyrillic о is another site to a machine and the same one to people.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from ghofl.errors import RosterError

SITE_LENGTH = 64
_HEX = frozenset("0123456789abcdef")
NAMES_ARE = (
    "names are printable texts in Unicode's normal form C, without control, bidirectional or invisible characters."
)
# Characters that Python calls printable although they show nothing: Unicode's Default_Ignorable_Code_Point, and blanks.
_INVISIBLE = (
    (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x1D159, 0x1D159), (0xE0100, 0xE01EF),
)  # fmt: skip


def is_name(text: object) -> bool:
    """Whether something is a text that can safely be shown as it is.

    >>> is_name("Nord-Süd 3"), is_name("a\\x1b[2J"), is_name("caf\\u0065\\u0301"), is_name("ab\\u200bc")
    (True, False, False, False)
    """
    if not isinstance(text, str) or not text.isprintable():  # none of control, format, surrogate, line separator
        return False
    if text.isascii():
        return True
    is_visible = not any(low <= ord(c) <= high for c in text for low, high in _INVISIBLE)
    return is_visible and unicodedata.is_normalized("NFC", text)


def is_site_name(text: object) -> bool:
    """Whether something can be a site's name: up to 64 printable characters without blanks at its ends."""
    return is_name(text) and len(text) <= SITE_LENGTH and text.strip() == text  # type: ignore[arg-type, union-attr]


def is_hex(value: object, digits: int) -> bool:
    """Whether something is a text of this many hexadecimal digits in lower case, as ids and hashes are.

    >>> is_hex("00ff", 4), is_hex("00FF", 4), is_hex("00ff\\n", 5)
    (True, False, False)
    """
    return isinstance(value, str) and len(value) == digits and set(value) <= _HEX


def skeleton(name: str) -> str:
    """What a name looks like: names with one skeleton look alike (TR39, section 4).

    >>> skeleton("n\\u043erth") == skeleton("north"), skeleton("site-1") == skeleton("site-l")
    (True, True)
    >>> skeleton("site-1") == skeleton("site-2")
    False
    """
    looks, apart = _looks(), unicodedata.normalize("NFD", name)
    return unicodedata.normalize("NFD", "".join(looks.get(c, c) for c in apart))


def look_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """The first two different names that look alike, if there are any."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(skeleton(name), name)
        if first != name:
            return first, name
    return None


def check_look_alike(name: str, looks: Mapping[str, str]) -> None:
    """Raise when a site's name looks like an earlier one; `looks` has the earlier names by their skeletons."""
    other = looks.get(skeleton(name), name) if name else name
    if other != name:
        raise RosterError(f"site {name!r} looks like {other!r}, which is in the total; give it another name.")


def shown(text: object, length: int = 80) -> str:
    """A text from outside for a log or an error: unprintable characters are written out, and it is cut to `length`."""
    whole = str(text)
    cut = "".join(c if c.isprintable() else repr(c)[1:-1] for c in whole[:length])
    return cut + ("…" if len(whole) > length else "")


@cache
def _looks() -> dict[str, str]:
    """One text per character, the same for all characters that look alike.

    The table lists for every character the texts that look like it. A group with a text of several characters (rn, for
    m) is represented by that text, so that both are found.
    """
    content = resources.files("confusable_homoglyphs").joinpath("confusables.json").read_text(encoding="utf-8")
    links = {_bare(key): [_bare(other["c"]) for other in others] for key, others in json.loads(content).items()}
    looks: dict[str, str] = {}
    for start in sorted(links):
        if start in looks:
            continue
        group, ahead = {start}, [start]
        while ahead:
            new = set(links.get(ahead.pop(), ())) - group
            group |= new
            ahead += new
        chosen = min(group, key=lambda text: (-len(text), text))
        looks |= dict.fromkeys(group, chosen)
    single = {key: look for key, look in looks.items() if len(key) == 1}
    # A text of several characters is made of characters that look like others, too.
    return {key: "".join(single.get(c, c) for c in look) if len(look) > 1 else look for key, look in single.items()}


def _bare(text: str) -> str:
    """A text of the table without the marks of direction around texts that run from right to left."""
    return text.replace("\u200e", "")
