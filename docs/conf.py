"""The documentation as a site: `make docs` writes it to build/docs."""

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import ghofl

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
exclude_patterns = ["figures"]
html_theme = "furo"
html_title = "ghofl"
html_show_copyright = False
html_static_path = []
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
    """Diagrams that the hosting site draws are shown as their text here."""
    app.add_lexer("mermaid", TextLexer)
