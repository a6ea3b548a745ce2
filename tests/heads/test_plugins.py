"""A head of another distribution works by its name everywhere, and takes nobody else's."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ghofl import HEADS, HeadSpec
from ghofl.errors import HeadError
from ghofl.heads.plugins import Heads

PAGE = Path(__file__).parents[2] / "docs" / "how-to-new-head.md"
DIAGONAL = "diagonal_lda = my_heads:HEAD"


def distribution(folder: Path, name: str, entries: str, code: str) -> None:
    """An installed distribution: its metadata and one module, as pip leaves them."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[ghofl.heads]\n{entries}\n")
    (folder / f"{name.replace('-', '_')}.py").write_text(code)


def python(folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    """A process in which the distributions of a folder are installed."""
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "400"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=PAGE.parent
    )


def heads_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Heads:
    """The heads there are when the distributions of a folder are installed in this process."""
    monkeypatch.syspath_prepend(folder)
    for name in [path.stem for path in folder.glob("*.py")]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Heads({name: HEADS[name] for name in ("lda", "qda")})


@pytest.fixture
def with_diagonal(tmp_path: Path) -> Path:
    """The head of the documentation's page, as another distribution."""
    if not PAGE.exists():
        pytest.skip("the pages are not beside the tests")
    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert code is not None
    distribution(tmp_path, "my-heads", DIAGONAL, code[1])
    return tmp_path


STORY = """
import sys, warnings
import numpy as np
import ghofl
from ghofl.cli.arguments import complete_heads
from ghofl.simulation.simulate import all_heads
assert complete_heads("diag") == ["diagonal_lda"] and "my_heads" not in sys.modules
rng = np.random.default_rng(0)
y = np.arange(60) % 2
x = rng.normal(size=(60, 4)) + 3.0 * y[:, None]
recipe = ghofl.Recipe(("a", "b"), ghofl.Encoder(dim=4), ("D",))
q, _ = ghofl.Features.of(recipe).rows(x)
total = ghofl.Total.of([ghofl.Message.of(ghofl.Moments.of(q, y, ghofl.Layout.of(recipe)), recipe)], recipe)
made = ghofl.Classifier.fit(total, "diagonal_lda(shrinkage=0.1)")
made.save(sys.argv[1])
again = ghofl.Classifier.load(sys.argv[1])
assert again == made and again.head.name == "diagonal_lda" and "diagonal_lda" in all_heads()
print(float(np.mean(again.rule.predict(ghofl.Features.of(recipe).values(x)) == y)))
"""


@pytest.mark.slow
def test_a_head_of_another_distribution_is_completed_fitted_saved_and_loaded_by_its_name(
    with_diagonal: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("made") / "head.safetensors"
    made = python(with_diagonal, "-c", STORY, file)
    assert made.returncode == 0, made.stderr
    assert float(made.stdout) > 0.9
    shown = python(with_diagonal, "-m", "ghofl", "inspect", file, "--json", "-")
    assert json.loads(shown.stdout)["head"] == "diagonal_lda", shown.stderr
    without = python(file.parent, "-m", "ghofl", "inspect", file)
    assert without.returncode == 2
    assert "install that distribution" in " ".join(without.stderr.split())


def test_a_built_in_head_stays_and_who_offers_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "raise SystemExit('imported')"
    distribution(tmp_path, "bold-heads", "lda = bold_heads:Mine\nbest = bold_heads:Mine", code)
    heads = heads_with(tmp_path, monkeypatch)
    with pytest.warns(UserWarning, match="distribution bold-heads 1.5 offers a head '(lda|best)'") as told:
        assert list(heads) == ["lda", "qda"]
    assert len(told) == 2
    assert heads["lda"] is HEADS["lda"]


NOT_HEADS = {
    "class Mine:\n    name = 'mine'\n": "is not a head: odd_heads:Mine must be a ghofl.Head",
    "import nothing_of_that_name\n": "cannot be imported: ModuleNotFoundError",
    "x = 1\n": "cannot be imported: AttributeError",
    "import ghofl\nfrom ghofl.heads import HeadOptions\nclass Yours(HeadOptions, head='yours'): ...\n"
    "Mine = ghofl.Head(Yours, print, needs=((),))\n": "calls itself 'yours'",
}


@pytest.mark.parametrize("code", NOT_HEADS)
def test_a_head_that_cannot_be_used_names_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    distribution(tmp_path, "odd-heads", "mine = odd_heads:Mine", code)
    heads = heads_with(tmp_path, monkeypatch)
    assert list(heads) == ["lda", "qda", "mine"]
    with pytest.raises(HeadError) as refused:
        heads["mine"]
    assert str(refused.value).startswith("head 'mine' of distribution odd-heads 1.5 ")
    assert NOT_HEADS[code] in str(refused.value)


def test_two_distributions_with_one_name_and_a_name_nobody_could_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "odd-heads", "mine = odd_heads:Mine\nLDA 2 = odd_heads:Mine", "class Mine: ...\n")
    distribution(tmp_path, "more-heads", "mine = more_heads:Mine", "class Mine: ...\n")
    heads = heads_with(tmp_path, monkeypatch)
    with pytest.raises(HeadError, match="offered by distributions more-heads 1.5 and odd-heads 1.5; uninstall"):
        heads["mine"]
    with pytest.raises(HeadError, match="head 'LDA 2' of distribution odd-heads 1.5 cannot be asked for"):
        heads["LDA 2"]


@pytest.mark.parametrize("name", ["trap", "trap:Head", "os.system"])
def test_a_name_that_no_distribution_offers_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As a file from elsewhere might have one: that of a module, or of a class in one."""
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(HeadError, match="is unknown"):
        HeadSpec(name)
    assert name not in heads_with(tmp_path, monkeypatch)


def test_heads_are_a_mapping_that_one_process_can_add_to() -> None:
    heads = Heads({"lda": HEADS["lda"]})
    heads["mine"] = HEADS["qda"]
    assert list(heads) == ["lda", "mine"]
    assert len(heads) == 2
    del heads["mine"]
    assert "mine" not in heads
    with pytest.raises(KeyError):
        heads["mine"]
