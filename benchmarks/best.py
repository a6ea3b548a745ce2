"""Accuracy against bytes: `ghofl simulate --budget … --heads best`, and the strongest recipe of all."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import data
import numpy as np

BUDGETS = ("100kB", "300kB", "1MB", "5MB", "20MB")
FULL = ("--power", "0.5", "--lift", "8192")
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "accuracy-against-budget.svg"
PROBE = {"cifar10": 87.96, "cifar100": 69.16}  # a linear probe that sees all raw embeddings, tuned weight decay


def run(full: bool = True) -> list[dict]:
    """Every budget, and the `full` recipe (some minutes each), on both sets; ten even clients of 5,000 rows."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in data.CLASSES:
            path = Path(folder) / f"{name}.npz"
            np.savez(path, **data.embeddings(name))
            for title, arguments in [*((b, ("--budget", b)) for b in BUDGETS), *([("full", FULL)] if full else [])]:
                command = [sys.executable, "-m", "ghofl", "simulate", "--embeddings", str(path), "--clients", "10"]
                done = subprocess.run(
                    [*command, *arguments, "--heads", "best", "--json", "-"], capture_output=True, text=True, check=True
                )
                found = json.loads(done.stdout)
                results.append(
                    {
                        "dataset": name,
                        "budget": title,
                        "why": " ".join(done.stderr.split()),
                        **found["heads"]["best"],
                        "recipe": found["recipe"],
                    }
                )
                print(results[-1], flush=True)
    return results


def table(results: list[dict]) -> str:
    """The results as Markdown."""
    lines = [
        "Ten clients of 5,000 rows; the recipe follows from the budget by fixed rules, the head from the recipe. A "
        f"linear probe that sees all raw embeddings has {PROBE['cifar10']} and {PROBE['cifar100']} %.\n",
        "| dataset | budget | a client sends (bytes) | accuracy % | fit s |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [
        f"| {r['dataset']} | {r['budget']} | {r['payload_bytes']:,} | {100 * r['accuracy']:.2f} | {r['fit_seconds']:.1f} |"
        for r in results
    ]
    return "\n".join(lines)


def figure(results: list[dict]) -> None:
    """Accuracy against bytes, one panel per dataset, with the linear probe as a line."""
    from ghofl_benchmarks import pictures

    if not pictures.can_draw():
        return
    with pictures.canvas(FIGURE, len(data.CLASSES)) as axes:
        for ax, name in zip(axes, data.CLASSES, strict=True):
            rows = sorted((r for r in results if r["dataset"] == name), key=lambda r: r["payload_bytes"])
            x, y = [r["payload_bytes"] for r in rows], [100 * r["accuracy"] for r in rows]
            ax.semilogx(x, y, "o-", label="ghofl, one message")
            probe = "linear probe on all raw embeddings"
            ax.axhline(PROBE[name], color=pictures.COLOURS["ceiling"], linestyle="--", label=probe)
            ax.set_title(name.upper().replace("CIFAR", "CIFAR-"))
            ax.set_xlabel("one client sends")
            ax.set_ylabel("test accuracy %")
            pictures.bytes_axis(ax)
        pictures.legend(axes)
