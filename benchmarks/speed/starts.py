"""How long a command takes from nothing to its answer, where Python keeps compiled files as it does for users."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ratios import Measure
from timing import Command, against

from speed import made


def measures(rng: np.random.Generator) -> Iterator[Measure]:
    """Imports and commands beside Python that does nothing, and Python that imports numpy."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _starts(Path(folder), rng)


def _starts(folder: Path, rng: np.random.Generator) -> Iterator[Measure]:
    recipe, total, head = folder / "recipe.toml", folder / "total.ghofl", folder / "lda.safetensors"
    agreed = made.recipe(("B",))
    agreed.save(recipe)
    made.total(agreed, *made.rows(rng)).save(total)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")

    def python(*words: str) -> Command:
        return Command([sys.executable, *words], environment)

    plain = ("Python that does nothing", python("-c", "pass"))
    numpy = ("Python that imports numpy", python("-c", "import numpy"))
    scipy = ("numpy and scipy.linalg imported", python("-c", "import numpy, scipy.linalg"))
    names = "from ghofl import Classifier, Message, Recipe, Total"
    yield against("start_import", f"`{names}`", python("-c", names), *scipy, repeats=3)
    commands = {
        "version": ("`ghofl --version`", ["--version"], (plain, numpy)),
        "help": ("`ghofl --help`", ["--help"], (plain, numpy)),
        "inspect": ("`ghofl inspect` of a recipe", ["inspect", str(recipe)], (plain, numpy)),
        "head": (
            f"`ghofl head`, LDA of {made.CLASSES} classes, {made.DIM}-d",
            ["head", str(total), "-o", str(head), "--force"],
            (plain, scipy),
        ),
    }
    for name, (what, words, references) in commands.items():
        for suffix, reference in zip(("", "_numpy"), references, strict=True):
            yield against(f"start_{name}{suffix}", what, python("-m", "ghofl", *words), *reference, repeats=3)
