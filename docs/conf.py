"""The documentation as a site: `make docs` writes it to build/docs."""

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import ghofl

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import with_notebooks

project = "ghofl"
author = "The ghofl authors"
version = release = ghofl.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.githubpages",
]
exclude_patterns = ["figures", "_static"]
html_theme = "furo"
html_title = f"ghofl {release}"
smartquotes = False  # they would turn the two hyphens of an option into a dash
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["ghofl.css"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.xref_missing"
]  # pages link to files of the repository, e.g. ../src; tests/test_docs.py checks them
napoleon_custom_sections = ["Guarantees"]
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["flwr"]
autodoc_default_options = {"members": True}
default_role = "code"


def setup(app: Sphinx) -> None:
    """Diagrams that the hosting site draws are shown as their text here, and notebooks with their outputs."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _put_notebooks_in)
    app.connect("html-page-context", _keep_options_whole)


def _put_notebooks_in(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = with_notebooks(source[0], Path(app.srcdir))


def _keep_options_whole(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """No line of code breaks between the hyphens of an option; long names, as of tests in tables, break between words."""

    def mark(code: re.Match[str]) -> str:
        marked = re.sub(r"(?<=[>\s(\[])--[a-z][\w-]*(?=[^>]*<)", r'<span class="whole">\g<0></span>', code[0])
        return re.sub(r">(test_\w{25,})<", lambda name: name[0].replace("_", "_<wbr>"), marked)

    if "body" in context:
        context["body"] = re.sub(r"<(pre|code)\b.*?</\1>", mark, context["body"], flags=re.DOTALL)
