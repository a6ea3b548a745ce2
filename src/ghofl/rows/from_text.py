"""Tables of text: CSV, TSV and JSON lines, with nothing but Python."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from ghofl.errors import DatasetError
from ghofl.rows.reader import BLOCK, OpenFile

SUFFIXES = (".csv", ".tsv", ".jsonl")
LONGEST = min(sys.maxsize, 2**31 - 1)  # characters of a field


@contextmanager
def open_text(path: Path) -> Iterator[OpenFile]:
    """An open table of text. Cells are texts as they are in the file, or in JSON lines the values there.

    The first line of a CSV decides whether commas, semicolons or tabs separate its columns.
    """
    names = next(_lines(path))

    def blocks(wanted: Sequence[str], size: int) -> Iterator[dict[str, list[Any]]]:
        lines = _lines(path)
        header = next(lines)
        places = [header.index(name) for name in wanted]
        some = list(islice(lines, size or BLOCK))
        while True:
            yield {name: [row[i] for row in some] for name, i in zip(wanted, places, strict=True)}
            if not (some := list(islice(lines, size or BLOCK))):
                return

    yield OpenFile(names, lambda _: (None,), blocks)


def lines_of(path: Path) -> Iterator[int | None]:
    """The line of a CSV or TSV in which each row begins, as a quoted field may span several; None for other files."""
    if path.suffix not in (".csv", ".tsv"):
        yield from repeat(None)
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=_delimiter(path), strict=True)
        next(rows)
        line = rows.line_num + 1
        for _ in rows:
            yield line
            line = rows.line_num + 1


def _lines(path: Path) -> Iterator[list[Any]]:
    """The names of the columns, then the cells of each row."""
    try:
        yield from (_json_lines if path.suffix == ".jsonl" else _delimited)(path)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def _delimiter(path: Path) -> str:
    if path.suffix == ".tsv":
        return "\t"
    with open(path, encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    return max(",;\t", key=lambda mark: len(next(csv.reader([first], delimiter=mark), ())))


def _delimited(path: Path) -> Iterator[list[str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=_delimiter(path), strict=True)
        try:
            each = _with_long_fields(rows)
            header = next(each, None)
            if header is None:
                raise DatasetError(f"{path} is empty; write the names of the columns in its first line.")
            if len(set(header)) < len(header):
                raise DatasetError(f"{path} names a column twice in its first line; give every column its own name.")
            yield header
            for row in each:
                if len(row) != len(header):
                    advice = (
                        "quote fields that hold the delimiter, such as decimal commas"
                        if row
                        else "remove lines without anything"
                    )
                    raise DatasetError(
                        f"{path}, line {rows.line_num} has {len(row)} fields and the header names {len(header)}; {advice}."
                    )
                yield row
        except csv.Error as error:
            raise DatasetError(f"{path}, line {rows.line_num}: {error}; repair the quotes there.") from None


def _with_long_fields(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Rows whose fields may have any length; in between, the limit of the process is as it was."""
    while True:
        before = csv.field_size_limit(LONGEST)
        try:
            row = next(rows, None)
        finally:
            csv.field_size_limit(before)
        if row is None:
            return
        yield row


def _json_lines(path: Path) -> Iterator[list[Any]]:
    """The first record names the columns; a file without one has none."""
    header: list[str] | None = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:  # also for numbers of thousands of digits, or deep nesting
                raise DatasetError(f"{path}, record {number} is not JSON that can be read: {error}.") from None
            if not isinstance(record, dict) or (header is not None and set(record) != set(header)):
                raise DatasetError(
                    f"{path}, record {number} has other fields than the first; write the same fields in every line."
                )
            if header is None:
                yield (header := list(record))
            yield [record[name] for name in header]
    if header is None:
        yield []
