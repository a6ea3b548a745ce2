"""What pages share: one HTML file that needs nothing else, in which every text from outside is escaped."""

import html
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
