"""Big sites, many messages, busy machines: seconds and peak memory of whole commands beside named references.

    python benchmarks/scale.py moments sum imagenet by_class --folder /large/disk --json benchmarks/results/scale.json

Every stage is a process of its own, so that its peak memory is its own: `peak_mb` is all of it, `anonymous_mb` what lies
nowhere else, and `mapped_mb` pages of files, which the system takes back where others need memory. Ours and the reference
run in turns, alone and beside a process that keeps two BLAS threads busy; what the machine does otherwise is stored as
its load.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import ratios

from ghofl import Encoder, Grid, Layout, Limits, Message, Moments, Recipe, Sketch

CLASSES, DIM = 1000, 2048
READ_AND_MULTIPLY = """
import sys, numpy as np
x, b = np.load(sys.argv[1]), 0.0
for start in range(0, len(x), 8192):
    z = x[start : start + 8192].astype(np.float32)
    b = b + z.T @ z
"""
READ_HASH_UNPACK = """
import sys, hashlib
from pathlib import Path
from safetensors.numpy import load
from ghofl import Layout, Recipe
from ghofl.wire.packing import unpack
layout = Layout.of(Recipe.load(sys.argv[2]))
for path in sorted(Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    hashlib.sha256(data).digest()
    digest = layout.digest()
    digest.update(unpack(load(data)["entries"], layout.entries).data)
"""
INTRODUCTION = """Whole commands as processes of their own, in turns with their references, by
`benchmarks/scale.py`: moments of 200,000 × 2,048 float16 rows, 1,000 classes, B, against reading the file and one float32
product of its rows; a folder of messages (10 classes, 64-d, B) against reading, hashing and unpacking them. Ratios of CPU
time depend little on what else runs. Below them every command from rows on disk to a scored head of ImageNet's size,
with B and a sketch of 64 dimensions, and with one matrix per class (S), which lies on disk; peak memory is that of the
process, with the pages of files that it looked at.

"""
BUSY = """
import numpy as np
from ghofl_benchmarks import made
a = np.ones((2048, 2048), np.float32)
while True:
    a @ a
"""


def stage(*command: str) -> dict:
    """Wall and CPU seconds and peak memory of a command, and how many processes wanted the machine meanwhile."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    peaks: dict[str, int] = {}
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        for name, kilobytes in memory_of(process.pid).items():
            peaks[name] = max(peaks.get(name, 0), kilobytes)
        time.sleep(0.02)
    _, status, used = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} ended with {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(peaks.get("VmHWM", used.ru_maxrss) / 1024),
        "anonymous_mb": round(peaks.get("RssAnon", 0) / 1024),
        "mapped_mb": round(peaks.get("RssFile", 0) / 1024),
        "load": round(os.getloadavg()[0], 1),
    }


def memory_of(process: int) -> dict[str, int]:
    """Kilobytes that a process has: the most so far, its own, and pages of files; nothing where that is not told."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    told = (line.split()[:2] for line in lines if line.startswith(("VmHWM", "RssAnon", "RssFile")))
    return {name.rstrip(":"): int(kilobytes) for name, kilobytes in told}


def in_turns(ours: Sequence[str], reference: Sequence[str], turns: int) -> dict:
    """Both commands in turns; the ratios are those of the medians."""
    runs = [(stage(*ours), stage(*reference)) for _ in range(turns)]
    mine, theirs = (list(found) for found in zip(*runs, strict=True))

    def ratio(key: str) -> float:
        return round(statistics.median(r[key] for r in mine) / statistics.median(r[key] for r in theirs), 3)

    return {"ours": mine, "reference": theirs, "ratio": ratio("seconds"), "cpu_ratio": ratio("cpu_seconds")}


def write_rows(path: Path, rows: int, classes: int = CLASSES, seed: int = 1) -> None:
    """Rectified float16 rows around the means of their classes, and their labels beside them."""
    if path.exists():
        return
    means = 0.3 * np.random.default_rng(0).standard_normal((classes, DIM), dtype=np.float32)
    rng = np.random.default_rng(seed)
    out = np.lib.format.open_memmap(path, "w+", np.float16, (rows, DIM))
    noise = np.maximum(rng.standard_normal((8192, DIM), dtype=np.float32), -0.5)
    y = rng.integers(classes, size=rows)
    for start in range(0, rows, 8192):
        some = y[start : start + 8192]
        out[start : start + 8192] = np.roll(noise[: len(some)], 37 * (start // 8192) + 1, axis=1) + means[some]
    np.save(path.with_suffix(".labels.npy"), y)


def moments(folder: Path, turns: int, is_quiet: bool) -> dict:
    """`ghofl moments` of 200,000 × 2,048 float16 rows, 1,000 classes, B; reading the file and the bare product."""
    rows, agreed = folder / "rows.npy", folder / "b.toml"
    write_rows(rows, 200_000)
    recipe_of("B", 200_000).save(agreed)
    ours = ("-m", "ghofl", "moments", str(rows), "-r", str(agreed), "-o", str(folder / "m.ghofl"), "--force")
    reference = ("-c", READ_AND_MULTIPLY, str(rows))
    found = {"as the machine is": in_turns(ours, reference, turns)}
    if not is_quiet:
        return found
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        found["beside a busy process"] = in_turns(ours, reference, turns)
    finally:
        busy.kill()
        busy.wait()
    return found


def many_messages(folder: Path, turns: int, messages: int) -> dict:
    """`ghofl sum FOLDER` of many messages (10 classes, k = 64, B); reading, hashing and unpacking them."""
    inbox, agreed = folder / f"messages-{messages}", folder / "messages.toml"
    inbox.mkdir(exist_ok=True)
    recipe = Recipe(tuple(map(str, range(10))), Encoder(dim=64), ("B",), grid=Grid(bits=8))
    recipe.save(agreed)
    rng, layout = np.random.default_rng(0), Layout.of(recipe)
    some = [Moments.of(rng.integers(-60, 61, size=(50, 64)), rng.integers(10, size=50), layout) for _ in range(20)]
    for i in range(messages):
        path = inbox / f"site-{i:06d}.ghofl"
        if not path.exists():
            path.write_bytes(Message.of(some[i % 20], recipe, path.stem).to_bytes())
    ours = ("-m", "ghofl", "sum", str(inbox), "-r", str(agreed), "-o", str(folder / "t.ghofl"), "--force")
    found = in_turns(ours, ("-c", READ_HASH_UNPACK, str(inbox), str(agreed)), turns)
    return {"messages": messages, **found}


def imagenet(folder: Path, count: int, classes: int) -> dict:
    """So many × 2,048 float16 rows from disk to heads of B and a sketch, every command with its peak memory."""
    return from_disk(folder, recipe_of("B", count, classes, Sketch(dim=64)), count, ("lda", "ridge", "sketched_qda"))


def by_class(folder: Path, count: int, classes: int, heads: Sequence[str]) -> dict:
    """The same with a matrix per class: 16.8 GB of sums at 1,000 classes, and as much again twice for RDA and Student."""
    return from_disk(folder, recipe_of("S", count, classes), count, heads)


def recipe_of(statistic: str, rows: int, classes: int = CLASSES, sketch: Sketch | None = None) -> Recipe:
    """A recipe for so many rows of one site."""
    names, grid, limits = tuple(map(str, range(classes))), Grid(scale=30.0), Limits(max_rows=max(rows, 10**6))
    return Recipe(names, Encoder(dim=DIM), (statistic,), grid=grid, sketch=sketch, limits=limits)


def from_disk(folder: Path, recipe: Recipe, count: int, heads: Sequence[str]) -> dict:
    """Every command from rows on disk to heads that scored 1,000 others; files go as soon as nobody reads them."""
    classes, kind = len(recipe.classes), "".join(recipe.statistics)
    agreed, rows, test = folder / f"{kind}.toml", folder / f"big-{classes}-{count}.npy", folder / f"test-{classes}.npy"
    message, total, result = (str(folder / f"{kind}-{name}") for name in ("message", "total", "result"))
    recipe.save(agreed)
    write_rows(test, 1000, classes, seed=2)
    holds = recipe.statistics[-1] + (", sketch" if recipe.sketch else "")
    found: dict = {"rows": count, "classes": classes, "holds": holds}

    def run(name: str, *command: str) -> None:
        found[name] = stage("-m", "ghofl", *command, "--force")
        print(name, found[name], flush=True)

    if not Path(total).exists():
        write_rows(rows, count, classes)
        run("moments", "moments", str(rows), "-r", str(agreed), "-o", message)
        found["moments"]["message_mb"] = round(Path(message).stat().st_size / 2**20)
        run("sum", "sum", message, "-r", str(agreed), "-o", total)
        Path(message).unlink()
    for head in heads:
        path = folder / f"{head}.safetensors"
        run(f"fit {head}", "head", total, "--head", head, "-o", str(path))
        found[f"fit {head}"]["head_mb"] = round(path.stat().st_size / 2**20)
        run(f"score {head}", "evaluate", str(path), str(test), "--json", result)
        found[f"score {head}"]["accuracy"] = json.loads(Path(result).read_text())["accuracy"]
        path.unlink()
    Path(total).unlink()
    return found


def measures(run: dict) -> list[ratios.Measure]:
    """What was run in turns with a reference: seconds on the clock, CPU seconds, and the peaks of either."""
    found = {f"moments {name}": comparison for name, comparison in run.get("moments", {}).items()}
    found |= {"sum": run["sum"]} if "sum" in run else {}
    out = []
    for name, comparison in found.items():
        mine, theirs = comparison["ours"], comparison["reference"]
        peaks = (max(r["peak_mb"] for r in mine), max(r["peak_mb"] for r in theirs))
        for clock, title in (("seconds", ""), ("cpu_seconds", ", CPU")):
            times = (tuple(r[clock] for r in runs) for runs in (mine, theirs))
            key = f"scale_{name}{title}".replace(", ", "_").replace(" ", "_")
            out.append(ratios.Measure(key, f"{name}{title}", "the bare work of the same files", *times, peak_mb=peaks))
    return out


def table(run: dict) -> str:
    """The results as Markdown."""
    lines = [
        "| what | ours, s | reference, s | ratio | ratio of CPU time | peak memory |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    comparisons = {f"moments, {name}": found for name, found in run.get("moments", {}).items()}
    comparisons |= {f"sum of {run['sum']['messages']:,} messages": run["sum"]} if "sum" in run else {}
    for name, found in comparisons.items():
        mine, theirs = (statistics.median(r["seconds"] for r in found[key]) for key in ("ours", "reference"))
        peak = max(r["peak_mb"] for r in found["ours"])
        lines.append(
            f"| {name} | {mine:.1f} | {theirs:.1f} | {found['ratio']:.2f} | {found['cpu_ratio']:.2f} | {peak:,} MB |"
        )
    of_size = [run["imagenet"]] if "imagenet" in run else []
    return "\n".join([*lines, *_stages([*of_size, *run.get("by_class", {}).values()])])


def _stages(runs: Sequence[Mapping]) -> list[str]:
    """Every stage from rows on disk to a scored head, a line each."""
    lines = ["", "| stage | s | CPU s | peak memory | anonymous |", "|---|---:|---:|---:|---:|"] if runs else []
    for found in runs:
        size = f"{found['rows']:,} × 2,048 rows, {found['classes']:,} classes, {found['holds']}"
        for name, about in found.items():
            if isinstance(about, dict):
                memory = f"{about['peak_mb']:,} MB | {about['anonymous_mb']:,} MB |"
                lines.append(f"| {size}: {name} | {about['seconds']:,.0f} | {about['cpu_seconds']:,.0f} | {memory}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["moments", "sum", "imagenet"])
    parser.add_argument(
        "--folder", type=Path, required=True, help="where 8 GB of files may be written; 85 for by_class"
    )
    parser.add_argument("--is-shared", action="store_true", help="the machine is busy anyway: start no busy process")
    parser.add_argument("--rows", type=int, default=1_281_167, help="rows of the parts imagenet and by_class")
    parser.add_argument("--classes", type=int, default=CLASSES, help="classes of the parts imagenet and by_class")
    parser.add_argument("--heads", default="low_rank_qda,rda,student", help="heads of the part by_class")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "scale.json")
    given = parser.parse_args()
    stored = json.loads(given.json.read_text()) if given.json.exists() else {}
    given.folder.mkdir(exist_ok=True)
    os.environ.setdefault("TMPDIR", str(given.folder))
    parts = {
        "moments": lambda: moments(given.folder, given.turns, not given.is_shared),
        "sum": lambda: many_messages(given.folder, given.turns, given.messages),
        "imagenet": lambda: imagenet(given.folder, given.rows, given.classes),
        "by_class": lambda: {
            **stored.get("by_class", {}),
            str(given.classes): by_class(given.folder, given.rows, given.classes, given.heads.split(",")),
        },
    }
    for part in given.parts:
        stored[part] = parts[part]()
        made.store(given.json, json.dumps(stored, indent=1) + "\n", has_older_rows=True)
    stored["measures"] = ratios.as_stored(measures(stored))
    made.store(given.json, json.dumps(stored, indent=1) + "\n", has_older_rows=True)
    print(table(stored))


if __name__ == "__main__":
    main()
