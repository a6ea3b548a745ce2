"""The paper's figures, drawn from stored results only."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ghofl_benchmarks import data, paper, pictures, report
from ghofl_benchmarks.data import DataMissingError, Missing

FIGURES = {
    "front": "CIFAR-10 at the strongest skew: accuracy against what one client sends, ours as one line, and everybody else",
    "tradeoff": "Accuracy against the bytes one client sends: ours and every baseline, CIFAR-10 and CIFAR-100, α = 0.05",
    "convergence": "Accuracy by round of methods that train the whole network on images, one message beside them",
    "time": "Accuracy against the seconds of training on one GPU: methods that train the whole network, and one message",
    "ablation": "Accuracy by clients and label skew: ours and the spread of baselines",
    "fisher": "Accuracy and energy of Fisher directions",
}
LABELS = {"ours": "ghofl, one message", "baseline": "other methods", "ceiling": "linear probe on all raw embeddings"}
NAMES = {"fedavg": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD"}


def tradeoff(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy against bytes."""
    main = _stored("table-main", folder, "python -m ghofl_benchmarks table main")
    names = [n for n in ("cifar10", "cifar100") if any(r["set"] == n for r in main["rows"])]
    best, images = report.read("best", folder) or [], report.read("multiround", folder)
    points = {name: _points(name, main["rows"], best, images) for name in names}
    if pictures.can_draw():
        with pictures.canvas(path, len(names), (5.6, 4.4)) as axes:
            for ax, name in zip(axes, names, strict=True):
                _scatter(ax, points[name], f"{data.TITLES[name]}, ten clients, α = 0.05")
    return {"points": points}


def _points(name: str, rows: list[dict], best: list[dict], images: dict | None) -> list[dict]:
    found = [
        {"title": r["method"], "bytes": r["bytes_up"], "accuracy": r["accuracy"], "kind": r["kind"]}
        for r in rows
        if r["set"] == name and r["alpha"] == 0.05 and r["accuracy"] is not None and r.get("bytes_up")
        if not r["method"].endswith(" 1 round")
    ]
    found += [
        {
            "title": f"best for {r['budget']}",
            "bytes": r["payload_bytes"],
            "accuracy": round(100 * r["accuracy"], 2),
            "kind": "ours",
        }
        for r in best
        if r["dataset"] == name
    ]
    for method, run in (images or {}).get("rounds", {}).get("0.05", {}).items() if name == "cifar10" else ():
        number = len(run["accuracy"])
        title = f"{NAMES[method]}, whole network, {number} rounds"
        found.append(
            {
                "title": title,
                "bytes": number * run["bytes_up"],
                "accuracy": round(100 * run["accuracy"][-1], 2),
                "kind": "baseline",
            }
        )
    return found


def _scatter(ax: Any, points: list[dict], title: str) -> None:
    for kind, label in LABELS.items():
        own = [p for p in points if p["kind"] == kind]
        mark = "o" if kind == "ours" else "s"
        colour = pictures.COLOURS[kind]
        ax.semilogx(
            [p["bytes"] for p in own], [p["accuracy"] for p in own], mark, markersize=4, color=colour, label=label
        )
    for group in _alike(points):
        text = ", ".join(dict.fromkeys(p["title"] for p in group))
        right = max(group, key=lambda p: p["bytes"])
        side = {"ha": "right", "xytext": (-4, 2)} if right["bytes"] > 2e7 else {"ha": "left", "xytext": (4, 2)}
        ax.annotate(text, (right["bytes"], right["accuracy"]), fontsize=5.5, textcoords="offset points", **side)
    ax.set_title(title)
    ax.set_xlabel("a client sends (bytes, all rounds)")
    ax.set_ylabel("test accuracy %")
    ax.grid(alpha=0.3)
    ax.legend(fontsize=7, loc="upper left")


def front(folder: Path, path: Path) -> dict[str, Any]:
    """One panel for a front page: CIFAR-10, α = 0.05."""
    main = _stored("table-main", folder, "python -m ghofl_benchmarks table main")
    best, images = report.read("best", folder) or [], report.read("multiround", folder) or {}
    points = _points("cifar10", main["rows"], best, None)
    line = _ascending([p for p in points if p["kind"] == "ours"])
    others = [p for p in points if p["kind"] == "baseline" and not p["title"].startswith("FedProx")]
    runs = images.get("rounds", {}).get("0.05", {})
    if pictures.can_draw():
        with pictures.canvas(path, 1, (8.0, 4.8)) as (ax,):
            _front(ax, line, others, runs)
    return {"ours": line, "others": others, "views": _with_views(folder)}


def _ascending(points: list[dict]) -> list[dict]:
    """Those that no cheaper one equals, by bytes."""
    kept: list[dict] = []
    for point in sorted(points, key=lambda p: (p["bytes"], -p["accuracy"])):
        if not kept or point["accuracy"] > kept[-1]["accuracy"]:
            kept.append(point)
    return kept


def _front(ax: Any, line: list[dict], others: list[dict], runs: dict) -> None:
    own, other = pictures.COLOURS["ours"], pictures.COLOURS["baseline"]
    ax.semilogx([p["bytes"] for p in line], [p["accuracy"] for p in line], "o-", color=own, linewidth=2.2)
    middle = line[len(line) // 2]
    ax.annotate(
        "ghofl: one message", (middle["bytes"], middle["accuracy"]), xytext=(-20, 12), textcoords="offset points",
        color=own, fontweight="bold", ha="center",
    )  # fmt: skip
    for group in _alike(others):
        y = sum(p["accuracy"] for p in group) / len(group)
        ax.plot([p["bytes"] for p in group], [p["accuracy"] for p in group], "s", color=other, markersize=5)
        _label(ax, ", ".join(_told(p["title"]) for p in group), max(p["bytes"] for p in group), y, other)
    for method in ("fedavg", "scaffold"):
        if method in runs:
            sent = [(i + 1) * runs[method]["bytes_up"] for i in range(len(runs[method]["accuracy"]))]
            ax.plot(sent, [100 * a for a in runs[method]["accuracy"]], ".-", color=other, markersize=3, linewidth=0.9)
            title = f"{NAMES[method]}, whole network\nat 96 px, {len(sent)} rounds"
            _label(ax, title, sent[-1], 100 * runs[method]["accuracy"][-1], other)
    ax.set_xlim(1.5e4, 3e9)
    ax.set_title("CIFAR-10 on ten clients that have few classes each (Dirichlet 0.05)", loc="left", fontsize=10)
    ax.set_xlabel("one client sends, all rounds together")
    ax.set_ylabel("test accuracy %")
    ax.set_xticks([10**k for k in range(5, 10)], ["100 kB", "1 MB", "10 MB", "100 MB", "1 GB"])
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def _told(title: str) -> str:
    return title.replace(", 10 rounds", ", head only, 10 rounds").replace("FedPFT, ", "FedPFT ")


def _label(ax: Any, text: str, x: float, y: float, colour: str) -> None:
    ax.annotate(text, (x, y), xytext=(6, -3), textcoords="offset points", fontsize=7.5, color=colour, va="center")


def _alike(points: list[dict]) -> list[list[dict]]:
    """Points that would hide each other's names, together."""
    groups: list[list[dict]] = []
    for point in sorted(points, key=lambda p: -p["accuracy"]):
        near = [g for g in groups if _is_near(g[0], point)]
        near[0].append(point) if near else groups.append([point])
    return groups


def _is_near(one: dict, other: dict) -> bool:
    alike = one["kind"] == other["kind"] and abs(one["accuracy"] - other["accuracy"]) < 1.0
    return alike and 0.4 < one["bytes"] / other["bytes"] < 2.5


def _with_views(folder: Path) -> float | None:
    """What `best` reaches with the default views, which change no byte of a message."""
    sets = (report.read("views", folder) or {"sets": []})["sets"]
    found = [one["candidates"]["flip 160,224,288"]["best"] for one in sets if one["set"] == "cifar10"]
    return round(100 * found[0], 2) if found else None


def convergence(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy by round, and what FedAvg needs to reach one message."""
    how = "python -m ghofl_benchmarks.gpu_multiround on a machine with a GPU, its multiround.json put into results/"
    found = _stored("multiround", folder, how)
    ours = round(100 * found["ours"]["lda_of_moments"]["accuracy"], 2)  # on the very images that the rounds see
    main = report.read("table-main", folder)
    best = max(
        (r["accuracy"] for r in (main or {"rows": []})["rows"] if r["set"] == "cifar10" and r["kind"] == "ours"),
        default=None,
    )
    reached = {alpha: _reached(runs.get("fedavg"), ours) for alpha, runs in found["rounds"].items()}
    if pictures.can_draw():
        with pictures.canvas(path, len(found["rounds"]), (4.2, 3.6)) as axes:
            for ax, (alpha, runs) in zip(axes, found["rounds"].items(), strict=True):
                _curves(ax, runs, found.get("distillation", {}).get(alpha, {}), float(alpha))
                size = found["settings"]["size"]
                ax.axhline(ours, color=pictures.COLOURS["ours"], label=f"ghofl LDA, one message, {size} px")
                if best is not None:
                    label = "ghofl RDA, one message, 224 px"
                    ax.axhline(best, color=pictures.COLOURS["ours"], linestyle="--", label=label)
                ax.legend(fontsize=6)
    return {
        "ours": ours,
        "ours_at_224_pixels": best,
        "fedavg_reaches_ours": reached,
        "rounds": found["rounds"],
        "settings": found["settings"],
    }


def time(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy against seconds on the same images and GPU; the rounds that had the GPU to themselves."""
    found = _stored("multiround", folder, "python -m ghofl_benchmarks.gpu_multiround on a machine with a GPU")
    one = found["ours"]["lda_of_moments"]
    ours = {"seconds": one["embed_seconds"] + one["fit_seconds"], "accuracy": round(100 * one["accuracy"], 2)}
    alone = found["settings"]["rounds"]
    if pictures.can_draw():
        with pictures.canvas(path, len(found["rounds"]), (4.2, 3.6)) as axes:
            for ax, (alpha, runs) in zip(axes, found["rounds"].items(), strict=True):
                for method, run in runs.items():
                    spent = list(accumulate(_seconds(run)[: int(alone)]))
                    ax.plot(
                        spent, [100 * a for a in run["accuracy"][: len(spent)]], "o-", markersize=2, label=NAMES[method]
                    )
                label = f"ghofl LDA, one message, {found['settings']['size']} px"
                ax.plot(
                    ours["seconds"], ours["accuracy"], "*", markersize=12, color=pictures.COLOURS["ours"], label=label
                )
                ax.set_title(f"CIFAR-10, α = {alpha}", fontsize=8)
                ax.set_xlabel(f"seconds, all clients one after the other ({alone} rounds)")
                ax.set_ylabel("test accuracy %")
                ax.grid(alpha=0.3)
                ax.legend(fontsize=6, loc="lower right")
    return {"ours": ours, "machine": found["machine"]}


def _seconds(run: dict) -> list[float]:
    """Seconds by round; the first round of a process also readies the GPU, and counts as the median of the others."""
    first, *others = run["seconds"]
    return [min(first, median(others[:9])), *others] if others else [first]


def _reached(run: dict | None, ours: float) -> dict[str, Any]:
    """Rounds, bytes per client and seconds until FedAvg is as good as one message; None where it never was."""
    accuracies = [] if run is None else run["accuracy"]
    number = next((i for i, a in enumerate(accuracies, 1) if 100 * a >= ours), None)
    if run is None or number is None:
        return {"rounds": None, "of": len(accuracies), "best": round(100 * max(accuracies), 2) if accuracies else None}
    seconds = round(sum(_seconds(run)[:number]), 1)
    return {"rounds": number, "bytes_up": number * run["bytes_up"], "seconds": seconds, "of": len(accuracies)}


def _curves(ax: Any, runs: dict, distilled: dict, alpha: float) -> None:
    for method, run in runs.items():
        ax.plot(run["round"], [100 * a for a in run["accuracy"]], "o-", markersize=2, label=NAMES[method])
        known = paper.MAIN.get(f"{NAMES[method]}, 10 rounds")
        if known and alpha in paper.ALPHAS:
            ax.plot(10, known["cifar10"][paper.ALPHAS.index(alpha)], "x", color=ax.lines[-1].get_color())
    for method, run in distilled.items():
        last = run["accuracy"][-1] if isinstance(run["accuracy"], list) else run["accuracy"]
        ax.axhline(100 * last, linestyle=":", linewidth=0.8, color="#b8500c")
        ax.annotate(method, (1, 100 * last), fontsize=6)
    ax.set_title(f"CIFAR-10, α = {alpha} (×: the paper's, ResNet-18)", fontsize=8)
    ax.set_xlabel("round")
    ax.set_ylabel("test accuracy %")
    ax.grid(alpha=0.3)


def ablation(folder: Path, path: Path) -> dict[str, Any]:
    """The partition ablation's picture again."""
    return _of_table("clients", folder, path)


def fisher(folder: Path, path: Path) -> dict[str, Any]:
    """The Fisher table's picture again."""
    return _of_table("fisher", folder, path)


def _of_table(name: str, folder: Path, path: Path) -> dict[str, Any]:
    from ghofl_benchmarks.tables import load_table

    result = _stored(f"table-{name}", folder, f"python -m ghofl_benchmarks table {name}")
    load_table(name)[1](result, path)
    return {"rows": len(result["rows"])}


def _stored(name: str, folder: Path, how: str) -> dict[str, Any]:
    found = report.read(name, folder)
    if found is None:
        raise DataMissingError(Missing(f"{folder / name}.json", f"Run {how}."))
    return found


DRAW: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "front": front, "tradeoff": tradeoff, "convergence": convergence, "time": time, "ablation": ablation, "fisher": fisher
}  # fmt: skip
