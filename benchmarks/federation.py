"""A federation on Flower: how time and memory grow with simulated clients, and what large messages take.

python benchmarks/run.py federation        # ten minutes on two cores
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ghofl_benchmarks import made

from ghofl.classifier import HeadSpec
from ghofl.flower.new import write_app
from ghofl.recipe import Encoder, Grid, Recipe
from ghofl.simulation import partition
from ghofl.simulation.demo import digits
from ghofl.simulation.simulate import recipe_for, simulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "flower"))
from processes import Deployment, command_line

CLIENTS = (10, 100, 1000)
CLASSES, DIM, ROWS = 100, 850, 4000  # S of 36 million entries, some 105 MB
MB = 1e6


def run() -> dict[str, Any]:
    """Simulations of 10 to 1,000 clients, and three nodes with a large message each."""
    with tempfile.TemporaryDirectory() as folder:
        return {"simulated": simulated(Path(folder) / "simulated"), "large": large(Path(folder) / "large")}


def simulated(folder: Path) -> list[dict[str, Any]]:
    """Wall time and memory of a plain run of digits over so many simulated clients."""
    folder.mkdir()
    data, specs = digits(), HeadSpec.parse_list("lda")
    recipe, rows = made.note(recipe_for(data, specs.values())), folder / "digits.npz"
    np.savez(rows, x_train=data.x_train, y_train=data.y_train)
    write_app(folder / "app", recipe, "thousand")
    results = []
    with Deployment(folder / "d", secure=False, more=["--simulation"]) as deployment:
        for clients in CLIENTS:
            parts = partition.split(data.y_train, clients, np.random.default_rng(0), 0.1)
            expected = simulate(data, parts, recipe, specs).total.moments.sha256
            before = _memory(deployment)
            started = time.perf_counter()
            process = deployment.run(
                folder / "app", folder=str(folder / str(clients)), sites=clients, heads="lda", timeout=3000.0,
                simulated_embeddings=str(rows), simulated_alpha=0.1,
                federation={"num-supernodes": clients},
            )  # fmt: skip
            peak = _watch(
                process, lambda: {"all": _memory(deployment), "server": _memory(deployment, b"flwr-simulation")}
            )
            seconds = time.perf_counter() - started
            lines = process.log.read_text()
            found = _report(folder / str(clients))
            assert found["total_sha256"] == expected, lines
            results.append(
                {
                    "clients": clients,
                    "seconds": seconds,
                    "peak_mb": peak["all"] / MB,
                    "idle_mb": before / MB,
                    "server_mb": peak["server"] / MB,
                }
            )
            print(results[-1], flush=True)
    return results


def large(folder: Path) -> dict[str, Any]:
    """Three nodes with a message of 100 MB each."""
    folder.mkdir()
    recipe = Recipe(tuple(map(str, range(CLASSES))), Encoder(dim=DIM), statistics=("S",), grid=Grid(bits=8, scale=20.0))
    rng, y = np.random.default_rng(0), np.arange(ROWS) % CLASSES
    common, names = 2 * rng.normal(size=(1, DIM)), ["north", "south", "west"]
    for name in names:
        np.savez(folder / f"{name}.npz", x=(rng.normal(size=(ROWS, DIM)) + common).astype(np.float32), y=y)
    write_app(folder / "app", made.note(recipe), "large")
    with Deployment(folder / "d", secure=False) as deployment:
        for name in names:
            text = f'name = "{name}"\nembeddings = "{folder / name}.npz"\nfolder = "{folder / name}"\n'
            (folder / f"{name}.toml").write_text(text)
            deployment.node(name, folder / f"{name}.toml")
        started = time.perf_counter()
        process = deployment.run(folder / "app", folder=str(folder / "run"), sites=3, heads="lda", timeout=900.0)
        peak = _watch(
            process,
            lambda: {"app": max(map(_high, deployment.server_app()), default=0), "link": _high(deployment.link.pid)},
        )
        assert _report(folder / "run")["counted"] == 3, process.log.read_text()
        sizes = [path.stat().st_size for path in (folder / "run" / "messages").iterdir()]
        result = {
            "message_mb": max(sizes) / MB,
            "seconds": time.perf_counter() - started,
            "server_app_mb": peak["app"] / MB,
            "superlink_mb": peak["link"] / MB,
        }
        print(result, flush=True)
        return result


def table(result: dict[str, Any]) -> str:
    """Both tables as Markdown."""
    lines = [
        "Digits over simulated clients (Dirichlet 0.1), one plain run each; every total is that of `ghofl simulate`. "
        "Memory is that of all processes, Ray's included, shared pages counted once; idle is the SuperLink alone.\n",
        "| clients | seconds | peak MB | idle MB | process of the server app, MB |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['clients']:,} | {row['seconds']:.0f} | {row['peak_mb']:.0f} | {row['idle_mb']:.0f} "
        f"| {row['server_mb']:.0f} |"
        for row in result["simulated"]
    ]
    row = result["large"]
    app, link, one = row["server_app_mb"], row["superlink_mb"], row["message_mb"]
    lines += [
        f"\nThree nodes with a message of {one:.0f} MB each (S of {CLASSES} classes × {DIM} dimensions), from samples on "
        "disk to an LDA head. Peak memory in multiples of one message; the SuperLink is Flower's own process, which "
        "holds what it relays.\n",
        "| seconds | server app MB | × message | SuperLink MB | × message |",
        "|---:|---:|---:|---:|---:|",
        f"| {row['seconds']:.0f} | {app:.0f} | {app / one:.1f} | {link:.0f} | {link / one:.1f} |",
    ]
    return "\n".join(lines)


def _watch(process: Any, look: Callable[[], dict[str, float]]) -> dict[str, float]:
    peak: dict[str, float] = {}
    while process.poll() is None:
        for name, value in look().items():
            peak[name] = max(peak.get(name, 0), value)
        time.sleep(0.2)
    return peak


def _memory(deployment: Deployment, mark: bytes = b"") -> float:
    """Bytes of all processes of a deployment, or of those with a mark in their command; shared pages in parts."""
    total = 0
    for pid in deployment.pids():
        with contextlib.suppress(OSError, IndexError):
            if mark in command_line(pid):
                total += 1024 * int(Path(f"/proc/{pid}/smaps_rollup").read_text().split("Pss:")[1].split()[0])
    return total


def _high(pid: int) -> float:
    """The most bytes a process ever held."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else 0


def _report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())
