"""A head for a site that has only unlabelled rows, and knows how common classes are among them: an experiment.

Rows of the site are taken to be those of the total, shifted and scaled feature by feature. With mix π', class means μ_c and
variances of the total::

    m = Σ π'_c μ_c      v = Σ π'_c (var_c + (μ_c − m)²)      s = √(v_site / v)
    μ'_c = m_site + s (μ_c − m)      Σ' = diag(s) Σ diag(s)      priors π'

m_site and v_site are those of the site's rows, with a few pseudo-rows of the total. The mix is stated and never guessed: with
another mix than the true one alignment can do harm, and unlabelled rows do not tell which it is.
"""

from dataclasses import dataclass, replace

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import EmbeddingsError, HeadError, MissingStatisticError
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.gaussians.covariances import ClassCovariances
from ghofl.gaussians.gaussians import Sketched
from ghofl.heads.spec import HeadSpec
from ghofl.shapes import Float, Num
from ghofl.statistics.triangles import apply
from ghofl.wire.total import Total

PSEUDO_ROWS = 20.0


@dataclass(frozen=True, eq=False)
class Scaled(ClassCovariances):
    """Class covariances of features that are each multiplied by a number."""

    source: ClassCovariances
    scale: Float[np.ndarray, " dim"]

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        return self.source.matrix(c) * np.outer(self.scale, self.scale)

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        scale = self.scale[:, None].astype(columns.dtype)
        return scale * self.source.times(c, scale * columns)


def aligned_head(
    total: Total, spec: HeadSpec, x: Num[np.ndarray, "n dim"], mix: Float[np.ndarray, " classes"]
) -> Classifier:
    """The head of a total, aligned with unlabelled rows in which classes have the shares of the mix."""
    if not len(x):
        raise EmbeddingsError("no rows came, and a head is aligned with at least one; give rows of this site.")
    values = Features.of(total.recipe).values(x)
    shares = np.where(total.moments.counts > 0, mix, 0.0)
    if not shares.sum() > 0:
        raise HeadError(f"the mix {mix} is 0 for every class that has rows in the total; give one of them more.")
    shares = shares / shares.sum()
    found = Classifier.fit(total, spec, adapt=lambda whole: align(whole, values, shares)).with_priors(shares.tolist())
    return replace(found, guarantee=None, personal=f"aligned with {len(x):,} unlabelled rows")


def align(whole: Gaussians, rows: Float[np.ndarray, "n features"], mix: Float[np.ndarray, " classes"]) -> Gaussians:
    """The Gaussians of the total as the site sees them, by the mean and variance of its rows."""
    if not whole.has_shared_covariance and whole.own_variances is None:
        raise MissingStatisticError(
            f"alignment needs to know how rows of a class vary, which moments of {len(whole.counts)} classes do not hold; a "
            "recipe with statistics = ['B'] or ['D'] has it, and sites must send again."
        )
    centre = mix @ whole.means
    own = (
        np.broadcast_to(whole.pooled_variances(), whole.means.shape)
        if whole.own_variances is None
        else whole.own_variances
    )
    spread = mix @ (own + np.square(whole.means - centre))
    weight = len(rows) / (len(rows) + PSEUDO_ROWS)
    mean = weight * rows.mean(axis=0) + (1.0 - weight) * centre
    measured = weight * rows.var(axis=0) + (1.0 - weight) * spread
    scale = np.sqrt(np.where((spread > 0) & (measured > 0), measured / np.where(spread > 0, spread, 1.0), 1.0))
    return Gaussians(
        whole.counts,
        mean + scale * (whole.means - centre),
        None if whole.shared is None else whole.shared * np.outer(scale, scale),
        None if whole.own_variances is None else whole.own_variances * np.square(scale),
        None if whole.covariances is None else Scaled(whole.covariances, scale),
        None if whole.sketch is None else _align_sketch(whole.sketch, rows, mix),
        whole.rows_differ,
        whole.smooth,
    )


def _align_sketch(
    seen: Sketched, rows: Float[np.ndarray, "n features"], mix: Float[np.ndarray, " classes"]
) -> Sketched:
    return Sketched(seen.matrix, lambda: align(seen.gaussians, apply(rows, seen.matrix), mix))
