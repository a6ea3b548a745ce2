"""Names and ids that come from outside: of sites, classes and messages.

A name is shown in tables, logs and reports, so it must look like what it is: in Unicode's normal form C, and without
characters that are invisible, control a terminal or change the direction of a text. A site's name also becomes part of
the names of files, so it cannot lead out of a folder.
"""

import difflib
import unicodedata
from collections.abc import Iterable

SITE_LENGTH = 64
_HEX = frozenset("0123456789abcdef")
NAMES_ARE = (
    "names are printable texts in Unicode's normal form C, without control, bidirectional or invisible characters."
)
WHY_NO_SITE_NAME = f"sites have names of up to {SITE_LENGTH} characters, without / and \\; {NAMES_ARE}"
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
    """Whether something can be a site's name: up to 64 printable characters without blanks at its ends.

    None of them separates folders, and a name of dots alone is none either: people call files after sites.

    >>> [is_site_name(name) for name in ("north", "../north", "C:\\\\north", "..")]
    [True, False, False, False]
    """
    if not isinstance(text, str) or not is_name(text) or len(text) > SITE_LENGTH or text.strip() != text:
        return False
    return not set(text) & {"/", "\\"} and (not text or bool(text.strip(".")))


def is_hex(value: object, digits: int) -> bool:
    """Whether something is a text of this many hexadecimal digits in lower case, as ids and hashes are.

    >>> is_hex("00ff", 4), is_hex("00FF", 4), is_hex("00ff\\n", 5)
    (True, False, False)
    """
    return isinstance(value, str) and len(value) == digits and set(value) <= _HEX


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(1500)
    '1.5 kB'
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def shorten(text: object, length: int = 80) -> str:
    """A text from outside for a log or an error: unprintable characters are written out, and it is cut to `length`."""
    whole = str(text)
    cut = "".join(c if c.isprintable() else repr(c)[1:-1] for c in whole[:length])
    return cut + ("…" if len(whole) > length else "")


def columns_but_not(columns: Iterable[object], absent: str) -> str:
    """What a table has and lacks, for an error, with the name that was perhaps meant.

    >>> columns_but_not(["age", "label"], "lable")
    "the columns age, label but not 'lable' (perhaps 'label'?)"
    """
    names = list(map(str, columns))
    near = difflib.get_close_matches(absent, names, 1)
    meant = f" (perhaps {shorten(near[0], 40)!r}?)" if near else ""
    return f"the columns {shorten(', '.join(names), 300)} but not {shorten(absent, 40)!r}{meant}"
