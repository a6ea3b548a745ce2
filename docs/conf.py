"""The documentation as a site: `make docs` writes it to build/docs."""

import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

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
    "sphinx_gallery.gen_gallery",
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
    "myst.xref_missing",  # pages link to files of the repository, e.g. ../src; tests/test_docs.py checks them
    "config.cache",  # functions below
]
napoleon_custom_sections = ["Guarantees"]
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["flwr"]
autodoc_default_options = {"members": True}
default_role = "code"


def draw_as_here(conf: dict[str, Any], example: str) -> None:
    """Pictures of the gallery in the style of those who run it in its folder."""
    pyplot.close("all")
    matplotlib.rc_file(GALLERY / "matplotlibrc")


def take_figure(block: object, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """The picture of an example, which is called `figure`, below the block that draws it."""
    figure = variables["example_globals"].pop("figure", None)
    if figure is None:
        return ""
    path = next(variables["image_path_iterator"])
    figure.savefig(path, dpi=200)
    return figure_rst([path], conf["src_dir"])


GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
ORDER = (
    "photos", "texts", "tables", "hospitals", "own_head", "imbalanced", "none_of_these", "unlearning", "secure_round", "epsilon",
    "thousand_clients", "new_head",
)  # fmt: skip
sphinx_gallery_conf = {
    "examples_dirs": str(GALLERY),
    "gallery_dirs": "gallery",
    "filename_pattern": ".py",
    "within_subsection_order": lambda name: ORDER.index(Path(name).stem),
    "image_scrapers": (take_figure,),
    "reset_modules": (draw_as_here,),
    "capture_repr": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
}


def setup(app: Sphinx) -> None:
    """Diagrams that the hosting site draws are shown as their text here, and links to the gallery lead to its pages."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _lead_to_gallery)
    app.connect("html-page-context", _keep_options_whole)


def _lead_to_gallery(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = re.sub(r"\]\(\.\./examples/gallery(?:/(\w+)\.py)?\)", _page_of, source[0])


def _page_of(link: re.Match[str]) -> str:
    return f"](gallery/{link[1] or 'index'}.rst)"


def _keep_options_whole(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """No line of code breaks between the hyphens of an option; long names, as of tests in tables, break between words."""

    def mark(code: re.Match[str]) -> str:
        marked = re.sub(r"(?<=[>\s(\[])--[a-z][\w-]*(?=[^>]*<)", r'<span class="whole">\g<0></span>', code[0])
        return re.sub(r">(test_\w{25,})<", lambda name: name[0].replace("_", "_<wbr>"), marked)

    if "body" in context:
        context["body"] = re.sub(r"<(pre|code|li)\b.*?</\1>", mark, context["body"], flags=re.DOTALL)
