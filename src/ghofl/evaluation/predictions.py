"""Predictions of a stream of rows as a table, a block at a time: CSV, JSON lines or Parquet."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ghofl import files
from ghofl.classifier import Classifier
from ghofl.encoders.streaming import Block, Stream
from ghofl.errors import DatasetError, MissingExtraError

Columns = dict[str, list[Any]]
Write = Callable[[Columns], None]
Progress = Callable[[str, int, int], None]
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
DIGITS = 6  # of a probability in a text


@dataclass(frozen=True, slots=True)
class Extras:
    """What a table of predictions has besides the label and its probability.

    The `top` most probable classes, the probability of `every` class, and with `reject` (a share such as 0.05) the
    novelty; rows that fit none of the classes then have no label.
    """

    top: int = 0
    every: bool = False
    reject: float | None = None


def predict_stream(
    classifier: Classifier, stream: Stream, write: Write, extras: Extras, progress: Progress | None = None
) -> tuple[int, int]:
    """Write the predictions of all rows; returns how many there are, and how many of them have no label."""
    no_rows = Block(np.zeros((0, classifier.recipe.encoder.dim)), np.zeros(0, dtype=np.int64), [])
    columns = _columns(classifier, no_rows, stream.key, extras)
    _check_names(columns, classifier, stream.key, extras)
    write(columns)  # so that there is a header even without rows
    rows = without = 0
    for block in stream.blocks:
        columns = _columns(classifier, block, stream.key, extras)
        write(columns)
        rows += len(columns["row"])
        without += columns["label"].count("")
        if progress is not None:
            progress("rows", rows, stream.rows or 0)
    return rows, without


@contextmanager
def open_table(path: Path) -> Iterator[Write]:
    """A function that writes columns, block after block, to a file (whole or not at all) or, for '-', standard output."""
    if str(path) == "-":
        yield _at_once(sys.stdout)
        return
    with files.open_to_replace(path) as file:
        if path.suffix == ".parquet":
            with _parquet(file, path) as write:
                yield write
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        yield _json_lines(text) if path.suffix == ".jsonl" else _delimited(text, "\t" if path.suffix == ".tsv" else ",")
        text.detach()


def _at_once(out: TextIO) -> Write:
    """Blocks as CSV, each written when it comes: whoever reads a pipe need not wait for the next one."""
    text = io.StringIO()
    write = _delimited(text, ",")

    def write_block(columns: Columns) -> None:
        write(columns)
        out.write(text.getvalue())
        out.flush()
        text.seek(0)
        text.truncate()

    return write_block


def _columns(classifier: Classifier, block: Block, key: str, extras: Extras) -> Columns:
    """The columns of some rows. A row that fits none of the classes has no label, but its largest probability."""
    names, probabilities = [*classifier.recipe.classes, ""], classifier.predict_proba(block.x)
    best, novelty, n = classifier.decide(probabilities), None, len(block.x)
    if extras.reject is not None:
        novelty = classifier.novelty(block.x)
        best = np.where(novelty > classifier.novelty_threshold(extras.reject), -1, best)
    of_best = np.where(best < 0, probabilities.max(axis=1), probabilities[np.arange(n), best])
    out: Columns = {"row": block.rows.tolist()}
    if key:
        # Bytes of a file name that are not UTF-8, which no table can hold, are written as escapes.
        texts = ((each, isinstance(each, str)) for each in block.ids or [])
        out[key] = [each.encode("utf-8", "backslashreplace").decode() if is_text else each for each, is_text in texts]
    out |= {"label": [names[c] for c in best.tolist()], "probability": of_best.tolist()}
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, : extras.top]
    for i in range(order.shape[1]):
        out[f"label_{i + 1}"] = [names[c] for c in order[:, i].tolist()]
        out[f"probability_{i + 1}"] = probabilities[np.arange(n), order[:, i]].tolist()
    if extras.every:
        out |= {f"p_{name}": probabilities[:, c].tolist() for c, name in enumerate(classifier.recipe.classes)}
    return out | ({} if novelty is None else {"novelty": novelty.tolist()})


def _check_names(columns: Columns, classifier: Classifier, key: str, extras: Extras) -> None:
    """Raise where the column of ids has the name of another column."""
    top = min(extras.top, len(classifier.recipe.classes))
    expected = 3 + bool(key) + 2 * top + (extras.reject is not None)
    expected += len(classifier.recipe.classes) if extras.every else 0
    if len(columns) != expected:
        raise DatasetError(
            f"ids are called {key!r}, as is a column of the predictions; rename that column of the data, or choose another."
        )


def _delimited(text: Any, delimiter: str) -> Write:
    is_begun = []

    def write(columns: Columns) -> None:
        if not is_begun:
            files.write_csv(text, [columns], delimiter)
            is_begun.append(True)
        texts = [_texts(values) for values in columns.values()]
        files.write_csv(text, zip(*texts, strict=True), delimiter)

    return write


def _texts(values: list[Any]) -> list[Any]:
    return [f"{value:.{DIGITS}f}" for value in values] if values and isinstance(values[0], float) else values


def _json_lines(text: Any) -> Write:
    def write(columns: Columns) -> None:
        for row in zip(*columns.values(), strict=True):
            text.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")

    return write


@contextmanager
def _parquet(file: Any, path: Path) -> Iterator[Write]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    writers: list[Any] = []
    held: list[Columns] = []  # the columns without rows, until the first rows show the type of the ids

    def write(columns: Columns) -> None:
        held[:] = [columns]
        if not columns["row"]:
            return
        try:
            table = pyarrow.table(columns, schema=writers[0].schema if writers else None)
        except pyarrow.ArrowException:
            raise DatasetError(
                f"{path}: ids are numbers in some rows and texts in others; write a .csv instead."
            ) from None
        if not writers:
            writers.append(parquet.ParquetWriter(file, table.schema))
        writers[0].write_table(table)

    try:
        yield write
        if not writers:
            parquet.write_table(pyarrow.table(held[0]), file)
    finally:
        for writer in writers:
            writer.close()
