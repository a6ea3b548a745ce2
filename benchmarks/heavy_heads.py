"""CPU seconds to fit ridge of M lifted features: an eigendecomposition against the walk with Cholesky factors.

python heavy_heads.py --dims 4096,8192 --json results/heavy_heads.json
"""

import argparse
import json
import time
from pathlib import Path

import data
import numpy as np
from ghofl_benchmarks import made

from ghofl.gaussians import Gaussians
from ghofl.gaussians.sums import Sums
from ghofl.heads import HEADS, ridge

ROWS, HELD_OUT = 20_000, 2000


def gaussians_and_rows(name: str, dim: int) -> tuple[Gaussians, np.ndarray, np.ndarray]:
    """The Gaussians of lifted training rows, relu(x P) with random signs P, and held-out training rows."""
    found = data.embeddings(name)
    x, y = np.sqrt(found["x_train"][: ROWS + HELD_OUT]), found["y_train"][: ROWS + HELD_OUT]
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(x.shape[1], dim)).astype(np.float32)
    z = np.maximum((x - x[:ROWS].mean(axis=0)).astype(np.float32) @ signs / np.float32(np.sqrt(x.shape[1])), 0)
    hot = np.eye(data.CLASSES[name], dtype=np.float32)[y[:ROWS]].T
    kept = z[:ROWS]
    sums = Sums(hot.sum(axis=1).astype(float), (hot @ kept).astype(float), None, (kept.T @ kept).astype(float))
    return Gaussians.of_sums(sums), z[ROWS:].astype(np.float64), y[ROWS:]


def measure(name: str, dim: int) -> dict:
    """CPU seconds and held-out accuracy of both ways, and of LDA."""
    gaussians, x, y = gaussians_and_rows(name, dim)
    result = {"dataset": name, "dim": dim, "rows": ROWS}
    for title, head, largest in (("walk", "ridge", 0), ("eigenvectors", "ridge", 10**9), ("lda", "lda", 0)):
        ridge.LARGEST = largest
        started = time.process_time()
        fitted = HEADS[head].fit(gaussians)
        result[f"{title}_seconds"] = round(time.process_time() - started, 1)
        result[f"{title}_accuracy"] = round(100 * float(np.mean(fitted.predict(x) == y)), 2)
        print(result, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", default="4096,8192")
    parser.add_argument("--sets", default="cifar10")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "heavy_heads.json")
    given = parser.parse_args()
    found = [measure(name, int(dim)) for name in given.sets.split(",") for dim in given.dims.split(",")]
    made.store(given.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
