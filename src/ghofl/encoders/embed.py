"""Samples become a file of embeddings, or moments directly; a run that was killed continues where it stopped."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import encoders
from ghofl.compute.threads import prefetch
from ghofl.encoders import Precomputed, Runtime, Sample, SampleEncoder, Views, ViewsRequest, check_kind, cores, identity
from ghofl.encoders.journal import Journal
from ghofl.errors import DatasetError, EmbeddingsError, SampleError
from ghofl.recipe.labels import class_numbers, numbers_row_by_row
from ghofl.rows.base import Samples, digest_of
from ghofl.rows.embeddings import Rows, save_rows
from ghofl.rows.loading import Columns, load_samples
from ghofl.shapes import Float32, Int64

Progress = Callable[[str, int, int], None]
Bad = tuple[int, str]

# Larger batches gain nothing: caches overflow on a CPU sooner than memory does.
LARGEST_BATCH = {"image": 32, "text": 1024, "row": 8192}
LARGEST_BATCH_ON_A_GPU = {"image": 512, "text": 4096, "row": 8192}
IMAGES_PER_CORE = 8
SHARE_OF_MEMORY = 8
AHEAD = 2
READERS = min(8, cores())


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedSamples:
    """Rows in the order of the samples, and the samples left out because they could not be read."""

    rows: Rows
    bad: list[Bad] = field(repr=False)
    resumed: int


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedFile:
    """What a file of embeddings was written from: its encoder, rows per split, and each sample left out with the reason.

    `resumed` counts the samples whose embeddings an earlier run had left in the cache.
    """

    encoder: SampleEncoder
    rows: dict[str, int]
    resumed: int
    bad: tuple[tuple[str, str], ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values."""
        return {
            "encoder": self.encoder.name,
            "fingerprint": self.encoder.fingerprint,
            "views": identity(self.encoder).views,
            "dim": self.encoder.dim,
            "rows": self.rows,
            "resumed": self.resumed,
            "bad": [{"sample": name, "reason": why} for name, why in self.bad],
        }


def embed_file(
    spec: str,
    data: str,
    output: str | Path,
    splits: Sequence[str] = ("",),
    *,
    columns: Columns | None = None,
    runtime: Runtime | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    views: Views | ViewsRequest | None = None,
) -> EmbeddedFile:
    """Embed the samples of some splits of `data` and write them to one file; a single split keeps no name in it."""
    samples = {name: load_samples(data, name, columns) for name in dict.fromkeys(splits)}
    first, report = next(iter(samples.values())), progress or (lambda *_: None)
    report("loading the encoder", 0, 0)
    encoder = load_encoder(spec, first, runtime, weights=weights, pooling=pooling, fit=fit, views=views)
    report("loading the encoder", 1, 1)
    parts = {
        name: embed(
            found, encoder, default_cache(), runtime=runtime, skip_bad=skip_bad,
            progress=lambda what, done, of, name=name: report(f"{name} {what}".strip(), done, of),
        )
        for name, found in samples.items()
    }  # fmt: skip
    rows = {name if len(parts) > 1 else "": part.rows for name, part in parts.items()}
    save_rows(output, rows, identity(encoder))
    bad = tuple((samples[name].names[i], why) for name, part in parts.items() for i, why in part.bad)
    resumed = sum(part.resumed for part in parts.values())
    return EmbeddedFile(encoder, {name: len(part.rows.x) for name, part in parts.items()}, resumed, bad)


def load_encoder(
    spec: str,
    samples: Samples,
    runtime: Runtime | None = None,
    *,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    views: Views | ViewsRequest | None = None,
    dim: int | None = None,
) -> SampleEncoder:
    """The encoder of a spec for these samples; embeddings from a file keep the encoder that the file names.

    Otherwise they have `dim` numbers, or as many as the first of them.
    """
    if samples.kind != "row" or not spec.startswith("precomputed:"):
        return encoders.load(spec, runtime, weights=weights, pooling=pooling, fit=fit, views=views)
    if (made_by := samples.made_by) is not None and spec == "precomputed:":
        return Precomputed(made_by.name, made_by.dim, made_by.fingerprint)
    return encoders.load(spec, runtime, dim=len(samples.read(0)) if dim is None else dim)


def embed(
    samples: Samples,
    encoder: SampleEncoder,
    cache: Path,
    *,
    runtime: Runtime | None = None,
    batch_size: int = 0,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> EmbeddedSamples:
    """The embeddings of samples, each batch kept in `cache` as soon as it is computed.

    Guarantees
    ----------
    The rows are those of an undisturbed run, to the byte, however often and wherever the process was killed: the
    folder in the cache is named by the encoder's fingerprint, precision and device, and by the samples, and keeps
    the batch size it was begun with. No finished batch is computed again.
    """
    check_kind(encoder, samples.kind)
    runtime = runtime or Runtime()
    size = batch_size or batch_size_for(encoder, runtime.device)
    key = digest_of(
        [encoder.fingerprint, encoder.name, runtime.precision, runtime.device, str(batch_size), samples.digest()]
    )
    with Journal(cache / encoder.fingerprint[:16] / key[:32], {"batch_size": size}, encoder.dim) as journal:
        size, done = journal.plan["batch_size"], len(journal.batches)
        starts = range(done * size, len(samples), size)
        report = progress or (lambda *_: None)
        report("samples", min(done * size, len(samples)), len(samples))
        for start, (x, bad) in zip(starts, _encode(samples, encoder, starts, size, skip_bad), strict=True):
            journal.append(x, bad)
            report("samples", min(start + size, len(samples)), len(samples))
        _check_bad(journal.bad, skip_bad)
        return EmbeddedSamples(_rows(journal, samples, encoder), journal.bad, min(done * size, len(samples)))


def encode_labelled(
    samples: Samples,
    encoder: SampleEncoder,
    classes: tuple[str, ...],
    *,
    runtime: Runtime | None = None,
    batch_size: int = 0,
    skip_bad: bool = False,
    labels_are_numbers: bool = False,
    row_by_row: bool = False,
    progress: Progress | None = None,
    bad: list[Bad] | None = None,
) -> Iterator[tuple[Float32[np.ndarray, "n dim"], Int64[np.ndarray, " n"]]]:
    """Embeddings and class numbers of samples, batch by batch, written nowhere; those left out are added to `bad`.

    With `row_by_row`, a label that is not a class is −1 (see `numbers_row_by_row`).
    """
    y = _class_numbers(samples, classes, labels_are_numbers, row_by_row)
    blocks = encode_samples(
        samples, encoder, runtime=runtime, batch_size=batch_size, skip_bad=skip_bad, progress=progress, bad=bad
    )
    for x, kept in blocks:
        yield x, y[kept]


def encode_samples(
    samples: Samples,
    encoder: SampleEncoder,
    *,
    runtime: Runtime | None = None,
    batch_size: int = 0,
    skip_bad: bool = False,
    progress: Progress | None = None,
    bad: list[Bad] | None = None,
) -> Iterator[tuple[Float32[np.ndarray, "n dim"], Int64[np.ndarray, " n"]]]:
    """Embeddings and positions of samples, batch by batch, written nowhere; those left out are added to `bad`."""
    check_kind(encoder, samples.kind)
    size = batch_size or batch_size_for(encoder, (runtime or Runtime()).device)
    starts = range(0, len(samples), size)
    for start, (x, left_out) in zip(starts, _encode(samples, encoder, starts, size, skip_bad), strict=True):
        if bad is not None:
            bad += left_out
        yield x, np.delete(np.arange(start, min(start + size, len(samples))), [i - start for i, _ in left_out])
        if progress is not None:
            progress("samples", min(start + size, len(samples)), len(samples))


def batch_size_for(encoder: SampleEncoder, device: str = "cpu") -> int:
    """How many samples fit into an eighth of the memory, rounded down to a power of two.

    It follows from the machine's whole memory, not from what is free now, so that two runs choose alike.
    """
    is_gpu = not device.startswith("cpu")
    largest = (LARGEST_BATCH_ON_A_GPU if is_gpu else LARGEST_BATCH)[encoder.kind]
    if not is_gpu and encoder.kind == "image":
        largest = max(largest, IMAGES_PER_CORE * cores())
    fits = _memory(device) // SHARE_OF_MEMORY // encoder.sample_bytes
    return 1 << (max(1, min(largest, fits)).bit_length() - 1)


def default_cache() -> Path:
    """Where finished batches are kept: under XDG_CACHE_HOME, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ghofl" / "embeddings"


def _encode(
    samples: Samples, encoder: SampleEncoder, starts: range, size: int, skip_bad: bool
) -> Iterator[tuple[Float32[np.ndarray, "n dim"], list[Bad]]]:
    """Each batch's rows and bad samples; another thread reads ahead of the encoding."""
    bad_of: list[list[Bad]] = []
    _check_bad(samples.unlabelled(), skip_bad)  # at once, and not after hours of encoding

    def batches() -> Iterator[list]:
        with ThreadPoolExecutor(READERS) as pool:
            for start in starts:
                good, bad = _read(samples, range(start, min(start + size, len(samples))), pool)
                _check_bad(bad, skip_bad)
                bad_of.append(bad)
                yield good

    rows = encoder.encode(prefetch(batches(), AHEAD))
    for i, x in enumerate(rows):
        x = np.asarray(x, dtype=np.float32)
        if not np.isfinite(x).all():
            if skip_bad:
                yield _finite(x, bad_of[i], range(starts[i], min(starts[i] + size, len(samples))), samples, encoder)
                continue
            raise EmbeddingsError(
                f"{encoder.name} gave numbers that are not finite for a sample between {samples.names[starts[i]]} and "
                f"the {len(x)} after it; its weights may be damaged."
            )
        yield x, bad_of[i]


def _finite(
    x: np.ndarray, bad: Sequence[Bad], positions: range, samples: Samples, encoder: SampleEncoder
) -> tuple[Float32[np.ndarray, "n dim"], list[Bad]]:
    """The finite rows of a batch; the samples of the others are bad ones too."""
    read = np.setdiff1d(np.array(positions, dtype=np.int64), [i for i, _ in bad])
    is_finite = np.isfinite(x).all(axis=1)
    more = [
        (int(i), f"{encoder.name} gave numbers that are not finite for {samples.names[i]}.") for i in read[~is_finite]
    ]
    return x[is_finite], sorted([*bad, *more])


def _read(samples: Samples, positions: Iterable[int], pool: ThreadPoolExecutor) -> tuple[list, list[Bad]]:
    def one(i: int) -> tuple[int, Sample | SampleError]:
        try:
            return i, samples.read(i)
        except SampleError as error:
            return i, error

    # Decoding an image releases Python's lock; handing a text to a thread would cost more than reading it.
    read = list((pool.map if samples.kind == "image" else map)(one, positions))
    bad = [(i, str(sample)) for i, sample in read if isinstance(sample, SampleError)]
    return [sample for _, sample in read if not isinstance(sample, SampleError)], bad


def _rows(journal: Journal, samples: Samples, encoder: SampleEncoder) -> Rows:
    kept = np.delete(np.arange(len(samples)), [i for i, _ in journal.bad])
    labels = None if samples.labels is None else samples.labels[kept]
    return Rows(journal.rows(), labels, identity(encoder))


def _check_bad(bad: Sequence[Bad], skip_bad: bool) -> None:
    """Raise for a bad sample unless told to skip it; a finished run in the cache may have skipped some."""
    if bad and not skip_bad:
        more = f" {len(bad) - 1:,} more are bad as well." if len(bad) > 1 else ""
        raise SampleError(f"{bad[0][1]}{more} Repair or remove it, or leave such samples out with --skip-bad.")


def _class_numbers(
    samples: Samples, classes: tuple[str, ...], labels_are_numbers: bool, row_by_row: bool
) -> Int64[np.ndarray, " n"]:
    if samples.labels is None:
        raise DatasetError(
            "the data has no labels, and moments are sums per class; put photos into one folder per class, or name a table's "
            "column of labels (--label-column)."
        )
    if row_by_row:
        return numbers_row_by_row(samples.labels, classes, labels_are_numbers)
    return class_numbers(samples.labels, classes, labels_are_numbers, may_be_missing=True)  # they are bad samples


def _memory(device: str) -> int:
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(torch.device(device)).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
