"""Accuracy and payload of every head, through `ghofl simulate` as a user runs it; the paper's comparisons, from Python."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import data
import numpy as np
from ghofl_benchmarks.baselines.compared import COMPARED

import ghofl

RUNS = [
    ("as the paper", ["--preset", "paper", "--heads", "nearest_mean,nb,lda,qda,low_rank_qda"]),
    ("defaults", ["--heads", "lda,rda,ridge"]),
    ("square root", ["--power", "0.5", "--sketch", "256", "--heads", "lda,ridge,qda,rda,sketched_qda"]),
    ("square root, sketch 64", ["--power", "0.5", "--sketch", "64", "--heads", "sketched_qda"]),
    ("square root, sketch 128", ["--power", "0.5", "--sketch", "128", "--heads", "sketched_qda"]),
    (
        "projection 256",
        [
            "--project",
            "256",
            "--heads",
            "lda,qda,rda,low_rank_qda(rank=4),low_rank_qda(rank=8),low_rank_qda(rank=16)",
        ],
    ),
    ("projection 256, square root", ["--project", "256", "--power", "0.5", "--heads", "lda,qda,rda"]),
]


def run() -> list[dict]:
    """Every run on both sets, 10 clients at Dirichlet 0.1."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in data.CLASSES:
            path = Path(folder) / f"{name}.npz"
            np.savez(path, **data.embeddings(name))
            for title, arguments in RUNS:
                command = [sys.executable, "-m", "ghofl", "simulate", "--embeddings", str(path), "--clients", "10"]
                done = subprocess.run(
                    [*command, "--alpha", "0.1", *arguments, "--json", "-"], capture_output=True, text=True, check=True
                )
                result = json.loads(done.stdout)
                if title == RUNS[0][0]:
                    found = ghofl.simulate(path, 10, heads=list(COMPARED.values()), alpha=0.1)
                    result["heads"] |= found.to_dict()["heads"]
                results.append({"dataset": name, "run": title, "arguments": arguments, **result})
                print(table(results[-1]), flush=True)
    return results


def table(result: dict) -> str:
    """One run as Markdown."""
    lines = [
        f"\n### {result['dataset']}: {result['run']}\n",
        f"`ghofl simulate --clients 10 --alpha 0.1 {' '.join(result['arguments'])}`\n",
        "| head | accuracy % | a client sends (bytes) | fit s | ms per sample |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, head in result["heads"].items():
        lines.append(
            f"| {name} | {100 * head['accuracy']:.2f} | {head['payload_bytes']:,} "
            f"| {head['fit_seconds']:.2f} | {head['ms_per_sample']:.3f} |"
        )
    return "\n".join(lines)
