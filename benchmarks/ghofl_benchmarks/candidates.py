"""What a site tries for its own head, and when it takes it: sets of candidates and rules, compared on training rows only.

Sources: the training rows of the hospitals' first splits, those of PACS's, and tables whose rows are cut into sites at random,
by skewed labels, and along their widest direction. Of every site a third is held out. Each candidate of a fine grid is judged
once by the site's leave-out and once by the held-out rows; any subset of the grid and any rule then follows without another fit.
A set and rule is judged by the mean over sources of its gain over the head for all, in accuracy on the held-out rows; those that
lose more than `HARM` points in any source are left out. Shown are the one with the largest gain, the one with the
fewest fits within `NEAR` points of it, and the one in use.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import GhoflError
from ghofl.evaluation.leave_out import FOLDS, OwnRows, assign_folds
from ghofl.personal.adaptation import Adaptation
from ghofl.personal.choice import fit_candidates, judge
from ghofl.simulation.dataset import table_dataset
from ghofl.simulation.partition import split
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl_benchmarks import flamby, pacs, report
from ghofl_benchmarks.sites import HEAD, Federation, Rows, accuracy, spread

MEANS, COVARIANCES, PRIORS = (5.0, 20.0, 50.0), (0.0, 0.3, 0.5, 0.7, 1.0), (2.0, 10.0, 50.0)
ERRORS = (0.0, 1.0, 2.0)  # standard errors that a candidate must gain
SUBSETS = {
    "means": ((5.0,), (20.0,), (50.0,), (5.0, 20.0), (5.0, 50.0), (20.0, 50.0), MEANS),
    "covariances": (
        (0.0,), (0.3,), (0.5,), (0.7,), (1.0,), (0.0, 0.5), (0.3, 0.7), (0.3, 1.0), (0.5, 1.0), (0.7, 1.0), (0.0, 0.3, 0.7),
        (0.3, 0.7, 1.0), (0.0, 0.5, 1.0), COVARIANCES,
    ),
    "priors": ((2.0,), (10.0,), PRIORS),
}  # fmt: skip
NEAR, HARM = 0.1, 0.2
HEARTS, SITES, FEWEST = 8, 4, 1000  # splits of hospitals; sites of a table, and the least rows of one
PICTURES = {700: 2, None: 1}  # splits of PACS by images per domain
Cell = tuple[str, str, Federation, dict[str, Rows], str]


def grid() -> tuple[Adaptation, ...]:
    """Every candidate, the head of the total first."""
    fits = [Adaptation()]
    fits += [Adaptation(means=k, covariance=w) for k in MEANS for w in COVARIANCES]
    fits += [Adaptation(alone=True)]
    return (Adaptation(), *(replace(f, priors=k) for f in fits for k in PRIORS))


def hold_out(train: dict[str, Rows], seed: int) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Two thirds of every site's rows, and the rest."""
    rng, kept, held = np.random.default_rng([12, seed]), {}, {}
    for name, (x, y) in train.items():
        rows = rng.permutation(len(y))
        cut = round(len(rows) * 2 / 3)
        kept[name], held[name] = ((x[part], y[part]) for part in (rows[:cut], rows[cut:]))
    return kept, held


def cells(images: Path | None, tables: Path | None) -> Iterator[Cell]:
    """Source, set, federation, held-out rows and site."""
    for seed in range(HEARTS):
        hearts = flamby.load()
        kept, held = hold_out(flamby.Hospitals(hearts, seed).federation.rows, seed)
        yield from _sites("hospitals", "heart", Federation(flamby.recipe_of(hearts), kept), held)
    if images is not None:
        data, classes = pacs.load(images)
        for size, seed in [(size, seed) for size, seeds in PICTURES.items() for seed in range(seeds)]:
            kept, held = hold_out(pacs.split(data, size, seed)[0], seed)
            yield from _sites(f"PACS, {size or 'all'}", "pacs", pacs.federation_of(kept, classes), held)
    for path in sorted(tables.iterdir()) if tables is not None else ():
        yield from _tables(path)


def _tables(path: Path) -> Iterator[Cell]:
    if path.suffix not in (".csv", ".npz"):
        return
    try:
        data = table_dataset(path, "label")[0] if path.suffix == ".csv" else Dataset.load(path)
    except GhoflError as error:
        print(f"  {path.name} is left out: {error}")
        return
    x, y = data.x_train, data.y_train
    if len(y) < FEWEST:
        return
    recipe, rng = recipe_for(data, [HEAD]), np.random.default_rng(0)
    centred = x - x.mean(axis=0, dtype=np.float64)
    along = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
    ways = {"iid": split(y, SITES, rng), "skewed": split(y, SITES, rng, 0.5), "shifted": np.array_split(along, SITES)}
    for way, parts in ways.items():
        kept, held = hold_out({f"{k}": (x[part], y[part]) for k, part in enumerate(parts)}, 0)
        kept = {name: rows for name, rows in kept.items() if len(rows[1]) >= 2 * FOLDS}
        yield from _sites(f"tables, {way}", path.stem, Federation(recipe, kept), held)


def _sites(source: str, name: str, federation: Federation, held: dict[str, Rows]) -> Iterator[Cell]:
    for site in federation.rows:
        yield source, name, federation, held, site


def _judge(cell: Cell) -> dict[str, np.ndarray | float | str]:
    """Leave-out's loss, gain and its error of every candidate, and accuracies on the held-out rows."""
    warnings.simplefilter("ignore")
    source, name, federation, held, site = cell
    x, y = federation.rows[site]
    own, tried = OwnRows.of(federation.total, x, y, site), grid()
    losses, hits = judge(tried, own, HEAD, assign_folds(y, FOLDS))
    if (np.bincount(y, minlength=len(federation.recipe.classes)) == 0).any():
        losses[[one.alone for one in tried]] = np.inf  # as such a site does not try it
    gains = losses[0] - losses
    heads = fit_candidates(tried, federation.total, own, np.ones(len(y), dtype=bool), HEAD, None)
    return {
        "source": source, "set": name, "loss": losses.mean(axis=1), "gain": gains.mean(axis=1), "hits": hits.mean(axis=1),
        "error": gains.std(axis=1) / np.sqrt(len(y)), "right": np.array([accuracy(h, held[site]) for h in heads]),
        "local": accuracy(federation.local(site), held[site]),
    }  # fmt: skip


def run(images: Path | None, tables: Path | None, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result by source."""
    every = list(cells(images, tables))
    found = spread(lambda i: _judge(every[i]), len(every))
    return compared(found, report.new_result("candidates", "What a site tries for its own head", 0, arguments))


def compared(found: list[dict[str, Any]], result: dict[str, Any]) -> dict[str, Any]:
    """Every set and rule, of which the best, a small one near it and the one in use are kept."""
    from ghofl.personal import choice

    stack = {
        key: np.array([cell[key] for cell in found])
        for key in ("source", "loss", "gain", "hits", "error", "right", "local")
    }
    rules = [
        {**dict(zip(SUBSETS, parts, strict=True)), "errors": errors}
        for *parts, errors in product(*SUBSETS.values(), ERRORS)
    ]
    scored = [(rule, _score(rule, stack)) for rule in rules]
    scored = [one for one in scored if min(one[1].values()) >= -HARM] or scored
    best = max(scored, key=lambda one: one[1]["mean"])
    near = [one for one in scored if one[1]["mean"] >= best[1]["mean"] - NEAR]
    chosen = min(near, key=lambda one: (_fits(one[0]), -one[1]["mean"]))
    now = {"means": choice.MEANS, "covariances": choice.COVARIANCES, "priors": choice.PRIORS}
    in_use = {**now, "errors": choice.ERRORS}
    for what, rule in (("largest gain", best[0]), ("fewest fits near it", chosen[0]), ("in use", in_use)):
        _add(result, what, _score(rule, stack), _fits(rule), **{k: str(v) for k, v in rule.items()})
    _add(result, "own rows only", _means(stack, stack["local"]))
    result["notes"] = [
        "Points of accuracy above the head for all, on held-out training rows, mean over sites, by source; no test row was read. "
        f"{len(rules):,} sets and rules; {len(found):,} sites. Fits: heads that are fitted per fold.",
    ]
    return result


def _fits(rule: dict[str, Any]) -> int:
    return 2 + len(rule["means"]) * len(rule["covariances"])


def _score(rule: dict[str, Any], stack: dict[str, np.ndarray]) -> dict[str, float]:
    """The gain of a rule by source, and the mean over sources."""
    kept = np.array([_is_in(rule, one) for one in grid()])
    is_right = stack["hits"] >= stack["hits"][:, :1]
    at = np.flatnonzero(kept)[np.argmin(np.where(is_right, stack["loss"], np.inf)[:, kept], axis=1)]
    rows = np.arange(len(at))
    at = np.where(stack["gain"][rows, at] > rule["errors"] * stack["error"][rows, at], at, 0)
    return _means(stack, stack["right"][rows, at])


def _means(stack: dict[str, np.ndarray], right: np.ndarray) -> dict[str, float]:
    gain = 100 * (right - stack["right"][:, 0])
    found = {str(s): float(gain[stack["source"] == s].mean()) for s in dict.fromkeys(stack["source"].tolist())}
    return {"mean": float(np.mean(list(found.values()))), **found}


def _is_in(rule: dict[str, Any], one: Adaptation) -> bool:
    if one == Adaptation():
        return True
    if one.alone:
        return one.priors in rule["priors"]
    if one.priors not in rule["priors"]:
        return False
    return one.means is None or (one.means in rule["means"] and one.covariance in rule["covariances"])


def _add(result: dict[str, Any], what: str, score: dict[str, float], fits: int | None = None, **rule: str) -> None:
    row = {"rule": what, "fits": fits, **{name: round(value, 2) for name, value in score.items()}, **rule}
    result["rows"].append(row)
    print("  ", row, flush=True)
