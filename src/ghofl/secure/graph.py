"""Who shares masks with whom, and how many neighbours are enough.

Every client masks against k neighbours instead of all others (Bell et al. 2020): clients are seated on a ring in an
order drawn from a public seed, and the neighbours of a client are the k/2 places on either side. For one client they are
k of the others drawn at random, and `Plan` uses nothing else. Small cohorts use the complete graph.

A client's *circle* is itself and its neighbours: k + 1 holders of shares of its secrets, any t of which rebuild them.
"""

import functools
import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ghofl.secure.errors import PlanError
from ghofl.secure.masking import Ring
from ghofl.shapes import Bool, Float

MIN_CLIENTS = 3
MAX_CLIENTS = 100_000
DROPOUT, CORRUPTION = (
    0.1,
    0.1,
)  # shares of clients that may vanish, or collude with the server, where nobody says otherwise
COMPLETE_BELOW = 32  # so few clients gain little from fewer neighbours


@dataclass(frozen=True, slots=True)
class Plan:
    """The public numbers of a round: cohort, neighbours, thresholds, ring, and the assumptions behind them.

    Let at most `dropped` of n clients vanish and at most `corrupted` collude with the server, neither chosen by looking
    at the drawn ring order, and write H(m, b) for the number of marked ones when m of the n − 1 others are drawn and
    b of these others are marked. With k neighbours, threshold t and window h, and a union bound over the n clients::

        privacy failure  ≤ n·P[H(k, corrupted) ≥ 2t − k − 1]         shares of both secrets of one client suffice
                         + n·P[H(k/2, corrupted) ≥ h]                the honest survivors fall apart into groups
        liveness failure ≤ (n − dropped)·P[H(k, dropped) ≥ k + 2 − t] + dropped·P[H(k, dropped − 1) ≥ k + 1 − t]
                         + n·P[H(k/2, dropped) > k/2 − h]

    The first line: a server that tells one part of a circle that a client survived and the other part that it did not
    needs 2t shares, and gets k + 1 and one more from every corrupted neighbour. The second: clients only reveal for
    survivor lists that have h survivors in every k/2 consecutive places, whichever clients the server left out. So
    when fewer than h of those are corrupted, every honest survivor has an honest surviving neighbour further on, and
    all of them are connected around the ring. In the complete graph the second lines are zero and the first are
    either 0 or 1.

    Guarantees
    ----------
    Every plan is consistent: k is even or n − 1, t is at most k + 1, clients × bound fits the ring.

    Examples
    --------
    >>> small = plan(clients=10, bound=1000, dropout=0.3)
    >>> small.neighbours, small.threshold, small.min_survivors, small.bits
    (9, 6, 7, 32)
    >>> large = plan(clients=1000, bound=1000, dropout=0.1, corruption=0.05)
    >>> large.neighbours, large.threshold, large.window
    (100, 64, 22)
    >>> large.privacy_failure < 2**-40
    True
    """

    clients: int
    neighbours: int
    threshold: int
    window: int
    bits: int
    bound: int
    dropped: int
    corrupted: int

    def __post_init__(self) -> None:
        n, k, t = self.clients, self.neighbours, self.threshold
        _check(MIN_CLIENTS <= n <= MAX_CLIENTS, f"there are {n} clients; a round has {MIN_CLIENTS} to {MAX_CLIENTS}.")
        _check(k == n - 1 or (k % 2 == 0 and 2 <= k < n - 1), f"{k} neighbours of {n} clients; give an even number.")
        _check(1 <= t <= k + 1, f"the threshold is {t} for circles of {k + 1}; give 1 to {k + 1}.")
        _check(0 <= self.window <= k // 2, f"the window is {self.window} of {k // 2} places; give no more than that.")
        _check(self.window > 0 or self.is_complete, "a ring graph has the window 0; give 1 or more.")
        _check(
            self.dropped + self.corrupted <= n - 2,
            f"{self.dropped} dropped and {self.corrupted} corrupted of {n} clients leave fewer than two to hide "
            "among; assume less, or invite more clients.",
        )
        ring = Ring.for_sum(n, self.bound)
        _check(self.bits == ring.bits, f"the plan has {self.bits} bits, and {n} × {self.bound} needs {ring.bits}.")

    @property
    def is_complete(self) -> bool:
        """Whether every client is a neighbour of every other."""
        return self.neighbours == self.clients - 1

    @property
    def min_survivors(self) -> int:
        """The fewest clients whose sum is ever revealed."""
        return self.clients - self.dropped

    @property
    def ring(self) -> Ring:
        """The ring that holds the sum."""
        return Ring(self.bits)

    @property
    def privacy_failure(self) -> float:
        """A bound on the probability that the ring order lets the server learn more than the whole sum."""
        n, k, t = self.clients, self.neighbours, self.threshold
        split = n * _at_least(2 * t - k - 1, n - 1, self.corrupted, k)
        return min(
            1.0, split if self.is_complete else split + n * _at_least(self.window, n - 1, self.corrupted, k // 2)
        )

    @property
    def liveness_failure(self) -> float:
        """A bound on the probability that the ring order makes the assumed dropouts too many."""
        n, k, t, d = self.clients, self.neighbours, self.threshold, self.dropped
        alive = (n - d) * _at_least(k + 2 - t, n - 1, d, k)
        gone = d * _at_least(k + 1 - t, n - 1, d - 1, k) if d else 0.0
        apart = 0.0 if self.is_complete else n * _at_least(k // 2 - self.window + 1, n, d, k // 2)
        return min(1.0, alive + gone + apart)


@functools.lru_cache(maxsize=64)
def plan(
    clients: int,
    bound: int,
    dropout: float = DROPOUT,
    corruption: float = CORRUPTION,
    sigma: int = 40,
    min_survivors: int = 0,
) -> Plan:
    """A plan with few neighbours whose privacy and liveness failures are both at most 2^−sigma, see `Plan`.

    `bound` is the largest absolute entry of a site's vector. `dropout` and `corruption` are fractions of the cohort,
    and both round up: a tenth of five clients is one. Privacy comes first: when no plan withstands that many dropouts
    together with the corrupted clients, or when they would leave fewer than `min_survivors`, the plan withstands as many
    as it can, which `Plan.dropped` says. Three clients of which one may be corrupted cannot lose any.

    The number of neighbours is found by bisection. With fewer than 32 clients, or when no ring graph is safe, the graph
    is complete and the threshold the smallest safe one, ⌊(n + corrupted)/2⌋ + 1.

    >>> [plan(clients, bound=1).dropped for clients in (3, 4, 10, 11)]
    [0, 1, 1, 2]
    """
    for name, fraction in (("dropout", dropout), ("corruption", corruption)):
        _check(0 <= fraction < 1, f"{name} is {fraction}; give a fraction of the cohort, 0 or more and below 1.")
    _check(
        MIN_CLIENTS <= clients <= MAX_CLIENTS,
        f"there are {clients} clients; a round has {MIN_CLIENTS} to {MAX_CLIENTS}.",
    )
    corrupted = portion(clients, corruption)
    dropped = _safe_dropouts(clients, portion(clients, dropout), corrupted, min_survivors)
    complete = _complete(clients, bound, dropped, corrupted)
    found, too_few, enough = complete, 0, (clients - 1) // 2 if clients >= COMPLETE_BELOW else 0
    while enough - too_few > 1:
        half = (too_few + enough) // 2
        candidate = _ring(complete, 2 * half)
        if max(candidate.privacy_failure, candidate.liveness_failure) <= 2.0**-sigma:
            found, enough = candidate, half
        else:
            too_few = half
    return found


def portion(clients: int, fraction: float) -> int:
    """How many clients a fraction of the cohort is, rounded up: at least one whenever the fraction is above zero."""
    return max(math.ceil(clients * fraction - 1e-9), 1 if fraction > 0 else 0)


def _safe_dropouts(clients: int, asked: int, corrupted: int, min_survivors: int) -> int:
    """The most dropouts, up to `asked`, that leave a safe threshold, two honest clients and `min_survivors`."""
    most = min(clients - _threshold(clients, corrupted), clients - 2 - corrupted, clients - min_survivors)
    return max(0, min(asked, most))


def _threshold(clients: int, corrupted: int) -> int:
    """The smallest safe threshold of the complete graph: 2t > n + corrupted."""
    return (clients + corrupted) // 2 + 1


def _complete(clients: int, bound: int, dropped: int, corrupted: int) -> Plan:
    threshold = _threshold(clients, corrupted)
    _check(
        threshold <= clients - dropped,
        f"of {clients} clients {corrupted} may be corrupted, which needs a threshold of {threshold}; assume a "
        "smaller share of corrupted clients, or invite more.",
    )
    bits = Ring.for_sum(clients, bound).bits
    return Plan(clients, clients - 1, threshold, 0, bits, bound, dropped, corrupted)


def _ring(complete: Plan, neighbours: int) -> Plan:
    """The ring graph with the threshold and the window that balance privacy against liveness."""
    n, k, d, c = complete.clients, neighbours, complete.dropped, complete.corrupted
    t, h = np.arange(k // 2 + 1, k + 2), np.arange(1, k // 2 + 1)
    unsafe, stuck = _tails(n - 1, c, k)[2 * t - k - 1], _tails(n - 1, d, k)[k + 1 - t]
    apart, thin = _tails(n - 1, c, k // 2)[h], _tails(n, d, k // 2)[k // 2 + 1 - h]
    threshold, window = t[np.argmin(np.maximum(unsafe, stuck))], h[np.argmin(np.maximum(apart, thin))]
    return Plan(n, k, int(threshold), int(window), complete.bits, complete.bound, d, c)


def _at_least(count: int, others: int, marked: int, drawn: int) -> float:
    """P[at least `count` of `drawn` are marked]: the hypergeometric tail."""
    if drawn == others:
        return float(marked >= count)
    return float(_tails(others, marked, drawn)[min(max(count, 0), drawn + 1)])


@functools.lru_cache(maxsize=64)
def _tails(others: int, marked: int, drawn: int) -> Float[np.ndarray, " counts"]:
    """P[at least j of `drawn` are marked] for j = 0 … drawn + 1."""
    from scipy.special import gammaln  # scipy.stats would take 44 MB and a third of a second; small rounds need neither

    def ways(of, some):  # as a logarithm, −∞ where there are not so many
        return gammaln(of + 1) - gammaln(some + 1) - gammaln(of - some + 1)

    j = np.arange(drawn + 1)
    exactly = np.exp(ways(marked, j) + ways(others - marked, drawn - j) - ways(others, drawn))
    return np.append(np.cumsum(exactly[::-1])[::-1], 0.0)


@dataclass(frozen=True, slots=True)
class Graph:
    """Neighbours on a ring: `order` is the seat at each place, `neighbours` how many each seat has.

    Guarantees
    ----------
    Being neighbours is mutual, nobody is its own neighbour, and every seat has exactly `neighbours` of them.

    Examples
    --------
    >>> graph = arrange([b"ann", b"bob", b"cem", b"dan", b"eva", b"fay"], seed=bytes(32), neighbours=2)
    >>> graph.order
    (3, 0, 1, 5, 2, 4)
    >>> graph.circle_of(5)
    (1, 2, 5)
    """

    order: tuple[int, ...]
    neighbours: int
    places: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = sorted(range(len(self.order)), key=self.order.__getitem__)
        object.__setattr__(self, "places", tuple(places))

    def neighbours_of(self, seat: int) -> tuple[int, ...]:
        """The neighbours of a seat, in ascending order."""
        return tuple(other for other in self.circle_of(seat) if other != seat)

    def circle_of(self, seat: int) -> tuple[int, ...]:
        """A seat and its neighbours, in ascending order."""
        n, place = len(self.order), self.places[seat]
        if self.neighbours == n - 1:
            return tuple(range(n))
        reach = self.neighbours // 2
        return tuple(sorted(self.order[(place + step) % n] for step in range(-reach, reach + 1)))

    def thinnest_window(self, survives: Bool[np.ndarray, " clients"]) -> int:
        """The fewest survivors in any k/2 consecutive places; in a complete graph, all of them."""
        if self.neighbours == len(self.order) - 1:
            return int(survives.sum())
        width = self.neighbours // 2
        around = survives[list(self.order)]
        sums = np.concatenate([[0], np.cumsum(np.concatenate([around, around[:width]]), dtype=np.int64)])
        return int((sums[width:] - sums[:-width]).min())


def arrange(identities: Sequence[bytes], seed: bytes, neighbours: int) -> Graph:
    """The graph of a participant list and a public seed: seats in the order of HMAC-SHA256(seed, identity)."""
    ranks = [hmac.digest(seed, identity, "sha256") for identity in identities]
    return Graph(tuple(sorted(range(len(ranks)), key=ranks.__getitem__)), neighbours)


def _check(claim: bool, otherwise: str) -> None:
    if not claim:
        raise PlanError(otherwise)
