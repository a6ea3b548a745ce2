"""Which head a site takes for itself: the total's, or one that is changed towards its own rows, chosen by leave-out.

Every candidate predicts each of the site's rows without its fold, exactly. Of those that predict no fewer rows rightly than the
head of the total, the one with the least log loss is chosen if it beats that head by more than one standard error of the
difference, row by row; otherwise that head is kept.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import HeadError
from ghofl.evaluation.leave_out import OwnRows, Progress, ignore
from ghofl.evaluation.metrics import SMALLEST
from ghofl.gaussians import Gaussians
from ghofl.heads.spec import HeadSpec
from ghofl.personal.adaptation import Adaptation
from ghofl.shapes import Bool, Float, Int64
from ghofl.wire.total import Total

FEWEST = 10  # rows of a site, below which the head of the total is kept
# Pseudo-rows of the total in own means, shares of the own covariance, pseudo-rows in own priors: of the sets compared on
# training rows of hospitals, tables and PACS (`python -m ghofl_benchmarks candidates`) the one with the largest gain under
# one standard error, but for own means with the covariance of the total: two more fits for 0.02 points.
MEANS, COVARIANCES, PRIORS = (5.0, 50.0), (0.3, 0.7), (2.0, 10.0, 50.0)
ERRORS = 1.0  # standard errors of its gain that a candidate must gain over the head of the total
ROUNDING = 1e-9  # of weighted hits and of log loss: equal ones may differ by so much


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate on the site's rows by leave-out: log loss and accuracy under the mix it is chosen for.

    `own_accuracy` is that on the site's own mix of classes, `balanced_accuracy` the mean over the classes of its rows.
    """

    adaptation: Adaptation
    log_loss: float
    accuracy: float
    own_accuracy: float
    balanced_accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """The candidate as plain values."""
        names = ("log_loss", "accuracy", "own_accuracy", "balanced_accuracy")
        return {"changes": str(self.adaptation), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True, eq=False)
class Personal:
    """A site's head, how the head of the total and the chosen one did by leave-out, and all that was tried."""

    classifier: Classifier
    shared: Tried
    chosen: Tried
    tried: tuple[Tried, ...] = field(repr=False)
    why: str
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain values."""
        both = {"shared": self.shared.to_dict(), "chosen": self.chosen.to_dict()}
        return {"why": self.why, "rows": self.rows, **both, "tried": [one.to_dict() for one in self.tried]}


def personal_head(
    own: OwnRows,
    spec: HeadSpec,
    fold: Int64[np.ndarray, " n"],
    mix: Float[np.ndarray, " classes"] | None = None,
    progress: Progress | None = None,
) -> Personal:
    """The head for one site, chosen on its own rows.

    `mix` is how common classes are where the head will be used, by default as among the site's rows; candidates are
    compared under it, row by row reweighted by class. Classes of the mix without rows at the site do not count there.

    Guarantees
    ----------
    A site with fewer than ten rows, or whose rows do not show that another head is better, keeps the head of the total.
    The classifier is marked as personal, and promises no epsilon: it describes the site's rows.
    """
    shares = None if mix is None else mix / mix.sum()
    weights = _weights(own.y, shares, len(own.total.recipe.classes))
    candidates = tuple(_candidates(own, is_own_mix=mix is None))
    losses, hits = judge(candidates, own, spec, fold, shares, progress)
    tried = tuple(
        Tried(c, float(weights @ losses[i]), float(weights @ hits[i]), *_accuracies(hits[i], own.y))
        for i, c in enumerate(candidates)
    )
    best, why = _choose(losses, hits, weights)
    every = np.ones(len(own.y), dtype=bool)
    (classifier,) = fit_candidates(candidates[best : best + 1], own.total, own, every, spec, shares)
    return Personal(_mark(classifier, tried[best]), tried[0], tried[best], tried, why, len(own.y))


def judge(
    candidates: tuple[Adaptation, ...],
    own: OwnRows,
    spec: HeadSpec,
    fold: Int64[np.ndarray, " n"],
    mix: Float[np.ndarray, " classes"] | None = None,
    progress: Progress | None = None,
) -> tuple[Float[np.ndarray, "candidates n"], Float[np.ndarray, "candidates n"]]:
    """The log loss of every candidate on every row without its fold, and whether it predicts the row."""
    losses, hits = np.zeros((2, len(candidates), len(own.y)))
    for done, (total, out) in enumerate(own.without_folds(fold)):
        at, every = np.flatnonzero(out), (int(fold.max()) + 1) * len(candidates)
        for i, classifier in enumerate(fit_candidates(candidates, total, own, ~out, spec, mix)):
            if progress is not None:
                progress("candidates", done * len(candidates) + i, every)
            found = classifier.predict_proba(own.x[at])
            losses[i, at] = -np.log(np.maximum(found[np.arange(len(at)), own.y[at]], SMALLEST))
            hits[i, at] = classifier.decide(found) == own.y[at]
    return losses, hits


def _candidates(own: OwnRows, is_own_mix: bool) -> Iterator[Adaptation]:
    """What may be changed, the head of the total first."""
    yield Adaptation()
    if len(own.y) < FEWEST:
        return
    known = Gaussians.estimate(own.moments(np.ones(len(own.y), dtype=bool)), own.features.unit)
    varies = known.has_spread and (known.has_shared_covariance or known.own_variances is not None)
    fits = [Adaptation()]
    fits += [Adaptation(means=k, covariance=w) for k in MEANS for w in (COVARIANCES if varies else (0.0,))]
    has_every_class = bool((known.counts > 0)[own.total.moments.counts > 0].all())
    if varies and has_every_class:  # otherwise own rows only would never predict some class
        fits.append(Adaptation(alone=True))
    for changed in fits:
        if changed.changes_gaussians and not is_own_mix:
            yield changed
        if is_own_mix:
            yield from (replace(changed, priors=k) for k in PRIORS)


def fit_candidates(
    candidates: tuple[Adaptation, ...],
    total: Total,
    own: OwnRows,
    kept: Bool[np.ndarray, " n"],
    spec: HeadSpec,
    mix: Float[np.ndarray, " classes"] | None,
) -> Iterator[Classifier]:
    """A classifier per candidate; those that differ only by priors share a fit."""
    moments = own.moments(kept)
    site = Gaussians.estimate(moments, own.features.unit, own.features.sketch)
    fitted: dict[Adaptation, Classifier] = {}
    for candidate in candidates:
        key = replace(candidate, priors=None)
        if key not in fitted:
            fitted = {key: Classifier.fit(total, spec, ignore, adapt=_applied(key, site))}
        if candidate.priors is not None:
            yield fitted[key].with_priors(
                candidate.shares(np.maximum(total.moments.counts, 0), moments.counts).tolist()
            )
        else:
            yield fitted[key] if mix is None else fitted[key].with_priors(mix.tolist())


def _applied(adaptation: Adaptation, site: Gaussians) -> Callable[[Gaussians], Gaussians]:
    return lambda whole: adaptation.apply(whole, site)


def _weights(
    y: Int64[np.ndarray, " n"], mix: Float[np.ndarray, " classes"] | None, classes: int
) -> Float[np.ndarray, " n"]:
    """The weight of every row, so that classes have the shares of the mix."""
    counts = np.bincount(y, minlength=classes)
    shares = np.where(counts > 0, counts if mix is None else mix, 0.0)
    if not shares.sum() > 0:
        raise HeadError(
            f"the mix {mix} is 0 for every class that this site has rows of, so its rows do not tell which head is better; give "
            "one of them a share, or take the head of the total with these priors."
        )
    return (shares / np.maximum(counts, 1) / shares.sum())[y]


def _accuracies(hits: Float[np.ndarray, " n"], y: Int64[np.ndarray, " n"]) -> tuple[float, float]:
    """The share of rows that are predicted, and its mean over classes."""
    return float(hits.mean()), float(np.mean([hits[y == c].mean() for c in np.unique(y)]))


def _choose(
    losses: Float[np.ndarray, "candidates n"], hits: Float[np.ndarray, "candidates n"], weights: Float[np.ndarray, " n"]
) -> tuple[int, str]:
    """The candidate of the least log loss of those that are right as often as the first one, or that one, and why."""
    if len(losses) == 1:
        return 0, f"the site has fewer than {FEWEST} rows, so the head of the total is kept"
    is_right = (hits - hits[0]) @ weights >= -ROUNDING
    best = int(np.argmin(np.where(is_right, losses @ weights, np.inf)))
    gains = losses[0] - losses[best]
    gain = float(weights @ gains)
    error = float(np.sqrt(np.square(weights) @ np.square(gains - gain)))
    if best == 0 or gain <= ERRORS * error + ROUNDING:
        return 0, (
            "no candidate beats the log loss of the head of the total by more than one standard error without predicting fewer "
            "rows rightly, so that head is kept"
        )
    return best, f"its log loss is less than that of the head of the total by {gain:.4f} ± {error:.4f}"


def _mark(classifier: Classifier, chosen: Tried) -> Classifier:
    changed = "nothing changed" if chosen.adaptation == Adaptation() else str(chosen.adaptation)
    return replace(classifier, guarantee=None, personal=changed, total="")
