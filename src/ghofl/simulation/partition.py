"""Rows over clients, for experiments: every split is a list of row numbers per client, drawn from a given generator.

Clients without rows are allowed; they are part of what skewed splits look like. `empty` counts them.
"""

import numpy as np

from ghofl.errors import PartitionError
from ghofl.shapes import Int64, Integer

Parts = list[Int64[np.ndarray, " _"]]


def split(
    labels: Integer[np.ndarray, " n"],
    clients: int,
    rng: np.random.Generator,
    alpha: float | None = None,
    count: int | None = None,
) -> Parts:
    """The split that an experiment's options name: Dirichlet(α) by class, so many classes per client, or evenly.

    >>> [len(part) for part in split(np.zeros(7, dtype=int), 3, np.random.default_rng(0))]
    [3, 2, 2]
    """
    if alpha is not None and count is not None:
        raise PartitionError(f"alpha = {alpha} and {count} classes per client exclude each other; give one.")
    if alpha is not None:
        return dirichlet_by_class(labels, clients, alpha, rng)
    return iid(labels, clients, rng) if count is None else classes_per_client(labels, clients, count, rng)


def iid(labels: Integer[np.ndarray, " n"], clients: int, rng: np.random.Generator) -> Parts:
    """Rows shuffled and split evenly.

    >>> [len(part) for part in iid(np.zeros(7, dtype=int), 3, np.random.default_rng(0))]
    [3, 2, 2]
    """
    _check_clients(clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


def dirichlet_by_class(
    labels: Integer[np.ndarray, " n"], clients: int, alpha: float, rng: np.random.Generator
) -> Parts:
    """Each class is spread over clients in proportions drawn from Dirichlet(α): the usual label skew.

    >>> parts = dirichlet_by_class(np.arange(100) % 5, 4, 0.1, np.random.default_rng(0))
    >>> sorted(np.concatenate(parts).tolist()) == list(range(100))
    True
    """
    _check_clients(clients)
    _check_alpha(alpha)
    owner = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        shares = _dirichlet(alpha, clients, rng)
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        owner[rows] = np.repeat(np.arange(clients), np.diff(cuts, prepend=0, append=len(rows)))
    return _parts(owner, clients)


def classes_per_client(labels: Integer[np.ndarray, " n"], clients: int, count: int, rng: np.random.Generator) -> Parts:
    """Every client has rows of at most `count` classes; each class is split evenly over the clients that have it.

    Classes are dealt to clients from shuffled decks, so that all are in use before any is used again.

    >>> y = np.arange(100) % 5
    >>> parts = classes_per_client(y, 10, 2, np.random.default_rng(0))
    >>> max(len(set(y[part])) for part in parts)
    2
    """
    _check_clients(clients)
    classes = np.unique(labels)
    if not 1 <= count <= len(classes):
        raise PartitionError(f"{count} classes per client were asked for; give a number from 1 to {len(classes)}.")
    if clients * count < len(classes):
        raise PartitionError(
            f"{clients} clients with {count} classes each cannot hold {len(classes)} classes; "
            f"use at least {-(-len(classes) // count)} clients or more classes per client."
        )
    holders = _deal(classes, clients, count, rng)
    owner = np.empty(len(labels), dtype=np.int64)
    for c in classes:
        rows = rng.permutation(np.flatnonzero(labels == c))
        for client, part in zip(holders[c], np.array_split(rows, len(holders[c])), strict=True):
            owner[part] = client
    return _parts(owner, clients)


def count_empty(parts: Parts) -> int:
    """How many clients have no rows."""
    return sum(len(part) == 0 for part in parts)


def _deal(classes: np.ndarray, clients: int, count: int, rng: np.random.Generator) -> dict[int, list[int]]:
    holders: dict[int, list[int]] = {int(c): [] for c in classes}
    deck: list[int] = []
    for client in range(clients):
        hand: set[int] = set()
        while len(hand) < count:
            if not set(deck) - hand:
                deck += rng.permutation(classes).tolist()
            card = next(c for c in deck if c not in hand)
            deck.remove(card)
            hand.add(card)
        for c in hand:
            holders[c].append(client)
    return holders


def _dirichlet(alpha: float, size: int, rng: np.random.Generator) -> np.ndarray:
    shares = rng.dirichlet(np.full(size, alpha))
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares
    # For a tiny α all gamma draws can underflow; the limit of the distribution is one client taking all.
    return np.eye(size)[rng.integers(size)]


def _parts(owner: np.ndarray, clients: int) -> Parts:
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, clients)))


def _check_clients(clients: int) -> None:
    if clients < 1:
        raise PartitionError(f"{clients} clients were asked for; give 1 or more.")


def _check_alpha(alpha: float) -> None:
    if not (np.isfinite(alpha) and alpha > 0):
        raise PartitionError(f"alpha is {alpha}; it must be positive (0.1 is skewed, 100 nearly even).")
