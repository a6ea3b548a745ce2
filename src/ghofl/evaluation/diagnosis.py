"""Which site's message does not fit the others', found at the server from messages alone.

For every site: how far its class means are from those of all others (`agreement`), whether one of its classes looks like
another class of theirs, how wide its rows spread within classes, whether its sums show that rows were counted several
times, how many entries were clipped, its share of all rows, and how much the head changes without the site, whose moments
are subtracted exactly.

Where single messages are never seen, the same is done between totals of disjoint cohorts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from ghofl.errors import EmbeddingsError, MissingStatisticError, PrivacyError, RosterError
from ghofl.evaluation.agreement import CENTRE, Agreement
from ghofl.features import TOLERATED_CLIPPING
from ghofl.gaussians import Gaussians, draw, linalg
from ghofl.heads.lda import fit_lda
from ghofl.moments import Moments
from ghofl.privacy import plan_of
from ghofl.recipe import Recipe
from ghofl.shapes import Float
from ghofl.wire.message import Message
from ghofl.wire.total import Total

FEWEST = 3  # sites: of two that differ, either may be right
SHRINKAGE = 0.05
RATIO, ENOUGH_ROWS = 2.2, 20  # of the spread within classes to the median's, and the rows needed to judge it
LOOKS_LIKE = 2.0  # how many times nearer another class must be before it is named
MULTIPLES = 16  # sums that must all be multiples, like the counts, before rows are called repeated
DRAWS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The moments of one site, or of a cohort whose sites are hidden, and the share of its entries that was clipped."""

    name: str
    moments: Moments = field(repr=False)
    clipped: float | None = None

    @classmethod
    def of(cls, source: Message | Total, name: str = "") -> "Part":
        """The part that a message, or the total of a cohort, holds."""
        if isinstance(source, Message):
            return cls(name or source.name, source.moments, source.clipped)
        if source.guarantee is not None or source.is_released:
            raise PrivacyError(
                f"the total {name!r} has noise or lost its small classes, and a diagnosis compares exact totals; "
                "give the total from before its release."
            )
        return cls(name or f"{len(source.roster)} sites", source.moments)


@dataclass(frozen=True, slots=True)
class SiteDiagnosis:
    """What is known about one site; `flags` are the reasons to look at it, and a site without any fits the others.

    `labels` and `features` are distances of its class means from the others'; above 1 is further than chance and
    honest differences explain. `looks_like` are its classes that are nearer to another class of the others than to theirs.
    `width` is its variance within classes divided by that of the median site, `repeats` how many times its rows seem to be
    counted, `head_change` the share of predictions that change when it is left out.
    """

    name: str
    rows: int
    share: float
    labels: float
    features: float
    looks_like: tuple[tuple[str, str], ...]
    clipped: float | None
    head_change: float
    width: float | None = None
    repeats: int = 1
    alone: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known about every site, in the order given, and how much honest sites naturally differ (`spread`)."""

    sites: tuple[SiteDiagnosis, ...]
    spread: float

    @property
    def flagged(self) -> tuple[SiteDiagnosis, ...]:
        """The sites that do not fit the others."""
        return tuple(site for site in self.sites if site.flags)

    def sentences(self) -> list[str]:
        """The findings in words, one line for every reason."""
        lines = [f"{site.name}: {flag}" for site in self.flagged for flag in site.flags]
        lines += [
            f"{site.name}: no other site has class {', '.join(map(repr, site.alone))}, so it cannot be checked"
            for site in self.sites
            if site.alone
        ]
        return lines or ["Every site fits the others."]

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain values."""
        return {
            "sites": [asdict(site) for site in self.sites],
            "flagged": [site.name for site in self.flagged],
            "spread": self.spread,
            "findings": self.sentences(),
        }


def diagnose(parts: Sequence[Part], recipe: Recipe) -> Diagnosis:
    """Which of some sites do not fit the others.

    The moments are read three times, one site at a time, so `parts` may read them from files.

    Guarantees
    ----------
    The result depends on the moments alone, not on their order. Rows are never needed.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> from ghofl.recipe import Encoder
    >>> recipe, rng = Recipe(("a", "b"), Encoder(dim=3)), np.random.default_rng(0)
    >>> def site(name, order):
    ...     y = rng.integers(0, 2, 80)
    ...     x = np.rint(rng.normal(size=(80, 3)) * 9 + 40 * y[:, None]).astype(np.int64)
    ...     return Part(name, Moments.of(x, np.array(order)[y], Layout.of(recipe)))
    >>> found = diagnose([site("north", [0, 1]), site("east", [0, 1]), site("south", [1, 0]), site("west", [0, 1])], recipe)
    >>> [s.name for s in found.flagged], found.flagged[0].looks_like
    (['south'], (('a', 'b'), ('b', 'a')))
    """
    _check(parts, recipe)
    counts = np.stack([part.moments.counts for part in parts]).astype(float)
    if not counts.any():
        raise EmbeddingsError(f"none of these sites has rows ({len(parts)} came); there is nothing to compare.")
    repeats = _repeats([part.moments for part in parts])
    covariance = _covariance(parts, counts)
    agreement, widths = _whitened(parts, counts, covariance)
    wide = [s for s, width in enumerate(widths) if width is not None and not 1 / RATIO <= width <= RATIO]
    first = sorted({s for s, times in enumerate(repeats) if times > 1} | set(wide))
    judged = agreement.without(first) if len(agreement.active) - len(first) >= 2 else agreement
    outliers = judged.outliers()
    final = judged.without(outliers)
    sites = []
    for s, site in enumerate(_describe(parts, counts, recipe, final)):
        site = replace(site, width=widths[s], repeats=repeats[s])
        is_outlier = s in outliers or (s in first and max(site.labels, site.features) > 1.0)
        sites.append(replace(site, flags=_flags(site, is_outlier, s in wide)))
    return Diagnosis(tuple(sites), final.spread[1])


def _describe(
    parts: Sequence[Part], counts: Float[np.ndarray, "sites classes"], recipe: Recipe, final: Agreement
) -> Iterator[SiteDiagnosis]:
    """What is known about every site, given the sites that they are judged by."""
    changes, totals = _head_changes(parts, recipe), counts.sum(axis=0)
    for s, part in enumerate(parts):
        alone = np.flatnonzero((counts[s] > 0) & (totals == counts[s]))
        yield SiteDiagnosis(
            name=part.name,
            rows=part.moments.rows,
            share=float(counts[s].sum() / counts.sum()),
            labels=float(final.scores[s, 0]),
            features=float(final.scores[s, 1]),
            looks_like=_looks_like(final, s, recipe.classes),
            clipped=part.clipped,
            head_change=changes[s],
            alone=tuple(recipe.classes[int(c)] for c in alone),
        )


def _check(parts: Sequence[Part], recipe: Recipe) -> None:
    if len(parts) < FEWEST:
        raise RosterError(
            f"a diagnosis needs {FEWEST} sites and {len(parts)} came: of two that differ, either may be right; "
            "give more messages."
        )
    plan = plan_of(recipe)
    if plan is not None and plan.mechanism != "central":
        raise PrivacyError(
            f"the recipe's {plan.mechanism} noise is inside every message, and a diagnosis would judge the noise; "
            "it needs exact messages, which the server sees under noise = 'central' or none."
        )
    if not (parts[0].moments.layout.has("B") or parts[0].moments.layout.has("D")):
        held = ", ".join(parts[0].moments.layout.shapes)
        raise MissingStatisticError(f"{held}: counts and sums do not say how rows vary; use a recipe with B, D or S.")


def _repeats(moments: Sequence[Moments]) -> list[int]:
    """How many times the rows of each site were counted: the common divisor of all its counts and sums.

    Where the sums of most sites are multiples of one step (as with columns of two values), that step is divided out.
    """
    steps = [int(np.gcd.reduce(m.sums, axis=None)) for m in moments]
    found = []
    for s, m in enumerate(moments):
        common = Counter(step for i, step in enumerate(steps) if i != s and step)
        step = max(common, key=lambda step: (common[step], step), default=0)
        sums = m.sums[m.sums != 0]
        if step == 0 or sums.size < MULTIPLES or np.any(sums % step):
            found.append(1)
        else:
            found.append(max(1, int(np.gcd(np.gcd.reduce(sums // step), np.gcd.reduce(m.counts)))))
    return found


def _within(moments: Moments) -> Float[np.ndarray, "dim dim"]:
    """The scatter of a site's rows around their class means; only its diagonal where the message has only D."""
    counts = np.maximum(moments.counts, 1).astype(float)
    if moments.layout.has("B"):
        weighted = moments.sums / np.sqrt(counts)[:, None]
        return moments.pooled() - weighted.T @ weighted
    return np.diag((moments.squares - np.square(moments.sums.astype(float)) / counts[:, None]).sum(axis=0))


def _degrees(counts: Float[np.ndarray, "sites classes"]) -> Float[np.ndarray, " sites"]:
    return counts.sum(axis=1) - np.count_nonzero(counts, axis=1)


def _covariance(parts: Sequence[Part], counts: Float[np.ndarray, "sites classes"]) -> Float[np.ndarray, "dim dim"]:
    """The covariance within classes, in which no site has more than twice the weight of the median one."""
    degrees = _degrees(counts)
    if not degrees.any():
        raise EmbeddingsError(
            f"no site of {len(parts)} has two rows of a class, so nothing says how rows vary; compare sites that have more rows."
        )
    weights = np.minimum(1.0, 2.0 * np.median(degrees[degrees > 0]) / np.maximum(degrees, 1.0))
    dim = parts[0].moments.layout.dim
    total = sum((w * _within(part.moments) for w, part in zip(weights, parts, strict=True)), np.zeros((dim, dim)))
    return linalg.shrink(total / float(weights @ degrees), SHRINKAGE)


def _whitened(
    parts: Sequence[Part], counts: Float[np.ndarray, "sites classes"], covariance: Float[np.ndarray, "dim dim"]
) -> tuple[Agreement, list[float | None]]:
    """Class means in whitened features, and the spread within classes of every site over that of the median one."""
    lower = linalg.cholesky(covariance, "the covariance within classes")
    inverse = scipy.linalg.cho_solve((lower, True), np.eye(len(lower)), check_finite=False)
    means, levels, degrees = np.empty((*counts.shape, len(lower))), np.full(len(parts), np.nan), _degrees(counts)
    for s, part in enumerate(parts):
        rows = part.moments.sums / np.maximum(counts[s], 1.0)[:, None]
        means[s] = scipy.linalg.solve_triangular(lower, rows.T, lower=True, check_finite=False).T
        if degrees[s] >= ENOUGH_ROWS:
            levels[s] = float(np.sum(inverse * _within(part.moments))) / degrees[s]
    known = levels[np.isfinite(levels)]
    middle = max(float(np.median(known)), CENTRE) if known.size >= FEWEST else np.nan
    widths = [float(level / middle) if np.isfinite(level / middle) else None for level in levels]
    return Agreement(counts, means), widths


def _looks_like(agreement: Agreement, s: int, classes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for c in np.flatnonzero(agreement.by_class[0][s] > 1.0):
        nearest, ratio = agreement.likeness(s, int(c))
        if nearest != c and ratio > LOOKS_LIKE:
            found.append((classes[int(c)], classes[nearest]))
    return tuple(found)


def _head_changes(parts: Sequence[Part], recipe: Recipe) -> list[float]:
    """The share of draws from the total whose prediction changes when a site is subtracted."""
    total = Moments.zeros(parts[0].moments.layout)
    for part in parts:
        total = total + part.moments
    whole = _gaussians(total)
    drawn = draw(whole, max(1, DRAWS // whole.present), np.random.default_rng(0), dispersion=1.0, by_prior=True)
    z, changes = drawn.z.astype(np.float64), []
    before = fit_lda(whole).predict(z)
    for part in parts:
        rest = total - part.moments
        changes.append(1.0 if not rest.rows else float(np.mean(fit_lda(_gaussians(rest)).predict(z) != before)))
    return changes


def _gaussians(moments: Moments) -> Gaussians:
    gaussians = Gaussians.estimate(moments)
    return gaussians if gaussians.has_shared_covariance else gaussians.diagonal()


def _flags(site: SiteDiagnosis, is_outlier: bool, is_wide: bool) -> tuple[str, ...]:
    """The reasons to look at a site, in words."""
    out = []
    if site.repeats > 1:
        out.append(f"all its counts and sums are multiples of {site.repeats}: its rows seem counted that many times")
    if is_outlier and site.looks_like:
        pairs = ", ".join(f"its {a!r} is the others' {b!r}" for a, b in site.looks_like)
        out.append(f"labels seem to be swapped: {pairs}")
    elif is_outlier:
        what, score = ("labels", site.labels) if site.labels >= site.features else ("features", site.features)
        out.append(f"its class means are {score:.1f} times further from the others' than its rows explain ({what})")
    if is_wide and site.width is not None:
        out.append(f"its rows vary {site.width:.2g} times as much within classes as those of the median site")
    if is_outlier and site.clipped is not None and site.clipped > TOLERATED_CLIPPING:
        out.append(f"{site.clipped:.1%} of its entries fell outside the grid")
    return tuple(out)
