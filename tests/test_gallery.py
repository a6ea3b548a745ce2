"""The gallery: every example runs with scikit-learn's data alone, and draws one labelled picture."""

import importlib.util
import runpy
import warnings
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
pyplot = pytest.importorskip("matplotlib.pyplot")
pytest.importorskip("sklearn")

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
EXAMPLES = sorted(path.stem for path in GALLERY.glob("*.py"))
BARE = {"matplotlib", "sklearn", "numpy", "ghofl"}  # what `.[demo,report]` installs, of what examples import


def test_there_are_twelve_examples_and_the_site_has_them_in_order():
    conf = (GALLERY.parents[1] / "docs" / "conf.py").read_text(encoding="utf-8")
    names = conf.split("ORDER = (")[1].split(")")[0].replace('"', "").replace(",", " ").split()
    assert sorted(names) == EXAMPLES
    assert len(EXAMPLES) == 12


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws_one_picture(name, monkeypatch, capsys, as_users_run_it):
    path = GALLERY / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported - BARE <= {"dataclasses", "importlib", "inspect"}
    monkeypatch.chdir(GALLERY)
    with matplotlib.rc_context(fname=GALLERY / "matplotlibrc"), warnings.catch_warnings():
        matplotlib.use("agg")
        figure = runpy.run_path(str(path))["figure"]
        figure.canvas.draw()
        pyplot.close("all")
    first = figure.axes[0]
    assert figure.get_suptitle() or first.get_title(loc="left") or first.get_ylabel()
    if name == "unlearning":  # the others say what they found in numbers of their own
        assert "after west has left: 9" in capsys.readouterr().out


def test_links_to_the_gallery_lead_to_its_pages_in_the_site():
    pytest.importorskip("sphinx_gallery")
    spec = importlib.util.spec_from_file_location("ghofl_docs_conf", GALLERY.parents[1] / "docs" / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    source = ["see [all](../examples/gallery) and [one](../examples/gallery/photos.py)"]
    conf._lead_to_gallery(None, "index", source)
    assert source == ["see [all](gallery/index.rst) and [one](gallery/photos.rst)"]
