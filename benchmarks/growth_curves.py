"""The stages whose growth is measured: the work of a size, the exponent of its formula, and a bare reference."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load
from speed.messages import aes_passes
from timing import Work

from ghofl import Aggregator, Encoder, Features, Gaussians, Layout, Message, Moments, Projection, Recipe
from ghofl.heads import HEADS, Head
from ghofl.secure import Ring
from ghofl.wire.packing import pack, unpack

OfSize = Callable[[int], Work]
Rng = np.random.Generator
HASHED = 256 * 1024  # entries under masks


class Curve(NamedTuple):
    """A stage, what grows in it, the exponent that its formula has, its sizes, and the work of a size, ours and bare."""

    stage: str
    over: str
    expected: float
    sizes: Sequence[int]
    work: OfSize
    reference_is: str
    reference: OfSize


def curves(rng: Rng) -> Iterator[Curve]:
    """What is measured."""
    yield from _at_a_site(rng)
    yield from _on_the_way(rng)
    yield from _at_the_server(rng)


def _at_a_site(rng: Rng) -> Iterator[Curve]:
    rows = (4096, 8192, 16384, 32768)
    product = "a bare float64 product of the rows"
    yield Curve(
        "features",
        "rows",
        1,
        rows,
        lambda n: _features(rng, n),
        "numpy scales, rounds, clips and casts",
        lambda n: _on_grid(rng, n),
    )
    yield Curve(
        "projection to 128", "rows", 1, rows, lambda n: _features(rng, n, 128),
        "a bare float32 product", lambda n: _product(rng, n, 512, 128, np.float32),
    )  # fmt: skip
    yield Curve(
        "moments of B", "rows", 1, rows, lambda n: _moments(rng, n, 256, 10, "B"), product, lambda n: _gram(rng, n, 256)
    )
    yield Curve(
        "moments of B", "dimension", 2, (256, 512, 1024, 2048), lambda d: _moments(rng, 2048, d, 10, "B"),
        product, lambda d: _gram(rng, 2048, d),
    )  # fmt: skip
    yield Curve(
        "moments of S", "classes", 1, (8, 16, 32, 64), lambda c: _moments(rng, 128 * c, 256, c, "S"),
        "a bare float64 product per class", lambda c: _gram(rng, 128, 256, c),
    )  # fmt: skip


def _on_the_way(rng: Rng) -> Iterator[Curve]:
    yield Curve(
        "pack and unpack", "entries", 1, (2**18, 2**19, 2**20, 2**21), lambda n: _packing(rng, n),
        "two copies of them in memory", _copies,
    )  # fmt: skip
    yield Curve(
        "total", "clients", 1, (50, 100, 200, 400), lambda n: _total(rng, n),
        "their bytes hashed and unpacked, their entries hashed", lambda n: _unpacked(rng, n),
    )  # fmt: skip
    yield Curve(
        "masks", "neighbours", 1, (8, 16, 32, 64), lambda n: _masked(rng, n),
        "as many AES-256-CTR passes", lambda n: aes_passes(4 * HASHED, n),
    )  # fmt: skip


def _at_the_server(rng: Rng) -> Iterator[Curve]:
    few, factor, product = (8, 16, 32, 64), "a Cholesky factor", "a bare float64 product"
    yield Curve(
        "LDA fit",
        "dimension",
        3,
        (256, 512, 1024, 2048),
        lambda d: _fit(rng, HEADS["lda"], d, 10, "B"),
        factor,
        lambda d: _factors(d, 1),
    )
    yield Curve(
        "QDA fit",
        "dimension",
        3,
        (64, 128, 256, 512),
        lambda d: _fit(rng, HEADS["qda"], d, 8, "S"),
        f"{factor} per class",
        lambda d: _factors(d, 8),
    )
    yield Curve(
        "QDA fit",
        "classes",
        1,
        few,
        lambda c: _fit(rng, HEADS["qda"], 128, c, "S"),
        f"{factor} per class",
        lambda c: _factors(128, c),
    )
    yield Curve(
        "LDA score", "classes", 1, (64, 128, 256, 512), lambda c: _score(rng, HEADS["lda"], 256, c, "B"),
        product, lambda c: _product(rng, 256, 256, c),
    )  # fmt: skip
    yield Curve(
        "QDA score", "dimension", 2, (128, 256, 512, 1024), lambda d: _score(rng, HEADS["qda"], d, 4, "S"),
        f"{product} per class", lambda d: _product(rng, 256, d, d, times=4),
    )  # fmt: skip
    yield Curve(
        "QDA score", "classes", 1, few, lambda c: _score(rng, HEADS["qda"], 128, c, "S"),
        f"{product} per class", lambda c: _product(rng, 256, 128, 128, times=c),
    )  # fmt: skip
    yield Curve(
        "QDA score", "rows", 1, (512, 1024, 2048, 4096), lambda n: _score(rng, HEADS["qda"], 128, 8, "S", n),
        f"{product} per class", lambda n: _product(rng, n, 128, 128, times=8),
    )  # fmt: skip


def _rows(rng: Rng, n: int, dim: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(-60, 61, size=(n, dim)).astype(np.int16), np.arange(n) % classes


def _features(rng: Rng, n: int, project: int = 0) -> Work:
    projection = Projection(dim=project) if project else None
    known = Features.of(Recipe(("a", "b"), Encoder(dim=512), projection=projection))
    x = rng.random((n, 512), np.float32)
    return lambda: known.rows(x)


def _on_grid(rng: Rng, n: int) -> Work:
    x = rng.random((n, 512), np.float32)
    return lambda: np.clip(np.rint(x * np.float32(100)), -127, 127).astype(np.int16)


def _moments(rng: Rng, n: int, dim: int, classes: int, statistic: str) -> Work:
    (x, y), layout = _rows(rng, n, dim, classes), Layout(classes, dim, (statistic,))
    return lambda: Moments.of(x, y, layout)


def _gram(rng: Rng, n: int, dim: int, times: int = 1) -> Work:
    q = _rows(rng, n, dim, 1)[0]

    def work() -> None:
        for _ in range(times):
            x = q.astype(np.float64)
            x.T @ x

    return work


def _product(rng: Rng, n: int, dim: int, columns: int, dtype: type = np.float64, times: int = 1) -> Work:
    x, matrix = rng.random((n, dim)).astype(dtype), rng.random((dim, columns)).astype(dtype)

    def work() -> None:
        for _ in range(times):
            x @ matrix

    return work


def _packing(rng: Rng, entries: int) -> Work:
    values = rng.integers(-(2**12), 2**20, size=entries)
    return lambda: unpack(np.frombuffer(pack(values), np.uint8), len(values))


def _copies(entries: int) -> Work:
    values = np.zeros(entries, np.int64)
    return lambda: (values.copy(), values.copy())


def _sent(rng: Rng, recipe: Recipe, clients: int) -> list[bytes]:
    of_site = Moments.of(*_rows(rng, 50, 64, 4), Layout.of(recipe))
    return [Message.of(of_site, recipe, f"site-{i}").to_bytes() for i in range(clients)]


def _total(rng: Rng, clients: int) -> Work:
    recipe = Recipe(tuple("abcd"), Encoder(dim=64))
    sent = _sent(rng, recipe, clients)

    def add() -> None:
        aggregator = Aggregator(recipe)
        for data in sent:
            aggregator.add(Message.from_bytes(data, recipe))

    return add


def _unpacked(rng: Rng, clients: int) -> Work:
    recipe = Recipe(tuple("abcd"), Encoder(dim=64))
    sent, layout = _sent(rng, recipe, clients), Layout.of(recipe)

    def work() -> None:
        for data in sent:
            hashlib.sha256(data).digest()
            digest = layout.digest()
            digest.update(unpack(load(data)["entries"], layout.entries).data)

    return work


def _masked(rng: Rng, neighbours: int) -> Work:
    ring, values = Ring(32), rng.integers(-1000, 1001, size=HASHED)
    keys = [rng.bytes(32) for _ in range(neighbours)]
    return lambda: ring.mask(values, 1000, plus=keys)


def _sums(rng: Rng, dim: int, classes: int, statistic: str) -> Moments:
    return Moments.of(*_rows(rng, max(2 * dim, 8 * classes), dim, classes), Layout(classes, dim, (statistic,)))


def _fit(rng: Rng, head: Head, dim: int, classes: int, statistic: str) -> Work:
    found = _sums(rng, dim, classes, statistic)
    return lambda: head.fit(Gaussians.estimate(found))  # new ones: they keep what they computed


def _factors(dim: int, times: int) -> Work:
    square = np.eye(dim) + 1.0 / dim
    return lambda: [np.linalg.cholesky(square) for _ in range(times)]


def _score(rng: Rng, head: Head, dim: int, classes: int, statistic: str, rows: int = 256) -> Work:
    fitted, x = head.fit(Gaussians.estimate(_sums(rng, dim, classes, statistic))), rng.normal(size=(rows, dim))
    return lambda: fitted.scores(x)
