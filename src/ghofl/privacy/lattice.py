"""Why noise on the integers keeps the promise of the continuous Gaussian, to within 10⁻²⁰.

Write G_σ for the discrete Gaussian, φ_σ for the normal density and ζ(τ) = 2 Σ_{k≥1} exp(−2π²τ²k²). Poisson's summation
formula gives, for every real c (Micciancio & Regev 2007, Lemma 4.4, in one dimension)::

    Σ_{m∈ℤ} φ_τ(m − c)  =  1 + 2 Σ_k exp(−2π²τ²k²) cos 2πkc   ∈   1 ± ζ(τ)                                      (1)

**One draw.** Release y = q + N(0, s²), then replace y by a random integer n, chosen with probability
∝ φ_τ(n − y). That last step sees only y: whatever holds for the Gaussian mechanism with s holds for n. And
P(n) = ∫ φ_s(y − q) φ_τ(n − y) / Σ_m φ_τ(m − y) dy, which by (1) is φ_σ(n − q) / (1 ± ζ(τ)) with σ² = s² + τ². By (1)
again G_σ(n − q) = φ_σ(n − q) / (1 ± ζ(σ)). So the two agree in every point within a factor e^{±η}, η = ln((1+ζ)/(1−ζ)).
(The step is the convolution of Peikert 2010, Thm 3.1.)

**A sum of draws.** G_a ∗ G_b (n) = φ_√(a²+b²)(n) · Σ_m φ_τ(m − c) / (Σφ_a · Σφ_b) with τ² = a²b²/(a²+b²), so it is
G_√(a²+b²) within e^{±2η}. Adding m draws of parameter v one by one has τ² ≥ v²/2 at each step: m−1 factors.
(Kairouz, Liu & Steinke 2021, who call this the distributed discrete Gaussian, bound the same distance.)

**Together**, m ≥ 1 draws per entry, independent over entries: if the continuous mechanism is (ε, δ)-private then the
discrete one is (ε + 2Η, e^Η δ)-private with Η = entries · (2m − 1) · η. With τ = 2, η is 2·10⁻³⁴, and Η stays under
10⁻²⁰ for 10⁹ entries and 10⁴ clients. That is all the difference there is; it costs τ² = 4 in σ².
"""

from math import exp, expm1, log1p, pi, sqrt

from ghofl.privacy.errors import PrivacyError

SMOOTHING = 2.0  # τ: the standard deviation that the lattice costs
SMALLEST_SHARE = SMOOTHING * sqrt(2.0)  # v with v²/2 ≥ τ², for sums of shares


def lattice_sigma(sigma: float) -> float:
    """The discrete parameter √(σ² + 4), whose noise is as private as the continuous Gaussian with σ.

    >>> round(lattice_sigma(100.0), 4)
    100.02
    """
    _check_sigma(sigma)
    return sqrt(sigma * sigma + SMOOTHING**2) * (1 + 2.0**-50)


def share_sigma(sigma: float, min_survivors: int) -> float:
    """The discrete parameter of one client's noise, so that any `min_survivors` of them reach σ together.

    It is √((σ² + 4)/m), and never below 2√2: smaller shares would not add up to a discrete Gaussian closely enough.

    Guarantees
    ----------
    The sum of m or more shares is as private as the continuous Gaussian with σ, within `slack`. Clients that
    reveal their noise, or leave it out, do not count among the m.

    Examples
    --------
    >>> round(share_sigma(100.0, min_survivors=25), 4)
    20.004
    """
    if min_survivors < 1:
        raise PrivacyError(f"min_survivors is {min_survivors}; give 1 or more.")
    return max(lattice_sigma(sigma) / sqrt(min_survivors), SMALLEST_SHARE) * (1 + 2.0**-50)


def slack(entries: int, shares: int = 1) -> float:
    """Η above: the discrete mechanism is (ε + 2Η, e^Η δ)-private where the continuous one is (ε, δ)-private.

    >>> slack(entries=10**9, shares=10**4) < 1e-20
    True
    """
    zeta = 2 * exp(-2 * (pi * SMOOTHING) ** 2) * 1.0001  # the terms after the first are below 10⁻⁹⁰ of it
    return entries * (2 * shares - 1) * (log1p(zeta) - log1p(-zeta))


def discrete_promise(epsilon: float, delta: float, entries: int, shares: int = 1) -> tuple[float, float]:
    """The (ε, δ) of discrete noise whose continuous counterpart has (`epsilon`, `delta`)."""
    eta = slack(entries, shares)
    return epsilon + 2 * eta, delta + delta * expm1(eta)


def _check_sigma(sigma: float) -> None:
    if not sigma > 0:
        raise PrivacyError(f"sigma is {sigma}; give a positive standard deviation.")
