"""Run the benchmarks and write results/*.json and results/README.md: `make bench`, or with names of parts."""

import json
import sys
from pathlib import Path

import accuracy
import data
import grid
import speed

RESULTS = Path(__file__).parent / "results"
PARTS = {"speed": speed.run, "accuracy": accuracy.run, "grid": grid.run}


def main(names: list[str]) -> None:
    """Run the named parts, or all, and write the page from everything measured so far."""
    for name in names or PARTS:
        if name not in PARTS:
            sys.exit(f"{name!r} is no part of the benchmarks; known are {', '.join(PARTS)}.")
        if name != "speed" and not data.is_there():
            print(f"{name}: left out, no real embeddings at {data.FOLDER}; set GHOFL_DATA to the folder that has them.")
            continue
        result = PARTS[name]()
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (RESULTS / "README.md").write_text(page())


def page() -> str:
    """Everything measured so far, as Markdown."""
    parts = ["# Results\n\nWritten by `make bench`; real embeddings are those of MobileNetV2 (ImageNet-1K), 1280-d.\n"]
    stored = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    if "speed" in stored:
        parts.append("\n## Speed, ratios in one run\n\n" + speed.table(stored["speed"]) + "\n")
    if "accuracy" in stored:
        parts.append("\n## Accuracy and payload\n" + "\n".join(map(accuracy.table, stored["accuracy"])) + "\n")
    if "grid" in stored:
        parts.append(
            "\n## Grid against accuracy and bytes\n\nTen clients of 5,000 rows; paper presets; 'paper' is its float32 "
            "message.\n\n" + grid.table(stored["grid"]) + "\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    main(sys.argv[1:])
