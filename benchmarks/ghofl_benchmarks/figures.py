"""The paper's figures, drawn from stored results only."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from ghofl_benchmarks import data, paper, pictures, report, site_figures
from ghofl_benchmarks.data import DataMissingError, Missing

FIGURES = {
    "front": "CIFAR-10 at the strongest skew: accuracy against what one client sends, ours as one line, and everybody else",
    "tradeoff": "Accuracy against the bytes one client sends: ours and every baseline, CIFAR-10 and CIFAR-100, α = 0.05",
    "convergence": "Accuracy by round of methods that train the whole network on images, one message beside them",
    "time": "Accuracy against the seconds of training on one GPU: methods that train the whole network, and one message",
    "hospitals": "Four hospitals: own rows only, one head for all, a head for each; and what leave-out says",
    "domains": "PACS's four domains, the same",
    "cameras": "Twenty cameras: means without site effects, own offsets, and a head for each",
}
LABELS = {"ours": "ghofl, one message", "baseline": "other methods", "ceiling": "linear probe on all raw embeddings"}
SHADES = ("#b8500c", "#8a5a3c", "#d98a2b")  # of methods in rounds
NAMES = {"fedavg": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD"}


def tradeoff(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy against bytes."""
    main = _stored("table-main", folder, "python -m ghofl_benchmarks table main")
    names = [n for n in ("cifar10", "cifar100") if any(r["set"] == n for r in main["rows"])]
    best, images = report.read("best", folder) or [], report.read("multiround", folder)
    points = {name: _points(name, main["rows"], best, images) for name in names}
    if pictures.can_draw():
        with pictures.canvas(path, len(names), (8.4, 4.6), across=1) as axes:
            for ax, name in zip(axes, names, strict=True):
                _scatter(ax, points[name], f"{data.TITLES[name]}, ten clients, α = 0.05")
            pictures.legend(axes)
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
    line = _ascending([p for p in points if p["kind"] == "ours"])
    ax.plot([p["bytes"] for p in line], [p["accuracy"] for p in line], "-", color=pictures.COLOURS["ours"], linewidth=1)
    for kind, label in LABELS.items():
        own = [p for p in points if p["kind"] == kind]
        mark = "o" if kind == "ours" else "s"
        colour = pictures.COLOURS[kind]
        ax.semilogx(
            [p["bytes"] for p in own], [p["accuracy"] for p in own], mark, markersize=4, color=colour, label=label
        )
    ax.set_title(title)
    ax.set_xlabel("one client sends, all rounds together")
    ax.set_ylabel("test accuracy %")
    low, high = min(p["accuracy"] for p in points), max(p["accuracy"] for p in points)
    ax.set_ylim(low - 0.06 * (high - low), high + 0.15 * (high - low))
    ax.set_xlim(min(p["bytes"] for p in points) / 2, 4 * max(p["bytes"] for p in points))
    pictures.bytes_axis(ax)
    named = [(max(group, key=lambda p: p["bytes"]), group) for group in _alike(points)]
    pictures.name_points(
        ax,
        [(at["bytes"], at["accuracy"], _joined(group), pictures.COLOURS[at["kind"]]) for at, group in named],
        [*_places(points), *pictures.along(_places(line))],
    )


def _places(points: list[dict]) -> list[tuple[float, float]]:
    return [(p["bytes"], p["accuracy"]) for p in points]


def _joined(group: list[dict]) -> str:
    titles = list(dict.fromkeys(p["title"] for p in group))
    return ",\n".join(", ".join(titles[i : i + 3]) for i in range(0, len(titles), 3))


def front(folder: Path, path: Path) -> dict[str, Any]:
    """One panel for a front page: CIFAR-10, α = 0.05."""
    main = _stored("table-main", folder, "python -m ghofl_benchmarks table main")
    best, images = report.read("best", folder) or [], report.read("multiround", folder) or {}
    points = _points("cifar10", main["rows"], best, None)
    line = _ascending([p for p in points if p["kind"] == "ours"])
    others = [p for p in points if p["kind"] == "baseline" and not p["title"].startswith("FedProx")]
    runs = images.get("rounds", {}).get("0.05", {})
    seen = _seen_six_times(folder, points)
    if pictures.can_draw():
        with pictures.canvas(path, 1, (8.0, 4.8)) as (ax,):
            _front(ax, seen, line, others, runs)
    return {"ours": line, "others": others, "views": _with_views(folder), "ours_with_views": seen}


def _ascending(points: list[dict]) -> list[dict]:
    """Those that no cheaper one equals, by bytes."""
    kept: list[dict] = []
    for point in sorted(points, key=lambda p: (p["bytes"], -p["accuracy"])):
        if not kept or point["accuracy"] > kept[-1]["accuracy"]:
            kept.append(point)
    return kept


def _front(ax: Any, seen: list[dict], line: list[dict], others: list[dict], runs: dict) -> None:
    own, other = pictures.COLOURS["ours"], pictures.COLOURS["baseline"]
    ax.semilogx([p["bytes"] for p in line], [p["accuracy"] for p in line], "o-", color=own, linewidth=1.2, markersize=4)
    ax.plot([p["bytes"] for p in seen], [p["accuracy"] for p in seen], "o-", color=own, linewidth=2.4, markersize=6)
    said = {"textcoords": "offset points", "color": own, "ha": "right"}
    if seen:
        at = (seen[0]["bytes"], seen[0]["accuracy"])
        ax.annotate("ghofl by default: one message, six views", at, (-6, 5), fontweight="bold", **said)
    ax.annotate("with one view", (line[-1]["bytes"], line[-1]["accuracy"]), (0, -13), fontsize=8, **said)
    for method in ("fedavg", "scaffold"):
        if method in runs:
            sent = [(i + 1) * runs[method]["bytes_up"] for i in range(len(runs[method]["accuracy"]))]
            ax.plot(sent, [100 * a for a in runs[method]["accuracy"]], ".-", color=other, markersize=3, linewidth=0.9)
            title = f"{NAMES[method]}, whole network\nat 96 px, {len(sent)} rounds"
            _label(ax, title, sent[-1], 100 * runs[method]["accuracy"][-1], other)
    ax.plot([p["bytes"] for p in others], [p["accuracy"] for p in others], "s", color=other, markersize=5)
    ax.set_xlim(1.5e4, 3e9)
    ax.set_ylim(28, 96)
    ax.set_title("CIFAR-10 on ten clients that have few classes each (Dirichlet 0.05)")
    ax.set_xlabel("one client sends, all rounds together")
    ax.set_ylabel("test accuracy %")
    pictures.bytes_axis(ax)
    groups = [(max(group, key=lambda p: p["bytes"]), group) for group in _alike(others)]
    pictures.name_points(
        ax,
        [(at["bytes"], at["accuracy"], ", ".join(_told(p["title"]) for p in group), other) for at, group in groups],
        [*_places(others), *pictures.along(_places(line)), *pictures.along(_places(seen))],
    )


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
    found = _default_views(folder).get("best")
    return None if found is None else round(100 * found, 2)


def _default_views(folder: Path) -> dict[str, float]:
    sets = (report.read("views", folder) or {"sets": []})["sets"]
    return next((one["candidates"]["flip 160,224,288"] for one in sets if one["set"] == "cifar10"), {})


def _seen_six_times(folder: Path, points: list[dict]) -> list[dict]:
    """Heads on rows that are means over the default views; a message has the bytes it has with one view."""
    heads = {"lda": "LDA", "student": "Student", "best": "best for full"}
    sizes = {p["title"]: p["bytes"] for p in points}
    found = _default_views(folder)
    return [
        {"title": title, "bytes": sizes[title], "accuracy": round(100 * found[head], 2), "kind": "ours"}
        for head, title in heads.items()
        if head in found and title in sizes
    ]


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
        with pictures.canvas(path, len(found["rounds"]), (8.0, 3.4), across=1) as axes:
            for ax, (alpha, runs) in zip(axes, found["rounds"].items(), strict=True):
                one = {f"ghofl LDA, one message, {found['settings']['size']} px": (ours, "-")}
                if best is not None:
                    one["ghofl RDA, one message, 224 px"] = (best, "--")
                _curves(ax, runs, found.get("distillation", {}).get(alpha, {}), float(alpha), one)
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
        with pictures.canvas(path, len(found["rounds"]), (2.8, 2.8), across=3) as axes:
            for ax, (alpha, runs) in zip(axes, found["rounds"].items(), strict=True):
                for shade, (method, run) in zip(SHADES, runs.items(), strict=False):
                    spent = list(accumulate(_seconds(run)[: int(alone)]))
                    reached = [100 * a for a in run["accuracy"][: len(spent)]]
                    ax.plot(spent, reached, "o-", markersize=2, color=shade, label=NAMES[method])
                label = f"ghofl LDA, one message, {found['settings']['size']} px"
                ax.plot(
                    ours["seconds"], ours["accuracy"], "*", markersize=12, color=pictures.COLOURS["ours"], label=label
                )
                ax.set_title(f"CIFAR-10, α = {alpha}")
                ax.set_xlabel(f"seconds of {alone} rounds")
                ax.set_ylabel("test accuracy %")
            pictures.legend(axes)
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


def _curves(ax: Any, runs: dict, distilled: dict, alpha: float, ours: dict[str, tuple[float, str]]) -> None:
    named, last = [], max(run["round"][-1] for run in runs.values())
    own, other = pictures.COLOURS["ours"], pictures.COLOURS["baseline"]
    for title, (accuracy, dashes) in ours.items():
        ax.plot([1, last], [accuracy, accuracy], dashes, color=own, linewidth=2)
        named.append((last, accuracy, title, own))
    for shade, (method, run) in zip(SHADES, runs.items(), strict=False):
        ax.plot(run["round"], [100 * a for a in run["accuracy"]], ".-", markersize=3, linewidth=1, color=shade)
        named.append((run["round"][-1], 100 * run["accuracy"][-1], NAMES[method], shade))
        known = paper.MAIN.get(f"{NAMES[method]}, 10 rounds")
        if known and alpha in paper.ALPHAS:
            ax.plot(10, known["cifar10"][paper.ALPHAS.index(alpha)], "x", color=shade)
    for method, run in distilled.items():
        reached = 100 * (run["accuracy"][-1] if isinstance(run["accuracy"], list) else run["accuracy"])
        ax.plot([1, last], [reached, reached], ":", linewidth=0.9, color=other)
        named.append((last, reached, f"{method}, one message", other))
    ax.set_title(f"CIFAR-10, ten clients, Dirichlet {alpha} (×: the paper's, ResNet-18)")
    ax.set_xlabel("round")
    ax.set_ylabel("test accuracy %")
    ax.set(xlim=(0, 1.45 * last), ylim=(0, 100))
    ax.set_xticks(range(0, last + 1, 10))
    drawn = [(r, 100 * a) for run in runs.values() for r, a in zip(run["round"], run["accuracy"], strict=True)]
    levels = [accuracy for accuracy, _ in ours.values()]
    drawn += [(r, level) for level in levels for r in range(1, last)]
    pictures.name_points(ax, named, drawn, left=False)


def _stored(name: str, folder: Path, how: str) -> dict[str, Any]:
    found = report.read(name, folder)
    if found is None:
        raise DataMissingError(Missing(f"{folder / name}.json", f"Run {how}."))
    return found


DRAW: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "front": front,
    "tradeoff": tradeoff,
    "convergence": convergence,
    "time": time,
    **site_figures.DRAW,
}
