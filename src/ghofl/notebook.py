"""Values as people see them: one line in a console, a small table in a notebook, every name escaped."""

import html
from collections.abc import Mapping, Sequence

from ghofl.names import shorten

VALUE = 48  # characters of one value in a line
LINE = 240
CELL = 300
MOST_BARS = 40
PALETTE = (
    "#2f6fb0", "#c8641e", "#3d8f5f", "#a0457e", "#7a6a2f", "#4f5fb8", "#b0413e", "#1f8a8c", "#8a5a3c", "#6b7f1e",
)  # fmt: skip


class Printable:
    """A value that prints as one line of `_facts`; `_picture` may add a small drawing for notebooks."""

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Names with short values, the most important first."""
        return {}

    def _picture(self) -> str:
        """An inline drawing, or nothing."""
        return ""

    def __repr__(self) -> str:
        return line(self, self._facts())

    def _repr_html_(self) -> str:
        return table(self, self._facts()) + self._picture()


def line(value: object, facts: Mapping[str, object]) -> str:
    """A value on one line: its kind and some facts."""
    text = "; ".join(f"{name} {shorten(fact, VALUE)}" for name, fact in facts.items())
    return f"<{type(value).__name__}: {shorten(text, LINE)}>"


def table(value: object, facts: Mapping[str, object]) -> str:
    """A value as a small HTML table: its kind and some facts."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(shorten(fact, CELL))}</td></tr>"
        for name, fact in facts.items()
    )
    kind = html.escape(type(value).__name__)
    return f"<table><caption style='text-align:left'><b>{kind}</b></caption>{rows}</table>"


def abbreviate(names: Sequence[str], most: int = 3) -> str:
    """How many there are, and the first of them.

    >>> abbreviate(("cat", "dog", "bird", "fish"))
    '4 (cat, dog, bird, …)'
    """
    first = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return f"{len(names):,} ({first})" if first else "0"


def bars(names: Sequence[str], counts: Sequence[int], what: str) -> str:
    """A drawing of counts by name, one bar each; nothing where there are too many bars."""
    largest = max([int(count) for count in counts], default=0)
    if largest <= 0 or len(names) > MOST_BARS:
        return ""
    lines = "".join(
        f"<text x='118' y='{16 * i + 12}' text-anchor='end'>{html.escape(shorten(name, 16))}</text>"
        f"<rect x='124' y='{16 * i + 2}' width='{max(0.0, 200.0 * count / largest):.1f}' height='12' fill='{PALETTE[0]}'/>"
        f"<text x='330' y='{16 * i + 12}'>{count:,}</text>"
        for i, (name, count) in enumerate(zip(names, map(int, counts), strict=True))
    )
    return (
        f"<svg role='img' aria-label='{html.escape(what, quote=True)}' width='400' height='{16 * len(names) + 4}' "
        f"font-size='11' font-family='sans-serif' fill='currentColor'>{lines}</svg>"
    )
