"""What pages share: one HTML file that needs nothing else, in which every text from outside is escaped."""

import html
from collections.abc import Iterable, Sequence
from importlib import resources

from ghofl.names import shorten


def document(title: str, body: str, scripts: str = "") -> str:
    """A whole page; styles and `scripts` are inside, and nothing is loaded from anywhere."""
    style = (resources.files("ghofl.report") / "page.css").read_text(encoding="utf-8")
    allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    allowed += "; script-src 'unsafe-inline'" if scripts else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        f"<style>{style}</style></head><body><main><h1>{escape(title)}</h1>{body}</main>{scripts}</body></html>"
    )


def escape(text: object, most: int = 200) -> str:
    """A text as HTML: shortened, without control characters, and with nothing in it that a browser would obey."""
    return html.escape(shorten(text, most), quote=True)


def section(title: str, body: str, note: str = "") -> str:
    """A part of a page under its title."""
    return f"<section><h2>{escape(title)}</h2>{f'<p>{escape(note, 1000)}</p>' if note else ''}{body}</section>"


def items(texts: Iterable[str]) -> str:
    """Texts as a list."""
    return "<ul>" + "".join(f"<li>{escape(text, 1000)}</li>" for text in texts) + "</ul>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of words, which a narrow screen shows as a list."""
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in columns)
    cells = (
        "".join(
            f"<td data-name='{escape(name)}'>{escape(cell, 1000)}</td>" for name, cell in zip(columns, row, strict=True)
        )
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<div class='wide'><table class='words'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
