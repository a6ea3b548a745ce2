"""How much noise each block of the moments gets, and the function that adds it.

One budget covers all blocks. Giving block b a public share p_b of it, with Σ p_b = 1, means scales w_b = Δ_b/√p_b in
`bounds`, where a record then moves the whole vector by 1, and noise of::

    σ_b = z · Δ_b / √p_b          z = sigma_for(ε, δ, 1)          μ² = Σ_b Δ_b²/σ_b² = 1/z²

whatever the radius. (One σ for all entries would be the share p_b ∝ Δ_b²: on a grid with R = 100 the counts would get
10⁻⁸ of the budget.) In a symmetric matrix the diagonal gets σ_b and the rest σ_b/√2, because a record's change is
measured by ‖x xᵀ‖_F: the noise is a matrix of the Gaussian orthogonal ensemble, the same in every direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ghofl.errors import LayoutError
from ghofl.moments import Layout, Moments
from ghofl.privacy import lattice
from ghofl.privacy.bounds import Sensitivity, record_bounds, sensitivity
from ghofl.privacy.errors import PrivacyError
from ghofl.privacy.guarantee import Guarantee, sigma_for
from ghofl.privacy.noise import LARGEST_SIGMA, NoiseStream, discrete_gaussian, reach
from ghofl.recipe import Privacy
from ghofl.shapes import Int64
from ghofl.statistics import Statistic
from ghofl.statistics.triangles import diagonal


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """The noise of one release, block by block, and what it promises.

    `multiplier` is σ over the sensitivity, `scales` are the public w_b, `shifts` the rounding of messages by block.
    Central noise is added to the total; a share of distributed noise, or all of the local noise, to each message.

    Guarantees
    ----------
    Moments of clipped rows, plus noise of this plan, keep `guarantee`.

    Examples
    --------
    >>> privacy = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)
    >>> plan = noise_plan(Layout(classes=10, dim=64), radius=100, privacy=privacy)
    >>> {name: round(sigma) for name, sigma in plan.sigmas.items()}
    {'N': 12, 'A': 482, 'B': 68112}
    >>> plan.sensitivity.unit, plan.guarantee.epsilon
    ('record', 1.0)
    """

    layout: Layout
    radius: int
    epsilon: float
    delta: float
    multiplier: float
    sensitivity: Sensitivity
    scales: Mapping[str, float]
    shifts: Mapping[str, int]
    mechanism: str
    min_cohort: int
    client_rows: int | None = None
    person_rows: int | None = None

    @property
    def sigmas(self) -> dict[str, float]:
        """The standard deviation that the promise needs, by block: of the diagonal in a symmetric one."""
        size = self.multiplier * self.sensitivity.value
        return {name: size * scale / 2 ** self.shifts.get(name, 0) for name, scale in self.scales.items()}

    @property
    def limit(self) -> float | None:
        """The length to which `clip_vector` cuts a client's moments (with these scales), or None for other units."""
        if self.sensitivity.unit != "client":
            return None
        return self.sensitivity.value

    def parameter(self, name: str, off_diagonal: bool = False) -> float:
        """The parameter of the discrete Gaussian that one call of `add_noise` draws for the entries of a block."""
        sigma = self.sigmas[name] / (sqrt(2.0) if off_diagonal else 1.0)
        if self.mechanism == "distributed":
            return lattice.share_sigma(sigma, self.min_cohort)
        return lattice.lattice_sigma(sigma)

    def deviation(self, name: str, messages: int = 1, off_diagonal: bool = False) -> float:
        """The standard deviation of the noise in a total of this many messages."""
        added = 1 if self.mechanism == "central" else messages
        return self.parameter(name, off_diagonal) * sqrt(added)

    def reach(self, messages: int = 1) -> int:
        """A size that no entry of the noise in a total exceeds, except with probability 2⁻¹²⁸."""
        return max(reach(self.deviation(name, messages), self.layout.entries) for name in self.sigmas)

    @property
    def draws(self) -> int:
        """How many draws of `add_noise` the promise rests on: min_cohort shares of distributed noise, or one."""
        return self.min_cohort if self.mechanism == "distributed" else 1

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        shares = self.draws
        epsilon, delta = lattice.discrete_promise(self.epsilon, self.delta, self.layout.entries, shares)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            mu=1 / self.multiplier,
            sigmas={name: self.deviation(name, shares) for name in self.sigmas},
            unit=self.sensitivity.unit,
            mechanism=self.mechanism,
            assumptions=_assumptions(self),
            min_cohort=self.min_cohort,
        )


def noise_plan(
    layout: Layout,
    radius: int,
    privacy: Privacy,
    *,
    shares: Mapping[str, float] | None = None,
    sketch_norm: float | None = None,
    shifts: Mapping[str, int] | None = None,
) -> NoisePlan:
    """The noise that keeps the recipe's (ε, δ) for rows clipped to `radius` steps of the grid.

    `shares` are the parts of the budget by block, public and chosen without the data, in any unit; by default those in
    the statistics' own records. The other options are those of `sensitivity`.
    """
    if privacy.epsilon is None or privacy.delta is None:
        raise PrivacyError(
            f"no privacy.epsilon or privacy.delta: they are {privacy.epsilon} and {privacy.delta}; write both for noise."
        )
    shares = {record.name: record.share for record in layout.records} if shares is None else shares
    scales = _scales(record_bounds(layout, radius, sketch_norm), shares)
    bound = sensitivity(
        layout,
        radius,
        privacy.unit,
        scales=scales,
        sketch_norm=sketch_norm,
        shifts=shifts,
        client_rows=privacy.client_rows,
        person_rows=privacy.person_rows,
    )
    plan = NoisePlan(
        layout=layout,
        radius=radius,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        multiplier=sigma_for(privacy.epsilon, privacy.delta),
        sensitivity=bound,
        scales=scales,
        shifts=dict(shifts or {}),
        mechanism=privacy.noise,
        min_cohort=privacy.min_cohort,
        client_rows=privacy.client_rows,
        person_rows=privacy.person_rows,
    )
    _check_sigmas(plan)
    return plan


def add_noise(moments: Moments, plan: NoisePlan, stream: NoiseStream | None = None) -> Moments:
    """The moments plus noise of the plan, for a total (central noise) or for every message (the other two kinds).

    Fresh noise comes from the operating system's entropy unless a `stream` is given. The sum is exact, or raises
    `MomentsOverflowError`.

    Examples
    --------
    >>> layout = Layout(classes=2, dim=3)
    >>> plan = noise_plan(layout, radius=10, privacy=Privacy(radius=1.0, epsilon=1.0, delta=1e-5))
    >>> add_noise(Moments.zeros(layout), plan, NoiseStream(b"a test")).counts
    array([ 1, -9])
    """
    if moments.layout != plan.layout:
        raise LayoutError(f"the noise was planned for layout {plan.layout}; these moments have {moments.layout}.")
    stream = NoiseStream() if stream is None else stream
    return moments + Moments(plan.layout, {record.name: _noise(plan, record, stream) for record in plan.layout.records})


def _noise(plan: NoisePlan, record: Statistic, stream: NoiseStream) -> Int64[np.ndarray, "..."]:
    name, shape = record.name, plan.layout.shapes[record.name]
    if not record.is_symmetric:
        return discrete_gaussian(plan.parameter(name), shape, stream)
    noise = discrete_gaussian(plan.parameter(name, off_diagonal=True), shape, stream)
    on_diagonal = diagonal(plan.layout.width(record))
    noise[..., on_diagonal] = discrete_gaussian(plan.parameter(name), (*shape[:-1], len(on_diagonal)), stream)
    return noise


def _scales(bounds: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """w_b = Δ_b/√p_b, with the shares of the stored blocks scaled to a sum of one."""
    wrong = [name for name in bounds if not 0 < shares.get(name, 0) < float("inf")]
    if wrong:
        raise PrivacyError(
            f"shares is {dict(shares)}; every stored block ({', '.join(bounds)}) needs a positive share of the budget, "
            f"and {', '.join(wrong)} has none."
        )
    total = sum(shares[name] for name in bounds)
    return {name: bound / sqrt(shares[name] / total) for name, bound in bounds.items()}


def _check_sigmas(plan: NoisePlan) -> None:
    for name, sigma in plan.sigmas.items():
        if sigma > LARGEST_SIGMA / 2:
            raise PrivacyError(
                f"noise of {name} would have a standard deviation of {sigma:.3g}, and at most 2^50 can be drawn; use fewer "
                f"grid bits or a smaller radius, or leave {name} out."
            )


def _assumptions(plan: NoisePlan) -> tuple[str, ...]:
    rows = f"Every row was cut to {plan.radius} steps of the grid by clip_rows, and no record is more than one row."
    client = (
        f"Every client's moments were cut to {plan.client_rows} full rows' worth by clip_vector before noise; "
        "who takes part is not hidden."
    )
    person = (
        f"Every row was cut to {plan.radius} steps of the grid by clip_rows, every site counted at most "
        f"{plan.person_rows} rows of one person, by ids that are right, and nobody has rows at two sites."
    )
    return (
        {"record": rows, "client": client, "person": person}[plan.sensitivity.unit],
        "Recipe, radius, shares of the budget and list of sites were chosen without looking at the protected data.",
        _WHO_IS_TRUSTED[plan.mechanism].format(cohort=plan.min_cohort),
        "Noise is the discrete Gaussian; its distance from the continuous one is inside epsilon and delta.",
        "AES-256-CTR keyed by the operating system's entropy cannot be told from uniform bits, and nobody measures the "
        "time that drawing the noise takes.",
    )


_WHO_IS_TRUSTED = {
    "central": "Whoever adds the noise sees the exact total and is trusted with it; only the noisy total leaves.",
    "distributed": "At least {cohort} of the clients in the total add their noise and keep it to themselves, not "
    "counting a client that is itself protected, and secure aggregation shows nothing but the total.",
    "local": "Every site adds the whole noise to its own message before it leaves; nobody else is trusted.",
}
