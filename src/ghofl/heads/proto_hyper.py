"""Proto-Hyper: a low-rank correction of a Gaussian head, distilled on samples drawn in the Fisher space."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from ghofl.errors import HeadError
from ghofl.gaussians import METHODS, Draws, Gaussians, draw
from ghofl.gaussians.fisher import SHRINKAGE
from ghofl.heads import training
from ghofl.heads.head import Head
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.heads.naive_bayes import NaiveBayesOptions, fit_naive_bayes
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import QDAOptions, fit_qda
from ghofl.heads.rules import Factored, Mapped, Rule, Summed
from ghofl.shapes import Float, Int64

BASES = ("nb", "lda", "qda")


@dataclass(frozen=True)
class ProtoHyperOptions(HeadOptions, head="proto_hyper"):
    """The base and what corrects it, the teacher, and (as for `FisherMix`) draws and training."""

    base: str = option("lda", "the Gaussian head to correct", choices=BASES, paper="nb")
    rank: int = option(64, "r, the rank of the correction", between=(0, inf), paper=16)
    teacher: float = option(0.0, "q, the share of QDA in the teacher, where S is there", between=(0, 1), paper=0.3)
    temperature: float = option(4.0, "T, what teacher and head are divided by", above=0, paper=4.0)
    alpha: float = option(0.2, "α, the weight of the teacher against the labels", between=(0, 1), paper=0.4)
    per_class: int = option(
        0, "draws per class; 0 for 1,000, and 20,000 in all at least", between=(0, 10**6), paper=4000
    )
    dispersion: float = option(1.3, "τ, how much wider than measured rows are drawn", above=0, paper=0.9)
    extra: int | None = option(
        None, "directions beside those of Fisher", between=(0, inf), auto="three per class, 128 at most", paper=0
    )
    steps: int | None = option(
        None, "steps at a rate that falls to zero", between=(0, inf), auto="300 with S, none without it"
    )
    epochs: float = option(0, "passes at a constant rate, instead of steps", between=(0, inf), paper=40)
    batch: int = option(1024, "rows per step", between=(1, inf), paper=1024)
    learning_rate: float = option(3e-3, "η of AdamW", between=(0, inf), paper=1e-3)
    weight_decay: float = option(5e-4, "λ of AdamW", between=(0, inf), paper=5e-4)
    method: str = option("matched", "how rows are drawn", choices=METHODS, paper="plain")
    energy: float = option(1.0, "the share of Fisher's ratios to keep", above=0, between=(0, 1), paper=1.0)
    seed: int = option(0, "what draws and batches follow from", between=(0, inf))


def fit_proto_hyper(gaussians: Gaussians, options: ProtoHyperOptions = ProtoHyperOptions()) -> Mapped:
    """A Gaussian base in the Fisher space plus a residual of rank r, trained on labels and a teacher.

    ::

        s(z) = base(z) + z U₁ V₂      z = Vᵀ(x − m),  U₁ k × r,  V₂ r × C
        loss = α T² KL(softmax(t/T) ‖ softmax(s/T)) + (1 − α) CE(softmax(s), y)      t = (1 − q) LDA(z) + q QDA(z)

    The teacher blends LDA and QDA by q; without S it is LDA. The preset ``paper`` has the released settings. With B
    alone no head is better than the base on draws of one covariance, so by default no step is taken.

    Guarantees
    ----------
    V₂ starts at zero, so training starts at the base. A function of the total and `seed`.
    """
    rng, gaussians = np.random.default_rng(options.seed), training.with_covariances(gaussians)
    basis = training.basis_for(gaussians, options.energy, options.extra)
    amount = gaussians.ease_shrinkage(SHRINKAGE)
    inside = gaussians.shifted(gaussians.centre).shrunk(amount).mapped(basis, np.float32)
    base = _base(inside, options.base)
    per_class = options.per_class or training.default_draws(gaussians)
    drawn = draw(inside, per_class, rng, options.dispersion, shrinkage=0.0, method=options.method)
    start = _start(inside, options.rank, rng)
    loss = _Distillation.of(drawn, base, inside, options)
    optimiser = training.AdamW(options.learning_rate, options.weight_decay, falls=not options.epochs)
    steps = training.count_steps(options.steps, options.epochs, len(drawn.y), options.batch, gaussians)
    u, v = optimiser.minimise(start, loss.gradients, len(drawn.y), options.batch, steps, rng)
    learned = Factored(u.astype(np.float64), v.astype(np.float64))
    return Mapped(basis, Summed((("", learned), (options.base, base))), gaussians.centre @ basis)


# The correction is trained on equal classes, whatever priors the base has.
HEAD = Head(ProtoHyperOptions, fit_proto_hyper, needs=(("S",), ("B",), ("D",)), log_posteriors=False)


@dataclass(frozen=True, eq=False)
class _Distillation:
    """The loss's gradients in U₁ and V₂: softmax errors against teacher and labels, pulled back through z U₁ V₂.

    `taught` holds α T softmax(t/T).
    """

    z: Float[np.ndarray, "n k"]
    y: Int64[np.ndarray, " n"]
    base: Float[np.ndarray, "n classes"]
    taught: Float[np.ndarray, "n classes"]
    temperature: float
    alpha: float

    @classmethod
    def of(cls, drawn: Draws, base: Rule, inside: Gaussians, options: ProtoHyperOptions) -> "_Distillation":
        t, alpha = options.temperature, options.alpha
        taught = training.softmax(_teacher_scores(inside, drawn, options.teacher) / np.float32(t), alpha * t)
        return cls(drawn.z, drawn.y, _finite_scores(base, drawn), taught, t, alpha)

    def gradients(self, parameters: Sequence[np.ndarray], rows: slice) -> list[np.ndarray]:
        u, v = parameters
        z = self.z[rows]
        hidden = z @ u
        scores = hidden @ v
        scores += self.base[rows]
        t, alpha = self.temperature, self.alpha
        error = training.softmax(scores * (1.0 / t), alpha * t)
        error -= self.taught[rows]
        labelled = training.softmax(scores, 1.0 - alpha)
        training.subtract_labels(labelled, self.y[rows], 1.0 - alpha)
        error += labelled
        return [z.T @ (error @ v.T) / len(z), hidden.T @ error / len(z)]


def _base(inside: Gaussians, name: str) -> Rule:
    if name == "nb":
        variances = np.stack([inside.finest(c).diagonal() for c in range(len(inside.means))])
        return fit_naive_bayes(replace(inside, own_variances=variances), NaiveBayesOptions(shrinkage=0.0))
    if name == "qda" and not inside.has_class_covariances:
        raise HeadError("base 'qda' needs class covariances (statistics = ['S']); write base=lda.")
    return fit_lda(inside, LDAOptions(0.0)) if name == "lda" else fit_qda(inside, QDAOptions(0.0))


def _start(inside: Gaussians, rank: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Small uniform U₁ and V₂ of zeros."""
    classes, k = inside.means.shape
    rank, limit = min(rank, classes, k), 1.0 / np.sqrt(k)
    return [
        rng.uniform(-limit, limit, size=(k, rank)).astype(np.float32),
        np.zeros((rank, classes), dtype=np.float32),
    ]


def _finite_scores(rule: Rule, drawn: Draws) -> Float[np.ndarray, "n classes"]:
    """Scores of the draws in float32; a class without rows keeps a very low score instead of −∞."""
    single = type(rule)(**{name: array.astype(np.float32) for name, array in rule.arrays().items()})
    return np.maximum(single.scores(drawn.z), np.float32(-1e4)).astype(np.float32)


def _teacher_scores(inside: Gaussians, drawn: Draws, share: float) -> Float[np.ndarray, "n classes"]:
    linear = _finite_scores(fit_lda(inside, LDAOptions(0.0)), drawn)
    if share == 0 or not inside.has_class_covariances:
        return linear
    quadratic = _finite_scores(fit_qda(inside, QDAOptions(0.0)), drawn)
    return np.float32(1.0 - share) * linear + np.float32(share) * quadratic
