"""What travels: entries packed, messages, totals, masks, and Flower's own aggregation beside them."""

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from ratios import Measure
from timing import against

from ghofl import Aggregator, Message, Total
from ghofl.secure import Ring
from ghofl.secure.masking import RING_BITS
from ghofl.wire.packing import pack, unpack
from speed import made
from speed.made import CLASSES, DIM

SITES = 32
ENTRIES = 4_000_000  # of the packed vector, 8 bytes each


def measures(rng: np.random.Generator) -> Iterator[Measure]:
    """Everything between a site's sums and the total."""
    yield from _packing(rng)
    yield from _message(rng)
    yield from _many(rng)
    yield from _masks(rng)


def missing() -> str:
    """Why Flower's figures are left out, or nothing."""
    absent = [name for name in ("flwr", "torch") if not find_spec(name)]  # torch: for the part that makes its messages
    return f"no {' and '.join(absent)} here" if absent else ""


def _packing(rng: np.random.Generator) -> Iterator[Measure]:
    values = rng.integers(-(2**12), 2**20, size=ENTRIES)
    packed = np.frombuffer(pack(values), np.uint8)
    for name, reference, work in (
        ("", "sha256 of them", lambda: hashlib.sha256(values.data).digest()),
        ("_copy", "a copy of them in memory", values.copy),
    ):
        yield against(f"pack{name}", "4 million entries packed", lambda: pack(values), reference, work)
        yield against(
            f"unpack{name}", "4 million entries unpacked", lambda: unpack(packed, len(values)), reference, work
        )


def _message(rng: np.random.Generator) -> Iterator[Measure]:
    """A message of 2.6 million entries on its way to a total in a file."""
    recipe = made.recipe(("S",))
    message = Message.of(made.moments(recipe, *made.rows(rng)), recipe, "north")
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


def _many(rng: np.random.Generator) -> Iterator[Measure]:
    """The total of 32 sites' messages beside Flower's FedAvg of as many float32 vectors of as many entries."""
    if why := missing():
        print(f"Flower's strategy: left out, {why}.")
        return
    from speed import flower

    recipe = made.recipe(("B",))
    x, y = made.rows(rng, 100 * SITES)
    messages = [Message.of(made.moments(recipe, x[i::SITES], y[i::SITES]), recipe, f"site-{i}") for i in range(SITES)]
    entries = sum(block.size for block in messages[0].moments.blocks.values())
    vectors = [rng.normal(size=entries).astype(np.float32) for _ in messages]
    what, vector = f"{SITES} messages, B of {CLASSES} classes, {DIM}-d", f"float32 vectors of {entries:,} entries"
    replies, stored = flower.replies(vectors), flower.stored(vectors)
    yield against(
        "flower_add",
        f"{what}: added to a total",
        lambda: Total.of(messages, recipe),
        f"Flower's FedAvg.aggregate_train of {SITES} {vector}",
        lambda: flower.average(replies),
    )
    sent = [message.to_bytes() for message in messages]
    yield against(
        "flower_from_bytes",
        f"{what}: from bytes, checked, added to a total",
        lambda: Total.of([Message.from_bytes(data, recipe) for data in sent], recipe),
        f"as many {vector}, from the engine's stored bytes through FedAvg.aggregate_train",
        lambda: flower.average(flower.inflated(stored)),
    )


def _masks(rng: np.random.Generator, entries: int = 1_000_000, seeds: int = 8) -> Iterator[Measure]:
    values, keys = rng.integers(-1000, 1001, size=entries), [rng.bytes(32) for _ in range(seeds)]
    for bits in RING_BITS:
        ring = Ring(bits)
        total = ring.unpack(ring.mask(values, 1000, plus=keys), entries)
        stream = entries * (ring.width if bits <= 40 else 8)
        passes = (f"{seeds} AES-256-CTR passes over as many bytes as the masks are made of", aes_passes(stream, seeds))
        yield against(
            f"masking_{bits}",
            f"10⁶ entries of {bits} bits under {seeds} masks, packed",
            lambda ring=ring: ring.mask(values, 1000, plus=keys),
            *passes,
            at_most=2.0,
        )
        yield against(
            f"unmasking_{bits}",
            f"10⁶ entries of {bits} bits, {seeds} masks taken away",
            lambda ring=ring, total=total: ring.unmask(total, minus=keys),
            *passes,
            at_most=2.0,
        )


def aes_passes(size: int, passes: int) -> Callable[[], None]:
    """So many passes of AES-256-CTR over so many bytes."""
    content, room = bytes(size), bytearray(size + 15)

    def work() -> None:
        for _ in range(passes):
            Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update_into(content, room)

    return work
