"""Rows on disk that survive a kill: whole batches are kept, a half-written one is dropped."""

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from ghofl import files
from ghofl.errors import EmbeddingsError
from ghofl.shapes import Float32

ROWS, BATCHES, PLAN = "rows.f32", "batches.jsonl", "plan.json"


class Journal:
    """A folder of finished batches, open for one process at a time.

    A batch's rows go to one file, then a line about them to another. A line is valid if its rows are there and
    have its checksum; whatever follows the last valid line is cut off when the folder is opened again. Only its owner
    can read it, because rows are samples in another form.
    """

    def __init__(self, folder: Path, plan: dict[str, Any], dim: int) -> None:
        files.private_folder(folder)
        self.folder, self.dim = folder, dim
        self._lines: BinaryIO = files.open_private(folder / BATCHES)
        if not files.try_lock(self._lines):
            self._lines.close()
            raise EmbeddingsError(
                f"another process is at work in {folder}; wait for it, or choose another folder with --cache."
            )
        self._rows: BinaryIO = files.open_private(folder / ROWS)
        self.plan = self._load_plan(plan)
        self.batches = self._recover()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
        self._lines.close()

    def append(self, x: Float32[np.ndarray, "n dim"], bad: Sequence[tuple[int, str]]) -> None:
        """Keep a batch: its rows, and the samples of it that could not be read."""
        data = np.ascontiguousarray(x, dtype="<f4").tobytes()
        self._rows.write(data)
        self._rows.flush()
        line = {"rows": len(x), "crc32": zlib.crc32(data), "bad": [list(pair) for pair in bad]}
        self._lines.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._lines.flush()
        self.batches.append(line)

    @property
    def bad(self) -> list[tuple[int, str]]:
        """Every sample so far that could not be read, and why."""
        return [(int(i), str(why)) for batch in self.batches for i, why in batch["bad"]]

    def rows(self) -> Float32[np.ndarray, "n dim"]:
        """All rows so far, read from disk when they are needed."""
        count = sum(batch["rows"] for batch in self.batches)
        if not count:
            return np.zeros((0, self.dim), dtype=np.float32)
        return np.memmap(self.folder / ROWS, dtype="<f4", mode="r", shape=(count, self.dim))

    def _load_plan(self, plan: dict[str, Any]) -> dict[str, Any]:
        """The plan that the folder was started with; the given one where it is new."""
        path = self.folder / PLAN
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            for file in (self._lines, self._rows):
                file.truncate(0)
            files.write(path, json.dumps(plan, indent=1) + "\n", files.PRIVATE)
            return plan

    def _recover(self) -> list[dict[str, Any]]:
        """The finished batches; whatever follows them in both files is cut off."""
        self._lines.seek(0)
        self._rows.seek(0)
        batches: list[dict[str, Any]] = []
        lines_end = rows_end = 0
        for line in self._lines:
            batch = _parse(line)
            data = self._rows.read(4 * self.dim * batch["rows"]) if batch else b""
            if batch is None or len(data) != 4 * self.dim * batch["rows"] or zlib.crc32(data) != batch["crc32"]:
                break
            batches.append(batch)
            lines_end, rows_end = lines_end + len(line), rows_end + len(data)
        self._lines.truncate(lines_end)
        self._rows.truncate(rows_end)
        return batches


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        batch = json.loads(line)
        return batch if line.endswith(b"\n") and batch["rows"] >= 0 and batch["crc32"] >= 0 and "bad" in batch else None
    except (ValueError, TypeError, KeyError):
        return None
