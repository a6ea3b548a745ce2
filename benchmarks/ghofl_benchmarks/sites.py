"""Sites that differ: their messages and total, and the heads that a site could use.

`ALL` is the head of the total, `LOCAL` that of the site's own rows, `OWN` the one that the site chooses by leave-out.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ghofl import Classifier, Features, HeadSpec, Layout, Message, Moments, Recipe, Total
from ghofl.evaluation.leave_out import FOLDS, OwnRows, assign_folds, ignore
from ghofl.personal.choice import personal_head
from ghofl_benchmarks import made

ALL, LOCAL, OWN = "one head for all", "own rows only", "a head for each, chosen by leave-out"
HEAD = HeadSpec("lda")
Rows = tuple[np.ndarray, np.ndarray]
Found = TypeVar("Found")
_work: Callable[[int], Any]


class Federation:
    """Sites' rows, their messages, and the total."""

    def __init__(self, recipe: Recipe, rows: Mapping[str, Rows], head: HeadSpec = HEAD) -> None:
        self.recipe, self.rows, self.head = made.note(recipe), dict(rows), head
        features, layout = Features.of(recipe), Layout.of(recipe)
        self.messages = {
            name: Message.of(Moments.of(features.rows(x)[0], y, layout), recipe, name) for name, (x, y) in rows.items()
        }
        self.total = Total.of(self.messages.values(), recipe)
        self.shared = fit(self.total, head)

    def local(self, name: str) -> Classifier:
        """The head of one site's rows."""
        return fit(Total.of([self.messages[name]], self.recipe), self.head)

    def own(self, name: str, mix: np.ndarray | None = None) -> Classifier:
        """The head that the site chooses for its own mix of classes, or for another one."""
        x, y = self.rows[name]
        if len(y) < 2:
            return self.shared
        own = OwnRows.of(self.total, x, y, name)
        return personal_head(own, self.head, assign_folds(y, min(FOLDS, len(y))), mix).classifier

    def heads(self, name: str) -> dict[str, Classifier]:
        """What one site could use."""
        return {ALL: self.shared, LOCAL: self.local(name), OWN: self.own(name)}


def fit(total: Total, head: HeadSpec = HEAD) -> Classifier:
    """The head of a total."""
    return Classifier.fit(total, head, ignore)


def accuracy(head: Classifier, rows: Rows, mix: np.ndarray | None = None) -> float:
    """The share of rows whose class is predicted; under a mix, the classes have its shares."""
    x, y = rows
    hits = head.predict_numbers(x) == y
    if mix is None:
        return float(hits.mean())
    by_class = np.bincount(y, hits, minlength=len(mix)) / np.maximum(np.bincount(y, minlength=len(mix)), 1)
    return float(by_class @ mix / mix.sum())


def spread(work: Callable[[int], Found], count: int) -> list[Found]:
    """What a function gives for 0 … count − 1, a process per core."""
    with multiprocessing.get_context("fork").Pool(min(count, os.cpu_count() or 1), _hold, (work,)) as pool:
        return pool.map(_call, range(count), chunksize=1)


def _hold(work: Callable[[int], Any]) -> None:
    global _work  # inherited by the fork: neither rows nor closures travel
    _work = work


def _call(i: int) -> Any:
    return _work(i)
