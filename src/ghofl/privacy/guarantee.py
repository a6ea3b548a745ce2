"""What noise promises: the exact (ε, δ) of Gaussian noise, in both directions, and the record that carries it.

For noise of standard deviation σ on something of sensitivity Δ, exactly (Balle & Wang 2018, Thm 8)::

    δ(ε) = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)

Only μ = Δ/σ matters ("μ-Gaussian differential privacy", Dong, Roth & Su 2022). Blocks with their own σ_b together have
μ² = Σ_b Δ_b²/σ_b², and the μ² of several releases add up too. `lattice` proves that the same holds for integers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import exp, expm1, isclose, isfinite, log, sqrt
from typing import Any

import scipy

from ghofl.privacy.bounds import NEIGHBOURS, UNITS
from ghofl.privacy.errors import CompositionError, PrivacyError

MECHANISMS = ("central", "distributed", "local")
SAFETY = 1e-9  # results are raised by this share, which exceeds the errors of root finding, lattice and sampler


def delta_of(epsilon: float, sigma: float, sensitivity: float = 1.0) -> float:
    """The smallest δ for which Gaussian noise of σ is (`epsilon`, δ)-private.

    >>> round(delta_of(1.0, sigma=3.7306), 8)
    1e-05
    """
    mu = sensitivity / sigma
    upper, lower = (float(scipy.special.log_ndtr(m / 2 - epsilon / mu)) for m in (mu, -mu))
    # Φ(a) − e^ε Φ(b) written as a product keeps its digits where both terms are small.
    return max(0.0, -exp(upper) * expm1(min(0.0, epsilon + lower - upper)))


def sigma_for(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest standard deviation that makes a release of this sensitivity (ε, δ)-private.

    It is exact for every ε, unlike the textbook √(2 ln 1.25/δ)·Δ/ε, which is larger and wrong above ε = 1.

    Guarantees
    ----------
    ``delta_of(epsilon, sigma_for(epsilon, delta, s), s) <= delta``, and a σ smaller by 10⁻⁸ of itself is not enough.

    Examples
    --------
    >>> round(sigma_for(epsilon=1.0, delta=1e-5), 4)
    3.7306
    """
    _check_budget(epsilon, delta)
    _check_sensitivity(sensitivity)
    # Bun & Steinke 2016, Prop. 1.3: ε = μ²/2 + μ√(2 ln 1/δ) is always reached, so the exact σ is below that one.
    root = sqrt(2 * log(1 / delta))
    enough = 2 / (sqrt(root * root + 2 * epsilon) - root) if epsilon > 0 else 1e9
    return (
        sensitivity * _smallest(lambda sigma: delta_of(epsilon, sigma) <= delta, 0.0, max(enough, 1e-3)) * (1 + SAFETY)
    )


def epsilon_of(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """The smallest ε for which Gaussian noise of σ is (ε, `delta`)-private.

    Guarantees
    ----------
    ``delta_of(epsilon_of(sigma, delta, s), sigma, s) <= delta``. It is 0 when the noise hides everything.

    Examples
    --------
    >>> round(epsilon_of(sigma=3.7306, delta=1e-5), 4)
    1.0
    """
    _check_budget(1.0, delta)
    _check_sensitivity(sensitivity)
    mu = sensitivity / sigma
    if delta_of(0.0, 1 / mu) <= delta:
        return 0.0
    above = mu * mu / 2 + mu * sqrt(2 * log(1 / delta))  # by Bun & Steinke 2016 again
    return _smallest(lambda epsilon: delta_of(epsilon, 1 / mu) <= delta, 0.0, above) * (1 + SAFETY)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A promise of differential privacy that travels with what it is about.

    `mu` is the Gaussian parameter behind (ε, δ), which composition needs. `sigmas` are the discrete parameters by
    block of the noise in the smallest total that keeps the promise; in symmetric blocks, that of the diagonal.

    Guarantees
    ----------
    A guarantee is always consistent: where its (ε, δ) does not follow from `mu`, `PrivacyError` is raised.

    Examples
    --------
    >>> promise = Guarantee(1.0, 1e-5, mu=1 / 3.7307, sigmas={"N": 3.7307}, unit="record",
    ...                     mechanism="central", assumptions=("Rows were clipped.",))
    >>> print(promise)
    (ε = 1, δ = 1e-05)-differential privacy of one record (add-remove), by central noise in 1 release.
    Noise: N σ = 3.731. Cohort: at least 1.
    It rests on this:
    - Rows were clipped.
    >>> Guarantee.from_dict(promise.to_dict()) == promise
    True
    """

    epsilon: float
    delta: float
    mu: float
    sigmas: Mapping[str, float]
    unit: str
    mechanism: str
    assumptions: tuple[str, ...] = ()
    min_cohort: int = 1
    releases: int = 1

    def __post_init__(self) -> None:
        _check_budget(self.epsilon, self.delta)
        _check_words(self)
        if not (isfinite(self.mu) and self.mu > 0 and delta_of(self.epsilon, 1 / self.mu) <= self.delta * (1 + 1e-6)):
            raise PrivacyError(
                f"a guarantee of epsilon = {self.epsilon} and delta = {self.delta} does not follow from mu = "
                f"{self.mu}; noise for it has mu = {1 / sigma_for(self.epsilon, self.delta):.6g} or less."
            )

    def agrees_with(self, other: "Guarantee") -> bool:
        """Whether both promise the same; numbers may differ by a factor of 1 ± 10⁻⁶, as between two platforms."""
        ours, theirs = self._numbers(), other._numbers()
        same_words = all(getattr(self, f) == getattr(other, f) for f in ("unit", "mechanism", "min_cohort"))
        is_close = ours.keys() == theirs.keys() and all(isclose(ours[k], theirs[k], rel_tol=1e-6) for k in ours)
        return same_words and is_close and self.releases == other.releases

    def _numbers(self) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu, **self.sigmas}

    def to_dict(self) -> dict[str, Any]:
        """The guarantee as plain values."""
        return asdict(self) | {"sigmas": dict(self.sigmas), "assumptions": list(self.assumptions)}

    @classmethod
    def from_dict(cls, values: Any) -> "Guarantee":
        """A guarantee from plain values, which may come from anyone; wrong keys or types raise."""
        known = {f.name for f in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != known:
            wrong = sorted(map(str, set(values) ^ known)) if isinstance(values, Mapping) else [type(values).__name__]
            raise PrivacyError(f"a guarantee has the keys {', '.join(sorted(known))}; unknown or missing: {wrong[:5]}.")
        for name, is_right in _RIGHT.items():
            if not is_right(values[name]):
                raise PrivacyError(f"{name} of a guarantee is {str(values[name])[:40]!r}, which has another type.")
        return cls(**{**values, "sigmas": dict(values["sigmas"]), "assumptions": tuple(values["assumptions"])})

    def __str__(self) -> str:
        noise = ", ".join(f"{name} σ = {sigma:.4g}" for name, sigma in self.sigmas.items())
        releases = f"{self.releases} release{'s' if self.releases > 1 else ''}"
        return "\n".join(
            [
                f"(ε = {self.epsilon:.4g}, δ = {self.delta:.4g})-differential privacy of one {self.unit} "
                f"({NEIGHBOURS}), by {self.mechanism} noise in {releases}.",
                f"Noise: {noise}. Cohort: at least {self.min_cohort}.",
                "It rests on this:",
                *(f"- {assumption}" for assumption in self.assumptions),
            ]
        )


def _is_number(value: Any) -> bool:
    """Whether a value is a number that can be divided by: of ordinary size, and above zero."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-300 < value < 1e300


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


_RIGHT: dict[str, Callable[[Any], bool]] = {
    "epsilon": lambda value: value == 0 or _is_number(value),
    "delta": _is_number,
    "mu": _is_number,
    "sigmas": lambda value: (
        isinstance(value, Mapping) and all(isinstance(k, str) and _is_number(v) for k, v in value.items())
    ),
    "unit": lambda value: isinstance(value, str),
    "mechanism": lambda value: isinstance(value, str),
    "assumptions": _is_texts,
    "min_cohort": lambda value: type(value) is int,
    "releases": lambda value: type(value) is int,
}


def compose(guarantees: Sequence[Guarantee], delta: float | None = None) -> Guarantee:
    """The guarantee of several releases about the same records, even if each was chosen after seeing the ones before.

    μ² = Σ μ_i² (Dong, Roth & Su 2022): for one total released twice, 1/σ² adds up. ε is taken at `delta`,
    the largest δ among them unless given.

    Examples
    --------
    >>> once = Guarantee(1.0, 1e-5, 1 / 3.7307, {"N": 3.7307}, "record", "central")
    >>> round(compose([once, once]).epsilon, 3)
    1.465
    """
    if not guarantees:
        raise CompositionError("there are no guarantees to compose; give at least one.")
    if len(units := sorted({g.unit for g in guarantees})) > 1:
        raise CompositionError(
            f"guarantees about different units ({' and '.join(units)}) do not add up to one; state each by itself."
        )
    mu = sqrt(sum(g.mu**2 for g in guarantees))
    delta = max(g.delta for g in guarantees) if delta is None else delta
    mechanisms = [m for m in MECHANISMS if any(m in g.mechanism.split("+") for g in guarantees)]
    return Guarantee(
        epsilon=epsilon_of(1 / mu, delta),
        delta=delta,
        mu=mu,
        sigmas=_compose_sigmas([g.sigmas for g in guarantees]),
        unit=guarantees[0].unit,
        mechanism="+".join(mechanisms),
        assumptions=tuple(dict.fromkeys(a for g in guarantees for a in g.assumptions)),
        min_cohort=max(g.min_cohort for g in guarantees),
        releases=sum(g.releases for g in guarantees),
    )


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest number for which a claim holds; it must be false at `low` and true from some number below `high` on."""
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _compose_sigmas(sigmas: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The noise of each block that remains for someone who averages the releases: the 1/σ² add up."""
    names = dict.fromkeys(name for each in sigmas for name in each)
    return {name: 1 / sqrt(sum(each[name] ** -2 for each in sigmas if name in each)) for name in names}


def _check_budget(epsilon: float, delta: float) -> None:
    if not (isfinite(epsilon) and epsilon >= 0):
        raise PrivacyError(f"epsilon is {epsilon}; write a positive number, for instance 1.")
    if not 0 < delta < 1:
        raise PrivacyError(f"delta is {delta}; write a number above 0, well below 1 over the number of rows.")


def _check_sensitivity(sensitivity: float) -> None:
    if not (isfinite(sensitivity) and sensitivity > 0):
        raise PrivacyError(f"sensitivity is {sensitivity}; give a positive number, as privacy.sensitivity returns it.")


def _check_words(guarantee: Guarantee) -> None:
    words = (("unit", UNITS), ("mechanism", MECHANISMS))
    for what, known in words:
        given = getattr(guarantee, what)
        if not set(given.split("+")) <= set(known):
            raise PrivacyError(f"{what} is {given!r}; write one of {', '.join(map(repr, known))}.")
    for what in ("min_cohort", "releases"):
        if getattr(guarantee, what) < 1:
            raise PrivacyError(f"{what} is {getattr(guarantee, what)}; give 1 or more.")
