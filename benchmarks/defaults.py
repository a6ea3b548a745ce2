"""Texts with and without the library's defaults: what somebody gets who asks for nothing in particular.

    python benchmarks/run.py defaults

Without: the paper's heads and presets (fixed shrinkage), probabilities the softmax of scores. With: the same statistics
and heads as they come now (shrinkage from rows and dimensions, calibration under the priors), RDA, Student, and `best`,
which chooses its statistics within 256 MB per site. All-MiniLM-L6-v2, 384-d, rows as they are, no projection, ten clients
at α = 0.1, which changes bytes and nothing else.
"""

import warnings
from collections.abc import Iterator

import data
import few_shots
import numpy as np
import scipy.special

from ghofl import Classifier, HeadSpec, Total
from ghofl.evaluation import Metrics
from ghofl.simulation.partition import dirichlet_by_class
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

SETS = ("banking77", "clinc150", "ag_news", "dbpedia14", "sst2")
BUDGET = 256_000_000  # bytes per site
WITHOUT = ("nb", "lda", "qda")
WITH = ("nearest_mean", "lda", "ridge", "rda", "student")
MEASURES = ("accuracy", "macro_f1", "log_loss", "brier", "ece")


def run() -> list[dict]:
    """Every set and head."""
    return data.collected(results())


def results() -> Iterator[dict]:
    """One row per set and head."""
    for name in SETS:
        try:
            rows = few_shots.arrays_of(name)
        except FileNotFoundError as error:
            print(f"{name}: left out, {error}")
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from of_set(name, rows)


def of_set(name: str, rows: Dataset) -> Iterator[dict]:
    """The heads of one set."""
    told = {"dataset": name, "train_rows": len(rows.y_train), "test_rows": len(rows.y_test)}
    parts = dirichlet_by_class(rows.y_train, 10, 0.1, np.random.default_rng(0))
    total = simulate(rows, parts, recipe_for(rows, [HeadSpec("qda")]), {}).total
    made_with = {"recipe": total.recipe.fingerprint}
    for head in WITHOUT:
        scores = Classifier.fit(total, HeadSpec.parse(head, "paper")).scores(rows.x_test)
        yield {
            **told,
            "defaults": False,
            "head": head,
            **measures(scipy.special.softmax(scores, axis=1), rows),
            **made_with,
        }
    for head in WITH:
        yield {**told, "defaults": True, "head": head, **measures(_probabilities(total, head, rows), rows), **made_with}
    specs = HeadSpec.parse_list("best")
    found = simulate(rows, parts, recipe_for(rows, specs.values(), budget=BUDGET), specs)
    size, chosen = (
        found.heads["best"].payload_bytes,
        specs["best"].choose(found.total.moments.layout, found.total.recipe),
    )
    own = {"head": "best", "is": chosen.name, "bytes": size, **found.heads["best"].metrics.to_dict()}
    yield {
        **told,
        "defaults": True,
        **{k: own[k] for k in ("head", "is", "bytes")},
        **_rounded(own),
        "recipe": found.total.recipe.fingerprint,
    }


def _probabilities(total: Total, head: str, rows: Dataset) -> np.ndarray:
    return Classifier.fit(total, head).predict_proba(rows.x_test)


def measures(probabilities: np.ndarray, rows: Dataset) -> dict[str, float]:
    """The measures of some probabilities."""
    return _rounded(Metrics.of(probabilities, rows.y_test).to_dict())


def _rounded(values: dict) -> dict[str, float]:
    return {name: round(float(values[name]), 5) for name in MEASURES}


def table(result: list[dict]) -> str:
    """One line per set and head."""
    lines = [
        "| set | training rows | defaults | head | accuracy % | macro F1 % | log loss | Brier | ECE % |",
        "|---|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for r in result:
        head = f"best ({r['is']}, {r['bytes'] / 1e6:.1f} MB)" if r["head"] == "best" else r["head"]
        lines.append(
            f"| {r['dataset']} | {r['train_rows']:,} | {'with' if r['defaults'] else 'without'} | {head} | "
            f"{100 * r['accuracy']:.2f} | {100 * r['macro_f1']:.2f} | {r['log_loss']:.3f} | {r['brier']:.3f} | "
            f"{100 * r['ece']:.1f} |"
        )
    return "\n".join(lines)
