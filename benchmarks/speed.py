"""Speed as ratios within one run on one machine: every figure is ours against a named reference, in turns.

Rows are random, of the sizes of real embeddings: what is timed does not depend on their values, and a run on another
day, or without the real data, measures the same work. `ratios` compares two runs.
"""

import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import ratios
import scipy.linalg
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from ratios import Measure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from threadpoolctl import threadpool_limits
from timing import against, best

from ghofl import (
    HEADS,
    Aggregator,
    Classifier,
    Encoder,
    Features,
    Gaussians,
    Grid,
    Layout,
    Lift,
    Message,
    Moments,
    Projection,
    Recipe,
    Sketch,
    Total,
)
from ghofl.features import fit_grid
from ghofl.heads import LDA, QDA
from ghofl.secure import Ring
from ghofl.secure.masking import RING_BITS
from ghofl.wire.packing import pack, unpack

CLASSES, DIM = 20, 512  # of the heads and messages
TRAINED = ("fisher_mix", "proto_hyper")
LINEAR = ("nearest_mean", "spherical", "nb", "lda", "fedcgs", "ridge", "blend", "fisher_mix", "proto_hyper")
BARE = "one float64 product of 512 × 512 matrices per class"


def run() -> dict:
    """All measures, and what the machine is.

    Products run on one thread: two that wait for each other on a core that something else has too make times of
    nothing but luck (a spread of 26 % instead of 4 % beside other work), and ratios would depend on the number of cores.
    """
    groups = (_large, _features, _packing, _messages, _masks, _heads, _starts)
    with threadpool_limits(limits=1):
        rates = {"float32_gflops": round(_rate(np.float32), 1), "float64_gflops": round(_rate(np.float64), 1)}
        measures = [measure for group in groups for measure in group(np.random.default_rng(0))]
    return {**rates, "threads": 1, "measures": ratios.as_stored(measures)}


def table(run: dict) -> str:
    """The results as Markdown."""
    threads = f", on {run['threads']} thread" if "threads" in run else ""
    return (
        f"Products on this machine: {run['float32_gflops']:.0f} GFLOP/s float32, {run['float64_gflops']:.0f} float64"
        f"{threads}.\nMedians of times taken in turns (ours, reference, ours, …); the spread is that of the ratio of one "
        "turn, and empty\nwhere there is one time of each.\n\n" + ratios.table_of_measures(ratios.from_stored(run))
    )


def _large(rng: np.random.Generator) -> Iterator[Measure]:
    """A hundred classes of 1,280-dimensional rows: the size of CIFAR-100 under MobileNetV2."""
    x, y = rng.random((50_000, 1280), np.float32), rng.integers(100, size=50_000)
    recipe = Recipe(tuple(map(str, range(100))), Encoder(dim=1280), ("S",), grid=Grid(bits=8))
    features = Features.of(fit_grid(recipe, x))
    q, layout = features.rows(x)[0], Layout.of(recipe)
    yield against(
        "statistics",
        "S of 50,000 × 1280 rows, 100 classes",
        lambda: Moments.of(q, y, layout),
        "bare float64 products of the rows of each class",
        lambda: _bare_products(q, y),
    )
    some, of_some, pooled = q[:20_000], y[:20_000], replace(layout, statistics=("B",))
    yield against(
        "moments_of_b",
        "B of 20,000 × 1280 rows, 100 classes",
        lambda: Moments.of(some, of_some, pooled),
        "one bare float64 product of the rows",
        lambda: _bare_product(some),
    )
    gaussians = Gaussians.estimate(Moments.of(q, y, layout), features.unit)
    values, test = features.values(x), features.values(x[:10_000])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05)
    yield against(
        "lda",
        "LDA fit and predict from moments, 100 classes",
        lambda: LDA.fit(gaussians, LDA.Options(0.05)).predict(test),
        "scikit-learn's LDA on the 50,000 rows",
        lambda: model.fit(values, y).predict(test),
        repeats=3,
    )
    del x, q, values
    yield _qda_scoring(QDA.fit(gaussians), test[:256])


def _bare_products(q: np.ndarray, y: np.ndarray) -> None:
    """The least that float64 statistics cost: rows sorted by class, one product per class, nothing kept."""
    order = np.argsort(y, kind="stable")
    for part in np.split(q[order].astype(np.float64), np.searchsorted(y[order], np.arange(1, 100))):
        part.T @ part


def _bare_product(q: np.ndarray) -> np.ndarray:
    x = q.astype(np.float64)
    return x.T @ x


def _qda_scoring(head: QDA, x: np.ndarray) -> Measure:
    # A whitener's transpose is triangular like a Cholesky factor, in the order of rows that numpy gives one in.
    factors = [np.ascontiguousarray(w.T) for w in head.whiteners]

    def one_row() -> None:
        for mean, factor in zip(head.means, factors, strict=True):
            shifted = x[0] - mean
            shifted @ scipy.linalg.cho_solve((factor, True), shifted, check_finite=False)

    return against(
        "qda_scoring",
        "QDA scores of a row, 100 classes, 1280-d",
        lambda: head.scores(x),
        "a Cholesky solve per class and row",
        one_row,
        rows=len(x),
    )


def _features(rng: np.random.Generator) -> Iterator[Measure]:
    x = rng.random((8_000, 1280), np.float32)
    plain = Recipe(("a", "b"), Encoder(dim=1280), grid=Grid(bits=8, scale=100.0))
    yield against(
        "features_plain",
        "features of 8,000 × 1280 embeddings",
        lambda: Features.of(plain).rows(x),
        "numpy scales, rounds, clips and casts them in blocks",
        lambda: _on_grid(x),
    )
    for name, space in (("projection", Projection(dim=256)), ("lift", Lift(dim=2048))):
        features = Features.of(fit_grid(replace(plain, **{name: space}), x))
        matrix = np.ones((1280, space.dim), np.float32)
        yield against(
            f"features_{name}",
            f"features of 8,000 × 1280 embeddings, {name} to {space.dim}",
            lambda features=features: features.rows(x),
            "a bare float32 product of that size",
            lambda matrix=matrix: x @ matrix,
        )


def _on_grid(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, np.int16)
    for start in range(0, len(x), 4096):
        block = slice(start, start + 4096)
        out[block] = np.clip(np.rint(x[block].astype(np.float64) * 100.0), -127, 127)
    return out


def _packing(rng: np.random.Generator) -> Iterator[Measure]:
    values = rng.integers(-(2**12), 2**20, size=4_000_000)
    codes, data = pack(values)
    hashed = ("sha256 of them", lambda: hashlib.sha256(values.data).digest())
    yield against("pack", "4 million entries packed", lambda: pack(values), *hashed)
    yield against("unpack", "4 million entries unpacked", lambda: unpack(codes, data, len(values)), *hashed)


def _messages(rng: np.random.Generator) -> Iterator[Measure]:
    """A message of 2.6 million entries on its way to a total in a file."""
    x, y = _rows(rng, 12_000)
    recipe = _recipe(("S",))
    message = Message.of(_moments(recipe, x, y), recipe, "north")
    size, sent = f"S of {CLASSES} classes, {DIM}-d", message.to_bytes()
    entries = np.concatenate([block.ravel() for block in message.moments.blocks.values()])
    hashed = ("sha256 of its entries", lambda: hashlib.sha256(entries.data).digest())
    yield against("message_to_bytes", f"message to bytes, {size}", message.to_bytes, *hashed)
    square = np.eye(DIM) + 1.0 / DIM
    yield against(
        "message_from_bytes",
        "message from bytes, checked",
        lambda: Message.from_bytes(sent, recipe),
        "sha256 of its entries, and a Cholesky factor per class",
        lambda: (hashed[1](), [np.linalg.cholesky(square) for _ in range(CLASSES)]),
    )
    aggregator = Aggregator(recipe)
    yield against(
        "aggregator_add",
        "message added to a total",
        lambda: aggregator.add(replace(message, id=secrets.token_hex(16), site="")),
        *hashed,
    )
    with tempfile.TemporaryDirectory() as folder:
        yield from _files(Total.of([message], recipe), Path(folder))


def _files(total: Total, folder: Path) -> Iterator[Measure]:
    total.save(folder / "total.ghofl")
    content = (folder / "total.ghofl").read_bytes()
    yield against(
        "total_save",
        "total to a file",
        lambda: total.save(folder / "again.ghofl"),
        "sha256 of that file, written and flushed to disk",
        lambda: _written(content, folder / "plain"),
    )
    yield against(
        "total_load",
        "total from a file, checked",
        lambda: Total.load(folder / "total.ghofl"),
        "that file read, and its sha256",
        lambda: hashlib.sha256((folder / "plain").read_bytes()).digest(),
    )


def _written(content: bytes, path: Path) -> None:
    hashlib.sha256(content).digest()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _masks(rng: np.random.Generator, entries: int = 1_000_000, seeds: int = 8) -> Iterator[Measure]:
    values, keys = rng.integers(-1000, 1001, size=entries), [rng.bytes(32) for _ in range(seeds)]
    for bits in RING_BITS:
        ring = Ring(bits)
        total = ring.unpack(ring.mask(values, 1000, plus=keys), entries)
        stream = entries * (ring.width if bits <= 40 else 8)
        passes = (f"{seeds} AES-256-CTR passes over as many bytes as the masks are made of", _aes(stream, seeds))
        yield against(
            f"masking_{bits}",
            f"10⁶ entries of {bits} bits under {seeds} masks, packed",
            lambda ring=ring: ring.mask(values, 1000, plus=keys),
            *passes,
        )
        yield against(
            f"unmasking_{bits}",
            f"10⁶ entries of {bits} bits, {seeds} masks taken away",
            lambda ring=ring, total=total: ring.unmask(total, minus=keys),
            *passes,
        )


def _aes(size: int, passes: int) -> Callable[[], None]:
    content, room = bytes(size), bytearray(size + 15)

    def work() -> None:
        for _ in range(passes):
            Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update_into(content, room)

    return work


def _heads(rng: np.random.Generator) -> Iterator[Measure]:
    x, y = _rows(rng, 12_000)
    values, totals = x[:1000].astype(np.float64), {}
    square, columns = rng.random((DIM, DIM)), rng.random((DIM, CLASSES))
    for name, head in HEADS.items():
        need = head.needs[0]
        if need not in totals:
            recipe = _recipe(tuple(s for s in need if s != "Z"), Sketch(dim=64) if "Z" in need else None)
            totals[need] = Total.of([Message.of(_moments(recipe, x, y), recipe, "north")], recipe)
        yield against(
            f"fit_{name}",
            f"{name} from a total, {CLASSES} classes, {DIM}-d",
            lambda name=name, total=totals[need]: Classifier.fit(total, name),
            *_fit_reference(name, need, x, y, square),
            repeats=3 if name in TRAINED else 5,
        )
        fitted = Classifier.fit(totals[need], name).head
        reference = (
            ("one bare float64 product with the class means", lambda: values @ columns)
            if name in LINEAR
            else ("one bare float64 product per class", lambda: [values @ square for _ in range(CLASSES)])
        )
        yield against(
            f"score_{name}",
            f"{name} scores of 1,000 rows",
            lambda fitted=fitted: fitted.scores(values),
            *reference,
        )


def _fit_reference(
    name: str, need: tuple[str, ...], x: np.ndarray, y: np.ndarray, square: np.ndarray
) -> tuple[str, Callable[[], object]]:
    """What a head's fit is timed against: scikit-learn's on rows where it has one like it, otherwise bare products."""
    if name in TRAINED:
        return "300 steps of two float32 products with 2,048 × 80 rows, and " + BARE, lambda: _steps(square)
    if name == "qda":
        return "scikit-learn's QDA on 12,000 rows", lambda: QuadraticDiscriminantAnalysis(reg_param=0.1).fit(x, y)
    if need == ("B",):
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05)
        return "scikit-learn's LDA on 12,000 rows", lambda: model.fit(x, y)
    if need == ():
        return "scikit-learn's NearestCentroid on 12,000 rows", lambda: NearestCentroid().fit(x, y)
    if "D" in need:
        return "scikit-learn's GaussianNB on 12,000 rows", lambda: GaussianNB().fit(x, y)
    return BARE, lambda: [square @ square for _ in range(CLASSES)]


def _steps(square: np.ndarray) -> None:
    for _ in range(CLASSES):
        square @ square
    z, w = np.ones((2048, 80), np.float32), np.zeros((80, CLASSES), np.float32)
    for _ in range(300):
        w -= 1e-6 * (z.T @ (z @ w))


def _starts(rng: np.random.Generator) -> Iterator[Measure]:
    """How long a process takes, from nothing to its answer, where Python keeps compiled files as it does for users."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, compiled = Path(folder, "recipe.toml"), Path(folder, "compiled")
        _recipe(("B",)).save(recipe)

        def python(*arguments: str) -> Callable[[], None]:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            environment["PYTHONPYCACHEPREFIX"] = str(compiled)
            command = [sys.executable, *arguments]
            return lambda: _quiet(command, environment)

        names = "from ghofl import Classifier, Message, Recipe, Total"
        imported = ("numpy and scipy.linalg imported", python("-c", "import numpy, scipy.linalg"))
        yield against("start_import", f"`{names}`", python("-c", names), *imported)
        for name, words in (("version", ["--version"]), ("help", ["--help"]), ("inspect", ["inspect", str(recipe)])):
            what = f"`ghofl {words[0]}`" + (" of a recipe" if len(words) > 1 else "")
            plain = ("Python that does nothing", python("-c", "pass"))
            yield against(f"start_{name}", what, python("-m", "ghofl", *words), *plain)


def _quiet(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _rows(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Float rows around the means of their classes, which overlap."""
    y = np.arange(rows) % CLASSES
    return (rng.normal(size=(rows, DIM)) + 0.2 * rng.normal(size=(CLASSES, DIM))[y]).astype(np.float32), y


def _recipe(statistics: tuple[str, ...], sketch: Sketch | None = None) -> Recipe:
    grid = Grid(bits=8, scale=24.0)
    return Recipe(tuple(map(str, range(CLASSES))), Encoder(dim=DIM), statistics, grid=grid, sketch=sketch)


def _moments(recipe: Recipe, x: np.ndarray, y: np.ndarray) -> Moments:
    features, layout = Features.of(recipe), Layout.of(recipe)
    return Moments.of(features.rows(x)[0], y, layout, features.sketch if layout.sketch else None)


def _rate(dtype: type) -> float:
    a = np.ones((2048, 2048), dtype)
    return 2 * 2048**3 / best(lambda: a @ a) / 1e9
