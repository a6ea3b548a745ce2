"""Reports on heads: before one leaves a site, it is checked against the policy and recorded in the ledger."""

import hashlib

import numpy as np

from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import PolicyError
from ghofl.recipe import Recipe
from ghofl.shapes import Int64


def record_report(site: Site, recipe: Recipe, rows: Int64[np.ndarray, " classes"], data: str, report: bytes) -> None:
    """Record in the site's ledger that a report leaves; raises `PolicyError` where its policy does not allow it.

    `rows` are the rows per class that it counts, `data` is their version. The same report again is the same release.

    Guarantees
    ----------
    Counts of right and wrong predictions are exact. So none leaves a site that has a budget, or that has sent anything
    under an epsilon; and once one has left, no guarantee covers all releases together.
    """
    policy, memory = site.conditions(), site.memory()
    least = policy.disclosure.number("class_rows")
    key = hashlib.sha256(report).hexdigest()
    with memory.alone():
        history = History.load(memory)
        if any(release.key == key for release in history.releases):
            return
        if policy.budget is not None or any(release.guarantee for release in history.releases):
            raise PolicyError(
                "a report counts right and wrong predictions exactly, and this site's rows are under an epsilon; "
                "judge the head on other rows, with their own site file and folder."
            )
        present = rows[rows > 0]
        if rows.sum() < policy.min_rows or (len(present) and present.min() < least):
            raise PolicyError(
                f"the report would count fewer rows than this site's policy allows: {policy.min_rows} in all, {least} of "
                "each class that has any."
            )
        facts = {"id": key, "recipe": recipe.fingerprint, "data": data, "rows": int(rows.sum())}
        Ledger.load(memory).write(memory, "reported", **facts, guarantee=None)
