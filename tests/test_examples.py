"""The examples run, and the paper in numpy alone says what the package says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from deadlines import run
from ghofl import Classifier, HeadSpec
from ghofl.recipe import Encoder, Grid, Recipe
from ghofl.simulation.simulate import Dataset, simulate

TWIN = Path(__file__).parents[1] / "examples" / "paper_in_numpy.py"


@pytest.fixture(scope="module")
def twin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_in_numpy", TWIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_paper_fits_into_a_hundred_lines_and_needs_numpy_alone(twin):
    assert len(TWIN.read_text().splitlines()) <= 100
    assert {name for name, value in vars(twin).items() if isinstance(value, ModuleType)} == {"np", "sys"}


def test_the_paper_in_numpy_scores_as_the_package_does_with_the_same_settings(twin, rng):
    """Rows that lie on the grid, so that rounding changes nothing; the paper divides by N, the package by N − C."""
    y = rng.integers(3, size=30_000)
    x = np.rint(20 * (rng.normal(size=(3, 6))[y] + rng.normal(size=(30_000, 6)))) / 20
    recipe = Recipe(("a", "b", "c"), Encoder(dim=6), grid=Grid(scale=20.0, bits=9), statistics=("S",))
    parts = np.array_split(np.argsort(y, kind="stable"), 5)
    total = simulate(Dataset(x, y, x[:500], y[:500], recipe.classes), parts, recipe, HeadSpec.parse_list("lda")).total
    found = twin.heads(x, y, parts, rng)
    for name, spec in {"NB": "nb", "LDA": "lda(shrinkage=0.05)", "QDA": "qda(shrinkage=0.1)"}.items():
        ours, theirs = Classifier.fit(total, spec).scores(x[:500]), found[name](x[:500])
        assert theirs - theirs[:, :1] == pytest.approx(ours - ours[:, :1], rel=5e-3, abs=5e-3), name
    for name in ("FisherMix", "Proto-Hyper"):
        agree = found[name](x[:500]).argmax(axis=1) == found["LDA"](x[:500]).argmax(axis=1)
        assert agree.mean() > 0.93, name


@pytest.mark.slow
def test_the_paper_in_numpy_runs_without_data_and_with_a_file(tmp_path, rng):
    y = np.arange(400) % 2
    x = rng.normal(size=(400, 5)) + 3 * y[:, None]
    np.savez(tmp_path / "rows.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    for arguments in ([], [str(tmp_path / "rows.npz")]):
        lines = run(sys.executable, TWIN, *arguments).stdout.splitlines()
        shown = {line.split()[0]: float(line.split()[1]) for line in lines}
        assert list(shown) == ["NB", "LDA", "QDA", "FisherMix", "Proto-Hyper"]
        assert min(shown.values()) > 90
