"""The paper's tables, one module each: `run(settings)` gives a result, `draw(result, path)` its picture."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ghofl_benchmarks.data import TITLES, Missing, note_of
from ghofl_benchmarks.report import add_row, new_result

TABLES = {
    "main": "Accuracy against other one-shot methods and methods in rounds, by label skew",
    "corruption": "Accuracy on corrupted test images, statistics of clean ones",
    "backbones": "Accuracy by encoder on CIFAR-10",
    "nlp": "Text: other one-shot methods and our heads, by label skew, projection to 256",
    "dlr": "QDA with diagonal plus low-rank covariances, projection to 256: accuracy, memory, time",
    "clients": "Partition ablation: clients and label skew",
    "cost": "Seconds and bytes",
    "communication": "Accuracy against bytes: projections to 512, 256 and 128",
    "gaussianity": "How far classes are from Gaussian: skewness and excess kurtosis, from additive moments",
    "fisher": "LDA in the strongest Fisher directions: accuracy and energy",
}
TORCH = Missing("torch", "Rows of DENSE, Co-Boosting and methods in rounds need it: pip install torch.")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command was told."""

    sets: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    methods: tuple[str, ...] = ()
    clients: int = 10
    rows: int | None = None
    rounds: int = 10
    device: str = "cpu"
    seed: int = 0
    seeds: int = 1  # splits a baseline is run on, where a table takes means
    arguments: tuple[str, ...] = field(default=(), repr=False)
    begun: list[dict[str, Any]] = field(default_factory=list, repr=False)  # what an interrupted run has measured

    def wants(self, method: str) -> bool:
        """Whether a method was asked for: all are, unless some were named; a name may be the start of it."""
        return not self.methods or any(method.startswith(name) for name in self.methods)


def start(name: str, settings: Settings) -> dict[str, Any]:
    """An empty result of a table."""
    result = new_result(f"table-{name}", TABLES[name], settings.seed, settings.arguments)
    settings.begun.append(result)
    if settings.rows is not None:
        result["notes"].append(
            f"Rows of --rows {settings.rows} are of the first {settings.rows:,} training rows and a quarter as many test rows."
        )
    return result


def note_sets(result: dict[str, Any]) -> None:
    """Note what the files of the sets that were measured say about their rows."""
    told = {name: note_of(name) for name in dict.fromkeys(row.get("set") for row in result["rows"]) if name in TITLES}
    result["notes"] += [f"{TITLES[name]}: {note}" for name, note in told.items() if note]


def leave_out(result: dict[str, Any], missing: Missing, **fields: str) -> None:
    """Note something that could not be run."""
    print("  left out:", missing, flush=True)
    result["missing"].append({"what": missing.what, "how": missing.how, **fields})


def has_torch() -> bool:
    """Whether torch can be imported."""
    try:
        return find_spec("torch") is not None
    except ImportError:
        return False


def load_table(name: str) -> tuple[Callable[[Settings], dict], Callable]:
    """The two functions of a table."""
    module = import_module(f"ghofl_benchmarks.tables.{name}")
    return module.run, module.draw


__all__ = ["TABLES", "TORCH", "Settings", "add_row", "has_torch", "leave_out", "load_table", "note_sets", "start"]
