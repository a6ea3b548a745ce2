"""Calibrated probabilities, which follow the priors in force.

The probability of a class is::

    p_c ∝ exp(s_c / T + b_c) · π'_c / π_c

with s the scores, π the priors of the total and π' those in force, by default the same. Where scores are log
posteriors, b_c = (1 − 1/T) log π_c, so that T divides the evidence and not the priors; where they are not
(cosines, regressions, standardised scores) and classes are uneven, every class has a b_c of its own. T and b minimise
the log loss of labelled draws, weighted by the priors, and are kept only if they lower it.

Draws come from the total's own Gaussians. A head of few rows is overconfident, so there the draws come from an
estimate of the Gaussians behind the total, and the judged head is one of as many redrawn rows (`gaussians.predictive`).
Embeddings of networks have heavier tails than Gaussian rows, and the more classes there are, the more of them an outlier
can be mistaken for: from 128 dimensions on draws get wider, up to τ² = log₂ C (at most 7) from 512 on, where LDA has the least
log loss on held-out training rows of seven sets and two encoders; heads that are not linear, or not of the shared
covariance alone, do better with τ ≤ 1.7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl.errors import HeadError, MessageError, NotPositiveDefiniteError
from ghofl.gaussians import Draws, Gaussians, draw
from ghofl.gaussians.predictive import denoise, redraw
from ghofl.heads.dispersion import DISPERSION, NARROW, dispersion_for, wideness
from ghofl.heads.doubt import doubt, least_temperature
from ghofl.heads.head import Head
from ghofl.heads.lda import HEAD as LDA
from ghofl.heads.lda import fit_lda
from ghofl.heads.options import HeadOptions
from ghofl.heads.rules import Rule, Standardised
from ghofl.heads.rules.base import softmax
from ghofl.heads.temperature import fit_temperature, fit_with_bias, log_loss, row_weights
from ghofl.names import shorten
from ghofl.shapes import Float, Integer

DRAWS = 1000  # at least; four times as many in few dimensions
OF_EACH = 4  # draws per class, at least; one where scores take a matrix product per class
FEW = 10.0  # rows per dimension below which a head is judged on redrawn rows
REDRAWN = 4096  # dimensions up to which that is done: redrawing and refitting take longer than the fit itself
JITTER = 1e-8  # shrinkage that lets constant features be drawn
GAIN = 0.002  # the share of log loss that a calibration must save on draws it was not fitted to
TOLD_APART = 1e-3  # log loss below which all draws are predicted correctly, and do not show how confident a head may be
UNEVEN = 2.0  # how many times the rarest class the most common one may be without a b_c for every class
MOST_DOUBT = 4.0  # times LDA's T: the largest T of draws that counts for a head of class covariances
SOURCES = ("none", "draws", "sites")
FIELDS = {"source", "priors", "bias", "in_force"}  # of the calibration in a head file
COLDEST = 1e-100  # the smallest temperature in a file; 1 over it is the largest. Scores divided by less may overflow


@dataclass(frozen=True, eq=False)
class Calibration:
    """How scores become probabilities: T, b and the priors π of the total; `source` says what they come from.

    `in_force` are the priors π' to use instead; None stands for π.

    Guarantees
    ----------
    A class without rows keeps probability 0 under all priors. The same scores give the same probabilities.

    Examples
    --------
    >>> even = Calibration(1.0, priors=np.array([0.9, 0.1]))
    >>> scores = np.log(np.array([[0.9, 0.1]]))
    >>> even.probabilities(scores).round(3), even.with_priors(np.array([0.5, 0.5])).probabilities(scores).round(3)
    (array([[0.9, 0.1]]), array([[0.5, 0.5]]))
    """

    temperature: float = 1.0
    bias: Float[np.ndarray, " classes"] | None = None
    priors: Float[np.ndarray, " classes"] | None = None
    source: str = "none"
    in_force: Float[np.ndarray, " classes"] | None = field(default=None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Calibration):
            return NotImplemented
        same = (self.temperature, self.source) == (other.temperature, other.source)
        pairs = ((self.bias, other.bias), (self.priors, other.priors), (self.in_force, other.in_force))
        return same and all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def to_header(self) -> dict[str, Any]:
        """What the header of a head file says."""
        if self.priors is None:
            return {"temperature": self.temperature}
        known: dict[str, Any] = {"source": self.source, "priors": self.priors.tolist()}
        more = {"bias": self.bias, "in_force": self.in_force}
        known |= {name: array.tolist() for name, array in more.items() if array is not None}
        return {"temperature": self.temperature, "calibration": known}

    @classmethod
    def of_header(cls, header: Mapping[str, Any], classes: int) -> "Calibration":
        """The calibration in the header of a head file; raises `MessageError` where it is damaged."""
        temperature, told = header.get("temperature"), header.get("calibration")
        if type(temperature) is not float or not COLDEST <= temperature <= 1.0 / COLDEST:
            raise MessageError(
                f"the head's temperature is {shorten(temperature, 20)}; it must be a number from {COLDEST:g} to "
                f"{1.0 / COLDEST:g}."
            )
        if told is None:
            return cls(temperature)
        if not isinstance(told, dict) or told.get("source") not in SOURCES or set(told) - FIELDS:
            raise MessageError("the head's calibration is damaged; make the head again with 'ghofl head'.")
        priors = _shares(told.get("priors"), classes, "priors")
        bias = _numbers(told["bias"], classes, "bias") if "bias" in told else None
        in_force = _shares(told["in_force"], classes, "priors in force") if "in_force" in told else None
        if in_force is not None and in_force[priors == 0].any():
            raise MessageError(
                "the head's priors in force are of unknown classes; make the head again with 'ghofl head'."
            )
        return cls(temperature, bias, priors, told["source"], in_force)

    def probabilities(self, scores: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
        """The probabilities of rows with these scores."""
        return softmax(self.log_odds(scores))

    def log_odds(self, scores: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
        """The logarithms of the probabilities, up to a term common to all classes: the largest is the prediction."""
        found = scores / self.temperature
        return found if self.shift is None else found + self.shift

    @property
    def shift(self) -> Float[np.ndarray, " classes"] | None:
        """What is added to scores/T: the bias, and the step from the priors of the head to those in force."""
        if self.in_force is None:
            return self.bias
        assert self.priors is not None, "priors are only replaced where they are known"
        with np.errstate(divide="ignore", invalid="ignore"):  # classes without rows, and classes with prior 0
            step = np.where(self.priors > 0, np.log(self.in_force) - np.log(self.priors), 0.0)
        return step if self.bias is None else self.bias + step

    def temper(self, ratio: float) -> "Calibration":
        """The calibration whose evidence beyond the priors is divided by `ratio` once more."""
        if ratio == 1:
            return self
        if self.priors is None:
            return replace(self, temperature=self.temperature * ratio)
        log_priors = _log(self.priors)
        bias = np.zeros(len(log_priors)) if self.bias is None else self.bias
        return replace(self, temperature=self.temperature * ratio, bias=bias / ratio + (1.0 - 1.0 / ratio) * log_priors)

    def with_priors(self, priors: Float[np.ndarray, " classes"]) -> "Calibration":
        """The same calibration with other priors in force; raises `HeadError` where its own are unknown."""
        if self.priors is None:
            raise HeadError(
                "this head does not say which priors it was built with, so they cannot be replaced; "
                "make the head again with 'ghofl head'."
            )
        if len(priors) != len(self.priors) or not np.isfinite(priors).all() or (priors < 0).any():
            raise HeadError(f"priors are {priors}; give one number per class, {len(self.priors)} in all, none below 0.")
        usable = np.where(self.priors > 0, priors, 0.0)
        if not usable.sum() > 0:
            raise HeadError("the priors are 0 for every class that the head knows; give one of them more.")
        return replace(self, in_force=usable / usable.sum())


def _of_log_posteriors(temperature: float, priors: Float[np.ndarray, " classes"]) -> Calibration:
    return Calibration(temperature, (1.0 - 1.0 / temperature) * _log(priors))


def _log(priors: Float[np.ndarray, " classes"]) -> Float[np.ndarray, " classes"]:
    """log π_c, and 0 for a class without a prior."""
    return np.log(np.where(priors > 0, priors, 1.0))


def _numbers(values: Any, count: int, name: str) -> Float[np.ndarray, " classes"]:
    if not isinstance(values, list) or len(values) != count or not all(type(v) is float for v in values):
        raise MessageError(f"the head's {name} are not {count} numbers; make the head again with 'ghofl head'.")
    found = np.array(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise MessageError(f"the head's {name} are not finite; make the head again with 'ghofl head'.")
    return found


def _shares(values: Any, count: int, name: str) -> Float[np.ndarray, " classes"]:
    found = _numbers(values, count, name)
    if (found < 0).any() or not abs(found.sum() - 1.0) < 1e-6:
        raise MessageError(f"the head's {name} are not shares of 1; make the head again with 'ghofl head'.")
    return found


def calibrate(
    head: Head, rule: Rule, gaussians: Gaussians, options: HeadOptions | None = None, dispersion: float | None = None
) -> Calibration:
    """The calibration of a rule that a head made of these Gaussians, with these options.

    Its source is "none" where the total does not show how rows vary. `dispersion` is τ, by default `dispersion_for`.
    """
    priors = gaussians.counts / gaussians.rows
    plain = Calibration(priors=priors)
    is_known = gaussians.has_shared_covariance or gaussians.own_variances is not None
    if not is_known or not gaussians.has_spread or gaussians.present < 2:
        return plain
    options = head.Options() if options is None else options
    has_own = "S" in (needs := head.needs_with(options)[0])  # every class has its own covariance
    try:
        judged, truth = _choose_truth(head, rule, gaussians, options, has_own)
        usual = dispersion_for(gaussians.means.shape[1], gaussians.present)
        own = usual if rule.is_linear and needs == ("B",) else min(usual, DISPERSION)
        tau = own if dispersion is None else dispersion
        spread = _own_spread(gaussians, truth) if judged is rule and needs == ("D",) else None
        least = 1 if has_own and gaussians.means.shape[1] > NARROW else OF_EACH
        fitted, kept = (_score_draws(judged, truth, tau, seed, spread, least) for seed in (0, 1))
        linear = fit_lda(gaussians) if _is_beyond_lda(head, rule, needs) else None
        ratio = 1.0 if linear is None else doubt(rule, linear, gaussians)
    except NotPositiveDefiniteError:
        return plain
    found = replace(_fit(*fitted, priors, head.log_posteriors), priors=priors, source="draws")
    before, after = (log_loss(c.probabilities(kept[0]), kept[1], priors) for c in (plain, found))
    if not (before > TOLD_APART and after < before * (1.0 - GAIN)):
        found = replace(plain, source="draws")
    if isinstance(rule, Standardised) and rule.spreads is None:
        return _raise_temperature(found, least_temperature(gaussians))
    if linear is None:
        return found
    wide, usual = wideness(gaussians.means.shape[1]), calibrate(LDA, linear, gaussians).temperature
    drawn = min(max(found.temperature, 1.0), MOST_DOUBT * usual)
    between = drawn ** (0.5 - 0.5 * wide) * (ratio * usual) ** (0.5 + 0.5 * wide)
    return replace(_of_log_posteriors(float(between), priors), priors=priors, source="draws")


def _raise_temperature(found: Calibration, least: float) -> Calibration:
    """At least this T; the predictions stay as they are."""
    if found.temperature >= least:
        return found
    bias = None if found.bias is None else found.bias * (found.temperature / least)
    return replace(found, temperature=least, bias=bias)


def _is_beyond_lda(head: Head, rule: Rule, needs: tuple[str, ...]) -> bool:
    """Whether a rule has log posteriors by class covariances, of which Gaussian draws say too little."""
    return head.log_posteriors and bool({"S", "Z"} & set(needs)) and not rule.is_linear


def _choose_truth(
    head: Head, rule: Rule, gaussians: Gaussians, options: HeadOptions, has_own: bool
) -> tuple[Rule, Gaussians]:
    """The rule to judge and the Gaussians to judge it on."""
    known, dim = gaussians if gaussians.has_shared_covariance else gaussians.diagonal(), gaussians.means.shape[1]
    of_few = has_own and dim <= NARROW  # covariances of the rows of a class alone
    is_few = gaussians.rows / (gaussians.present if of_few else 1) < FEW * dim
    if known is gaussians and is_few and dim <= REDRAWN:
        truth = denoise(gaussians, own=gaussians.has_class_covariances and dim <= NARROW)
        rows = np.random.default_rng(2)
        if not head.needs_with(options)[0]:  # means are enough for it
            return head.fit(redraw(truth, Gaussians(gaussians.counts, gaussians.means), rows), options), truth
        return head.fit(truth.keep("redrawn", lambda: redraw(truth, gaussians, rows)), options), truth
    if known.has_class_covariances and dim <= NARROW:
        return rule, known
    return rule, Gaussians(known.counts, known.means, known.shared)


def _own_spread(gaussians: Gaussians, truth: Gaussians) -> Float[np.ndarray, "classes dim"] | None:
    """How much wider each feature of each class is than the shared covariance says, for a head of class variances.

    Draws of one width for all classes would lie infinitely far from a class in which a feature is constant, and the
    head would seem useless.
    """
    if gaussians.own_variances is None or truth.has_class_covariances:
        return None
    pooled = gaussians.pooled_variances()
    return np.sqrt(gaussians.own_variances / np.where(pooled > 0, pooled, 1.0))


def _score_draws(
    rule: Rule,
    truth: Gaussians,
    dispersion: float,
    seed: int,
    spread: Float[np.ndarray, "classes dim"] | None,
    least: int,
) -> tuple[Float[np.ndarray, "n classes"], Integer[np.ndarray, " n"]]:
    drawn = _draws(truth, dispersion, seed, least)
    z = drawn.z.astype(np.float64)
    if spread is not None:
        centres = truth.means[drawn.y]
        z = centres + (z - centres) * spread[drawn.y]
    return (rule.without_tails() if dispersion > 1 else rule).scores(z), drawn.y


def _draws(truth: Gaussians, dispersion: float, seed: int, least: int) -> Draws:
    draws = DRAWS * 4 if truth.means.shape[1] <= NARROW else DRAWS
    per_class = max(least, draws // truth.present)
    amounts = (0.01,) if dispersion > 1 else (0.0, JITTER, 0.01)
    for amount in amounts[:-1]:
        try:
            return draw(truth, per_class, np.random.default_rng(seed), dispersion, amount)
        except NotPositiveDefiniteError:  # constant features, which must stay nearly constant, or very few rows
            continue
    return draw(truth, per_class, np.random.default_rng(seed), dispersion, amounts[-1])


def _fit(
    scores: Float[np.ndarray, "n classes"],
    y: Integer[np.ndarray, " n"],
    priors: Float[np.ndarray, " classes"],
    are_log_posteriors: bool,
) -> Calibration:
    weights, present = row_weights(y, priors), priors > 0
    if are_log_posteriors:
        log_priors = _log(priors)
        return _of_log_posteriors(fit_temperature(scores - log_priors, y, weights, log_priors), priors)
    if priors.max() <= UNEVEN * priors[present].min():
        return Calibration(fit_temperature(scores, y, weights))
    return Calibration(*fit_with_bias(scores[:, present], np.cumsum(present)[y] - 1, weights, present))
