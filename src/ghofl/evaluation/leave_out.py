"""Exact leave-out: how good a head is on a site's own rows, fitted to everything but the rows that it is judged on.

Sums are exact, so a site that took part can take rows out of the total again::

    total without a fold = total − the site's message as sent + moments of its kept rows, under the same rounding

What the recipe learned from rows (the draft of a schema, grid, anchor, breaks) is not left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ghofl.classifier import Classifier
from ghofl.compute import arrays
from ghofl.errors import EmbeddingsError, PrivacyError, RosterError
from ghofl.evaluation.metrics import Metrics
from ghofl.evaluation.tally import Tally
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.heads.spec import BEST, DEFAULT_HEAD, AnyHead, HeadSpec
from ghofl.moments import Layout, Moments
from ghofl.privacy import protect
from ghofl.recipe import Recipe
from ghofl.shapes import Bool, Float, Int64, Num, Shaped
from ghofl.wire.message import Message
from ghofl.wire.roster import Entry, list_names
from ghofl.wire.total import Total

FOLDS = 5
Progress = Callable[[str, int, int], None]


def assign_folds(
    y: Int64[np.ndarray, " n"], folds: int = FOLDS, persons: Shaped[np.ndarray, " n"] | None = None
) -> Int64[np.ndarray, " n"]:
    """The fold of every row, the same on every call; each class is spread evenly, and a person's rows stay together.

    >>> assign_folds(np.array([0, 0, 0, 0, 1, 1]), 2).reshape(3, 2).sum(axis=1)
    array([1, 1, 1])
    """
    _, first, unit = np.unique(
        np.arange(len(y)) if persons is None else persons, return_index=True, return_inverse=True
    )
    if not 2 <= folds <= len(first):
        what = "row" if persons is None else "person"
        raise EmbeddingsError(
            f"{len(first):,} {what}{'' if len(first) == 1 else 's'} cannot be left out in {folds} folds; leave-out takes "
            f"at least 2 folds, and at least as many {what}s as folds."
        )
    order = np.random.default_rng(0).permutation(len(first))
    order = order[np.argsort(y[first][order], kind="stable")]
    found = np.empty(len(first), dtype=np.int64)
    found[order] = np.arange(len(first)) % folds
    return found[unit.ravel()]


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """A site's rows beside the total that they are in, or for a new site (`entry` is None) are not in.

    Guarantees
    ----------
    `of` refuses rows other than those that were sent: their moments, rounded as they were, have the hash in the roster.

    Examples
    --------
    >>> from ghofl.recipe import Encoder, Recipe
    >>> from ghofl.wire.message import Message
    >>> recipe = Recipe(classes=("low", "high"), encoder=Encoder(dim=1), statistics=("B",))
    >>> x, y = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([0, 0, 1, 1])
    >>> sums = Moments.of(Features.of(recipe).rows(x)[0], y, Layout.of(recipe))
    >>> own = OwnRows.of(Total.of([Message.of(sums, recipe, "north")], recipe), x, y)
    >>> [total.moments.counts.tolist() for total, _ in own.without_folds(assign_folds(y, 2))]
    [[1, 1], [1, 1]]
    """

    total: Total
    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Int64[np.ndarray, " n"] = field(repr=False)
    q: Shaped[np.ndarray, "n features"] = field(repr=False)
    features: Features = field(repr=False)
    sent: Moments | None = field(repr=False)
    entry: Entry | None

    @classmethod
    def of(cls, total: Total, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], site: str = "") -> "OwnRows":
        """Rows that are in the total; of the named `site` where another record than the roster says that they were sent."""
        _check_exact(total)
        features = Features.of(total.recipe)
        q = _features_of(features, x, y)
        own = cls(total, x, y, q, features, None, None)
        sent = protect(own.moments(np.ones(len(y), dtype=bool)), total.recipe)
        entry = _entry_of(total, sent, site)
        if (sent.counts > total.moments.counts).any():
            raise RosterError(
                f"these {len(y):,} rows are not in this total: of a class they have more than it has in all; give the rows that "
                "the site took part with."
            )
        return replace(own, sent=sent if total.recipe.privacy.rounding else None, entry=entry)

    @classmethod
    def of_new_site(cls, total: Total, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]) -> "OwnRows":
        """Rows that are not in the total, which may be a released one; those of a message in it are refused."""
        roster, total, features = total.roster, total.for_heads(), Features.of(total.recipe)
        q = _features_of(features, x, y)
        if unknown := [total.recipe.classes[c] for c in np.unique(y) if total.moments.counts[c] <= 0]:
            raise EmbeddingsError(
                f"class {unknown[0]!r} has no rows in the total, so no head of it knows the class; leave its rows out."
            )
        own = cls(total, x, y, q, features, None, None)
        if total.recipe.privacy.epsilon is None:
            digest = protect(own.moments(np.ones(len(y), dtype=bool)), total.recipe).sha256
            if sent := next((entry for entry in roster if entry.sha256 == digest), None):
                raise RosterError(
                    f"these {len(y):,} rows are in this total, {sent.name!r} sent them, so its heads have seen them; leave them "
                    "out of it: this site is not a new one."
                )
        return own

    def moments(self, rows: Bool[np.ndarray, " n"]) -> Moments:
        """The exact moments of some of the rows."""
        return Moments.of(self.q[rows], self.y[rows], Layout.of(self.total.recipe), self._sketch)

    def without_folds(self, fold: Int64[np.ndarray, " n"]) -> Iterator[tuple[Total, Bool[np.ndarray, " n"]]]:
        """For every fold, the total without its rows, and which rows these are.

        Sums are changed in place, so use each total before asking for the next; there is one copy of them for all folds.
        """
        exact = self.entry is not None and self.sent is None
        blocks = arrays.copies(self.total.moments.blocks) if exact else {}
        for k in range(int(fold.max()) + 1):
            out = fold == k
            if self.entry is None:
                yield self.total, out
            elif self.sent is not None:  # rounded messages do not lose a fold by subtraction
                kept = protect(self.moments(~out), self.total.recipe)
                yield self._total_of(self.total.moments - self.sent + kept, out), out
            else:
                changed = self._take_out(blocks, out)
                yield self._total_of(Moments(self.total.moments.layout, blocks), out), out
                for name, place in changed:
                    blocks[name][place] = self.total.moments.blocks[name][place]

    def _take_out(self, blocks: Mapping[str, np.ndarray], out: Bool[np.ndarray, " n"]) -> list[tuple[str, slice]]:
        """Subtract rows from blocks, one class at a time, and say which parts have changed."""
        layout, changed = Layout.of(self.total.recipe), []
        for c in np.unique(self.y[out]).tolist():
            rows = self.q[out & (self.y == c)]
            part = Moments.of(rows, np.zeros(len(rows), dtype=np.int64), replace(layout, classes=1), self._sketch)
            for record in layout.records:
                place = slice(c, c + 1) if record.is_per_class else slice(None)
                blocks[record.name][place] -= part.blocks[record.name]
                changed.append((record.name, place))
        return changed

    def _total_of(self, moments: Moments, out: Bool[np.ndarray, " n"]) -> Total:
        assert self.entry is not None
        less = replace(self.entry, rows=int(np.sum(~out)), sha256="")
        roster = tuple(less if e.id == less.id else e for e in self.total.roster)
        return replace(self.total, moments=moments, roster=roster)

    @property
    def site(self) -> str:
        """Whose rows these are, as the roster has it."""
        return "" if self.entry is None else self.entry.name

    @property
    def _sketch(self) -> np.ndarray | None:
        return self.features.sketch if Layout.of(self.total.recipe).sketch else None


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """What one head says of a site's rows, each predicted by the head that was fitted without its fold.

    `unseen` are the classes that have no rows outside of some fold: there their rows count as errors. `spec` is the head
    that was asked for and `head` the one that it is for the whole total, both with their options; `total` is the sha256
    of that total's sums, and `site` whose rows these are. `tally` is there where it was asked for.
    """

    spec: str
    head: str
    recipe: Recipe = field(repr=False)
    total: str
    site: str
    folds: int
    probabilities: Float[np.ndarray, "n classes"] = field(repr=False)
    predicted: Int64[np.ndarray, " n"] = field(repr=False)
    y: Int64[np.ndarray, " n"] = field(repr=False)
    unseen: tuple[str, ...] = ()
    tally: Tally | None = field(default=None, repr=False)

    @property
    def metrics(self) -> Metrics:
        """The measures over all rows."""
        return Metrics.of(self.probabilities, self.y, self.predicted)


def leave_out(
    own: OwnRows,
    heads: Mapping[str, HeadSpec],
    fold: Int64[np.ndarray, " n"],
    progress: Progress | None = None,
    tally: bool = False,
) -> dict[str, LeftOut]:
    """Every head on the site's own rows, each row predicted without its fold; with a `tally`, heads can be calibrated.

    Guarantees
    ----------
    What all sites find together is cross-validation on their pooled rows whose folds are the pairs (site, fold),
    prediction for prediction, probabilities included.
    """
    if own.entry is None:
        raise RosterError(
            "these rows are not in the total, so none can be left out of it; judge its head on them instead."
        )
    shape, unseen = (len(own.y), len(own.total.recipe.classes)), set()
    found = {name: (np.zeros(shape), np.zeros(len(own.y), dtype=np.int64)) for name in heads}
    tallies = dict.fromkeys(heads, Tally.zeros()) if tally else {}
    for done, (total, out) in enumerate(own.without_folds(fold)):
        if progress is not None:
            progress("folds", done, int(fold.max()) + 1)
        unseen |= set(np.unique(own.y[out])[total.moments.counts[np.unique(own.y[out])] == 0].tolist())
        for name, spec in heads.items():
            classifier = Classifier.fit(total, spec, ignore)
            probabilities, predicted = found[name]
            probabilities[out] = classifier.predict_proba(own.x[out])
            predicted[out] = classifier.decide(probabilities[out])
            if tally:
                tallies[name] += Tally.of(classifier, own.x[out], own.y[out])
    names = tuple(own.total.recipe.classes[c] for c in sorted(unseen))
    about = (own.total.recipe, own.total.moments.sha256, own.site, int(fold.max()) + 1)
    return {
        name: LeftOut(str(spec), chosen_head(spec, own.total), *about, *found[name], own.y, names, tallies.get(name))
        for name, spec in heads.items()
    }


def cross_validate(
    within: Total | Recipe,
    x: Num[np.ndarray, "n dim"],
    y: Int64[np.ndarray, " n"],
    heads: AnyHead | Iterable[AnyHead] = DEFAULT_HEAD,
    folds: int = FOLDS,
    tally: bool = False,
) -> dict[str, LeftOut]:
    """One or several heads on a site's rows `within` a total; with a recipe, on rows that are all in one place."""
    if isinstance(within, Recipe):
        features, layout = Features.of(within), Layout.of(within)
        sums = Moments.of(features.rows(x)[0], y, layout, features.sketch if layout.sketch else None)
        within = Total.of([Message.of(sums, within)], within)
    return leave_out(OwnRows.of(within, x, y), HeadSpec.parse_list(heads), assign_folds(y, folds), tally=tally)


def ignore(_: Warning) -> None:
    """Classes that a fold empties are listed with the result."""


def chosen_head(spec: HeadSpec, total: Total) -> str:
    """The head, with its options, that a spec is for a total."""
    if spec.name != BEST:
        return str(spec)
    gaussians = Gaussians.of_total(total.for_heads(), Features.of(total.recipe))
    return str(spec.choose(total.moments.layout, total.recipe, gaussians))


def _features_of(
    features: Features, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]
) -> Shaped[np.ndarray, "n features"]:
    if len(y) < 2:
        raise EmbeddingsError(
            f"{len(y)} row{'' if len(y) == 1 else 's'} came, and leave-out takes 2 or more; give more rows."
        )
    return features.rows(x)[0]


def _check_exact(total: Total) -> None:
    if total.is_released or total.recipe.privacy.epsilon is not None:
        raise PrivacyError(
            "rows cannot be taken out of a total with noise, or without its small classes, because what was added of them "
            f"is not what is inside (recipe {total.recipe.fingerprint[:12]}…); leave-out needs the exact total, under a recipe "
            "without epsilon."
        )


def _entry_of(total: Total, sent: Moments, site: str) -> Entry:
    """The line of the roster that says that these moments were sent."""
    digest = sent.sha256
    found = [e for e in total.roster if e.sha256 == digest or (site and e.site == site and not e.sha256)]
    if found:  # two sites may have sent the same
        return next((entry for entry in found if entry.site == site), found[0])
    raise RosterError(
        f"these {sent.rows:,} rows are not what any site in this total sent ({list_names(total.roster)}); give the very rows of "
        "the site's message, in the same file, split and columns; a site that sent nothing takes 'ghofl personal --new-site'."
    )
