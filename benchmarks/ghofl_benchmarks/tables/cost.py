"""Seconds and bytes of every method, from the runs that are stored: the tables main and communication, and images."""

from pathlib import Path

from ghofl_benchmarks import data, paper, pictures, report
from ghofl_benchmarks.data import Missing
from ghofl_benchmarks.figures import NAMES
from ghofl_benchmarks.tables import Settings, leave_out, start

TITLES = {"GH-NB": "nb", "GH-LDA": "lda", "GH-QDA": "qda", "FisherMix": "fisher_mix", "Proto-Hyper": "proto_hyper"}
SOURCES = {"table-main": "table main", "multiround": "gpu_multiround"}


def run(settings: Settings) -> dict:
    """Rows of stored results; nothing is timed here."""
    result = start("cost", settings)
    result["notes"].append(
        "Seconds of training: of the head at the server for ours (embeddings are there already), of clients and server "
        "for baselines. The paper's are minutes on a GPU with the encoder, on CIFAR-100."
    )
    stored = {name: report.read(name) for name in SOURCES}
    for name, found in stored.items():
        if found is None:
            how = (
                f"Run python -m ghofl_benchmarks {SOURCES[name]} first."
                if name != "multiround"
                else (
                    "Run python -m ghofl_benchmarks.gpu_multiround on a GPU and put its multiround.json into results/."
                )
            )
            leave_out(result, Missing(f"results/{name}.json", how))
    if stored["table-main"]:
        _of_main(result, stored["table-main"]["rows"])
    if stored["multiround"]:
        _of_images(result, stored["multiround"])
    return result


def _of_main(result: dict, rows: list[dict]) -> None:
    for row in rows:
        if row["alpha"] == 0.05 and row.get("seconds") is not None:
            minutes = paper.COST.get(TITLES.get(row["method"], row["method"].split(",")[0]))
            known = minutes[0] * 60 if minutes and row["set"] == "cifar100" else None
            fields = {k: row[k] for k in ("set", "method", "space", "kind", "accuracy", "bytes_up", "seconds")}
            difference = None if known is None else round(row["seconds"] - known, 1)
            result["rows"].append({**fields, "paper": known, "difference": difference, "what": "heads, CPU"})


def _of_images(result: dict, found: dict) -> None:
    what = f"whole network on images of {found['settings']['size']} px, {found['machine']['device']}"
    for method, run_ in found.get("rounds", {}).get("0.05", {}).items():
        rounds = len(run_["accuracy"])
        result["rows"].append(
            {
                "set": "cifar10", "method": f"{method}, {rounds} rounds", "space": "images", "kind": "baseline",
                "accuracy": round(100 * run_["accuracy"][-1], 2), "bytes_up": run_["bytes_up"] * rounds,
                "seconds": round(sum(run_["seconds"]), 1), "paper": None, "difference": None, "what": what,
            }
        )  # fmt: skip


def draw(result: dict, path: Path) -> bool:
    """Accuracy against seconds."""
    if not pictures.can_draw():
        return False
    names = list(dict.fromkeys(r["set"] for r in result["rows"]))
    with pictures.canvas(path, len(names), (8.0, 4.2), across=1) as axes:
        for ax, name in zip(axes, names, strict=True):
            rows = [r for r in result["rows"] if r["set"] == name]
            points = [(max(r["seconds"], 1e-3), r["accuracy"], _told(r), pictures.COLOURS[r["kind"]]) for r in rows]
            for seconds, accuracy, _, colour in points:
                ax.semilogx(seconds, accuracy, "o", color=colour)
            ax.set_title(data.TITLES[name])
            ax.set_xlabel("seconds of training")
            ax.set_ylabel("test accuracy %")
            ax.set(xmargin=0.15, ymargin=0.1)
            ax.autoscale_view()
            ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if ax.get_xlim()[0] < t < ax.get_xlim()[1]]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.set_xticks([], minor=True)
            pictures.name_points(ax, points)
    return True


def _told(row: dict) -> str:
    method, _, rounds = row["method"].partition(", ")
    return f"{NAMES[method]}, whole network, {rounds}" if row["space"] == "images" else row["method"]
