"""Proto-Hyper: a low-rank correction of a Gaussian head, distilled on samples drawn in the Fisher space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from ghofl.errors import HeadError
from ghofl.fisher import SHRINKAGE, Fisher
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, checked_arrays, prefixed, with_prefix
from ghofl.heads.fisher_mix import Move, default_steps, enough_draws, informed, widened
from ghofl.heads.lda import LDA
from ghofl.heads.naive_bayes import NaiveBayes
from ghofl.heads.quadratic import QDA
from ghofl.optim import AdamW, Array, minus_labels, on_cpu, softmax, steps_for
from ghofl.synthesis import Draws, draw

BASES: dict[str, type[Head]] = {"nb": NaiveBayes, "lda": LDA, "qda": QDA}


@dataclass(frozen=True, eq=False)
class ProtoHyper(Head):
    """A Gaussian base in the Fisher space plus a residual of rank r, trained to please labels and a teacher.

    ::

        s(z) = base(z) + z U₁ V₂      z = Vᵀ(x − m),  U₁ k × r,  V₂ r × C
        loss = α T² KL(softmax(t/T) ‖ softmax(s/T)) + (1 − α) CE(softmax(s), y)      t = (1 − q) LDA(z) + q QDA(z)

    The teacher blends LDA and QDA by q; without S it is LDA. The preset ``paper`` has the released settings. With B
    alone the base is the best there is for draws of one covariance, and by default no step is taken.

    Guarantees
    ----------
    V₂ starts at zero, so training starts at the base. A function of the total and `seed`.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("S",))))
    >>> ProtoHyper.fit(gaussians, steps=50).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name: ClassVar[str] = "proto_hyper"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("S",), ("B",), ("D",))
    basis: Float[np.ndarray, "dim k"]
    shift: Float[np.ndarray, " k"]
    inward: Float[np.ndarray, "k rank"]
    outward: Float[np.ndarray, "rank classes"]
    base: Head

    @classmethod
    def fit(
        cls,
        gaussians: Gaussians,
        base: str = "lda",
        rank: int = 64,
        teacher: float = 0.0,
        temperature: float = 4.0,
        alpha: float = 0.2,
        per_class: int = 0,
        dispersion: float = 1.3,
        extra: int | None = None,
        steps: int | None = None,
        epochs: float = 0,
        batch: int = 1024,
        learning_rate: float = 3e-3,
        weight_decay: float = 5e-4,
        method: str = "matched",
        energy: float = 1.0,
        seed: int = 0,
        move: Move = np.asarray,
    ) -> "ProtoHyper":
        """The head of these Gaussians; `teacher` is q, the share of QDA in the teacher.

        `per_class`, `extra`, `steps` and `epochs` are as in `FisherMix.fit`.
        """
        if not temperature > 0:
            raise HeadError(f"temperature is {temperature}; it is above 0: what teacher and head are divided by.")
        rng = np.random.default_rng(seed)
        gaussians = informed(gaussians)
        basis = widened(gaussians, Fisher.of_energy(gaussians, energy, at_most=128).basis, extra)
        inside = gaussians.shifted(gaussians.centre).shrunk(SHRINKAGE).mapped(basis, np.float32)
        kept = _base(inside, base)
        drawn = draw(inside, per_class or enough_draws(gaussians), rng, dispersion, shrinkage=0.0, method=method)
        limit = 1.0 / np.sqrt(basis.shape[1])
        inward = rng.uniform(-limit, limit, size=(basis.shape[1], min(rank, *inside.means.shape))).astype(np.float32)
        start = [inward, np.zeros((inward.shape[1], len(inside.means)), dtype=np.float32)]
        distilled = _Distilled.of(
            drawn, _finite(kept, drawn), _taught(inside, drawn, teacher), temperature, alpha, move
        )
        usual = default_steps(steps, 300, gaussians.has_class_covariances)
        count = steps_for(epochs, len(drawn.y), batch) if epochs else usual
        optimiser = AdamW(learning_rate, weight_decay, falls=not epochs)
        found = optimiser.minimise([move(s) for s in start], distilled.gradients, len(drawn.y), batch, count, rng)
        u, v = (on_cpu(p).astype(np.float64) for p in found)
        return cls(basis, gaussians.centre @ basis, u, v, kept)

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The base's log posteriors plus the learned correction."""
        z = x @ self.basis - self.shift
        return self.base.scores(z) + (z @ self.inward) @ self.outward

    def arrays(self) -> dict[str, np.ndarray]:
        """The head as named arrays, those of its base under the base's name."""
        own = {name: np.ascontiguousarray(getattr(self, name)) for name in ("basis", "shift", "inward", "outward")}
        return own | with_prefix(self.base.name, self.base.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> "ProtoHyper":
        """The head that `arrays` came from."""
        parts = prefixed(arrays)
        own, sizes = checked_arrays(cls, parts.pop("", {}), axes, left_out=("base",))
        (name, of_base), *_ = [*parts.items(), ("", {})]
        if len(parts) != 1 or name not in BASES:
            raise HeadError(f"a proto_hyper head has one base of {', '.join(BASES)}, not {sorted(parts)}")
        base = BASES[name].from_arrays(of_base, {"classes": axes["classes"], "dim": sizes["k"]})
        return cls(**own, base=base)


@dataclass(frozen=True, eq=False)
class _Distilled:
    """The loss's gradients in U₁ and V₂: softmax errors against teacher and labels, pulled back through z U₁ V₂.

    `taught` holds α T softmax(t/T).
    """

    z: Array
    y: Array
    base: Array
    taught: Array
    temperature: float
    alpha: float

    @classmethod
    def of(
        cls, drawn: Draws, base: np.ndarray, teacher: np.ndarray, temperature: float, alpha: float, move: Move
    ) -> "_Distilled":
        taught = softmax(teacher / np.float32(temperature), alpha * temperature)
        return cls(move(drawn.z), move(drawn.y), move(base), move(taught), temperature, alpha)

    def gradients(self, parameters: Sequence[Array], rows: slice) -> list[Any]:
        u, v = parameters
        z = self.z[rows, :]
        hidden = z @ u
        scores = hidden @ v
        scores += self.base[rows, :]
        t, alpha = self.temperature, self.alpha
        error = softmax(scores * (1.0 / t), alpha * t)
        error -= self.taught[rows, :]
        error += minus_labels(softmax(scores, 1.0 - alpha), self.y[rows], 1.0 - alpha)
        return [z.T @ (error @ v.T) / z.shape[0], hidden.T @ error / z.shape[0]]


def _base(inside: Gaussians, name: str) -> Head:
    if name not in BASES:
        raise HeadError(f"base is {name!r}; write one of {', '.join(BASES)}.")
    if name == "nb":
        return NaiveBayes.fit(_with_variances(inside))
    if name == "qda" and not inside.has_class_covariances:
        raise HeadError("base 'qda' needs class covariances (statistics = ['S']); write base=lda.")
    return LDA.fit(inside, 0.0) if name == "lda" else QDA.fit(inside, 0.0)


def _with_variances(inside: Gaussians) -> Gaussians:
    if not inside.has_class_covariances:
        return replace(inside, _variances=np.tile(inside.pooled().diagonal(), (len(inside.means), 1)))
    return replace(inside, _variances=np.stack([inside.by_class(c).diagonal() for c in range(len(inside.means))]))


def _finite(head: Head, drawn: Draws) -> np.ndarray:
    """Scores of the draws in float32; a class nobody has keeps a very low score instead of −∞."""
    single = type(head)(**{name: array.astype(np.float32) for name, array in head.arrays().items()})
    return np.maximum(single.scores(drawn.z), np.float32(-1e4)).astype(np.float32)


def _taught(inside: Gaussians, drawn: Draws, share: float) -> np.ndarray:
    linear = _finite(LDA.fit(inside, 0.0), drawn)
    if share == 0 or not inside.has_class_covariances:
        return linear
    return np.float32(1.0 - share) * linear + np.float32(share) * _finite(QDA.fit(inside, 0.0), drawn)
