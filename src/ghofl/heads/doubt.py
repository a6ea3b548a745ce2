"""How much to doubt scores that draws cannot judge: those of class covariances, and those that are standardised.

Draws of one covariance fit a head of class covariances better than real rows do, so in many dimensions its T is that of LDA
times a ratio: how much further apart its log odds are than LDA's where classes vary as measured. The constants were chosen
on held-out training rows of CIFAR-10, CIFAR-100, five sets of texts and the wide ones of the 52 sets of `ghofl.heads.hedge`.
"""

import numpy as np

from ghofl.gaussians import Gaussians, draw, linalg
from ghofl.gaussians.covariances import Mixed
from ghofl.heads.dispersion import wideness
from ghofl.heads.rules import Rule
from ghofl.shapes import Float

DOUBT = 1.5  # the least ratio from four classes and 512 dimensions on; less where only a sketch has class covariances
FURTHEST = 6.0  # the largest ratio: where LDA knows nothing, it says nothing
SOME, ROWS = 8, 128  # classes and rows that show the ratio
JITTER = 1e-8  # shrinkage that lets the covariance of a sketch be inverted
LEAST = 0.3  # T of standardised scores: draws of many classes are all told apart, and T would go to 0


def least_temperature(gaussians: Gaussians) -> float:
    """The least T of standardised scores: none up to 128 dimensions, and less where rows are fewer than dimensions."""
    dim = gaussians.means.shape[1]
    return LEAST * wideness(dim) * min(1.0, gaussians.rows / dim)


def doubt(rule: Rule, linear: Rule, gaussians: Gaussians) -> float:
    """By how much T of a rule with class covariances is larger than that of LDA."""
    dim = gaussians.means.shape[1]
    seen = dim if gaussians.has_class_covariances else gaussians.sketched().gaussians.means.shape[1]
    least = DOUBT ** (wideness(dim) * min(1.0, np.log2(gaussians.present) - 1.0) * np.sqrt(seen / dim))
    if not wideness(dim):
        return float(least)
    rows = _varied_draws(gaussians)
    ratio = min(_apartness(rule, rows, gaussians) / _apartness(linear, rows, gaussians), FURTHEST)
    share = min(1.0, 2.0 * wideness(dim)) * gaussians.rows / (gaussians.rows + dim)
    return float(max(least, ratio**share))


def _apartness(rule: Rule, rows: Float[np.ndarray, "n dim"], gaussians: Gaussians) -> float:
    """The deviation of a rule's log odds over the classes, without priors, as a mean over rows."""
    present = gaussians.counts > 0
    found = (rule.scores(rows)[:, present] - gaussians.log_priors[present]).std(axis=1).mean()
    return max(float(found), np.finfo(float).tiny)


def _varied_draws(gaussians: Gaussians) -> Float[np.ndarray, "n dim"]:
    """Rows of a few classes, each of which varies as its own covariance says, as far as its rows show that.

    Where only a sketch has class covariances, the sketch of these rows varies so, and the rest as it follows from the
    sketch under the shared covariance.
    """
    present = np.flatnonzero(gaussians.counts)
    some = present[np.linspace(0, len(present) - 1, min(SOME, len(present))).astype(int)]

    def rows(known: Gaussians) -> Float[np.ndarray, "n k"]:
        return np.concatenate([_rows_of_class(known, int(c), ROWS // len(some)) for c in some])

    drawn = rows(gaussians)
    if gaussians.has_class_covariances:
        return drawn
    sketch = gaussians.sketched()
    across = np.linalg.solve(linalg.shrink(sketch.gaussians.pooled(), JITTER), sketch.matrix.T @ gaussians.pooled())
    return drawn + (rows(sketch.gaussians) - drawn @ sketch.matrix) @ across


def _rows_of_class(known: Gaussians, c: int, rows: int) -> Float[np.ndarray, "n k"]:
    """Draws of one class; its covariance has the share n_c/(n_c + d), and the shared one the rest."""
    alone = np.where(np.arange(len(known.counts)) == c, known.counts, 0.0)
    dim, inside = known.means.shape[1], known.covariances
    own = None if inside is None else Mixed(inside, known.pooled(), dim / (known.counts[c] + dim))
    return draw(
        Gaussians(alone, known.means, known.shared, None, own), rows, np.random.default_rng(c), 1.0, 0.01
    ).z.astype(np.float64)
