"""Sites whose rows differ in nothing but how common classes are: a head of one's own must do no harm there."""

from typing import Any

import numpy as np

from ghofl.simulation.partition import split
from ghofl.simulation.simulate import recipe_for
from ghofl_benchmarks import data, report
from ghofl_benchmarks.sites import ALL, HEAD, LOCAL, OWN, Federation, accuracy, spread

SETS, SITES, DIM = ("cifar10", "cifar100"), 20, 256
ALPHAS, FEW_ALPHAS = (None, 0.5, 0.1, 0.05), (None, 0.1)
FEW = 2000  # training rows together, so that sites have few
METHODS = (ALL, LOCAL, OWN)


def run(sets: tuple[str, ...] = SETS, rows: int | None = None, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result: by set, rows and skew, the mean over sites of the accuracy for a site's own mix of classes."""
    result = report.new_result("no_shift", "Sites that differ only in how common classes are", 1, arguments)
    for name in sets or SETS:
        for alpha in ALPHAS:
            _measure(result, name, rows, alpha)
        for alpha in () if rows else FEW_ALPHAS:
            _measure(result, name, FEW, alpha)
    result["notes"] = [
        f"Accuracy in % for the site's own mix of classes (test rows weighted by class), mean over {SITES} sites with rows; LDA "
        f"of square roots, projected to {DIM} dimensions. `worst` is the site that loses most beside the head for all, `changed` "
        f"how many sites chose another head. `few`: {FEW:,} training rows in all.",
    ]
    return result


def _measure(result: dict[str, Any], name: str, rows: int | None, alpha: float | None) -> None:
    whole = data.load(name, rows=rows)
    parts = split(whole.y_train, SITES, np.random.default_rng(1), alpha)
    sites = {f"site-{i}": (whole.x_train[part], whole.y_train[part]) for i, part in enumerate(parts) if len(part)}
    federation = Federation(recipe_for(whole, [HEAD], power=0.5, project=DIM), sites)
    names, test = list(sites), (data.load(name).x_test, data.load(name).y_test)

    def site(i: int) -> list[float]:
        mix = np.bincount(sites[names[i]][1], minlength=len(whole.classes)).astype(float)
        heads = federation.heads(names[i])
        return [*(accuracy(heads[m], test, mix) for m in METHODS), heads[OWN].personal not in ("", "nothing changed")]

    found = np.array(spread(site, len(names)))
    for k, method in enumerate(METHODS):
        row = {
            "set": name, "rows": "few" if rows else "all", "alpha": "∞" if alpha is None else alpha, "method": method,
            "accuracy": round(100 * float(found[:, k].mean()), 2),
        }  # fmt: skip
        if method == OWN:
            row |= {
                "worst": round(100 * float((found[:, k] - found[:, 0]).min()), 2),
                "changed": int(found[:, 3].sum()),
            }
        result["rows"].append(row)
        print("  ", row, flush=True)
