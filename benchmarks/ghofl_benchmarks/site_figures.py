"""Pictures of sites that differ, drawn from stored results: hospitals, domains and cameras."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ghofl_benchmarks import pictures, report
from ghofl_benchmarks.cameras import MENDED, MOVED
from ghofl_benchmarks.data import DataMissingError, Missing
from ghofl_benchmarks.sites import ALL, LOCAL, OWN

SHADES = {LOCAL: pictures.COLOURS["paper"], ALL: "#7fb3c4", OWN: pictures.COLOURS["ours"]}
PLACES = {"cleveland": "Cleveland", "hungarian": "Budapest", "switzerland": "Zürich and Basel", "va": "Long Beach"}
DOMAINS = {"art_painting": "paintings", "cartoon": "cartoons", "photo": "photos", "sketch": "sketches"}
LINES = {**SHADES, MENDED: pictures.SERIES[2], MOVED: pictures.SERIES[3]}
WIDTH = 0.26
Row = dict[str, Any]


def hospitals(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy in every hospital: own rows only, one head for all, and a head for each; and what leave-out says."""
    rows = _stored("flamby", folder)
    splits = next(r["split"] for r in rows if r["method"] == LOCAL and r["split"] != "FLamby's")
    bars = {m: next(r for r in rows if (r["method"], r["split"]) == (m, splits)) for m in (LOCAL, ALL, OWN)}
    fine = [r for r in rows if r["method"].startswith(f"{ALL}: ")][-2:]
    if pictures.can_draw():
        with pictures.canvas(path, 2, (4.2, 3.4)) as (left, right):
            _points(left, bars, PLACES, f"Four hospitals, mean of {splits.split()[0]} splits", (60, 103))
            _agreement(right, *fine)
            pictures.legend([left])
    return {"bars": bars, "leave-out": fine}


def _agreement(ax: Any, says: Row, truth: Row) -> None:
    """What leave-out says against what test rows say."""
    ax.plot([70, 92], [70, 92], "-", color="#bbbbbb", linewidth=1)
    ax.plot([says[h] for h in PLACES], [truth[h] for h in PLACES], "o", color=pictures.COLOURS["ours"])
    ax.set(xlim=(70, 92), ylim=(70, 92), xticks=range(70, 93, 5), yticks=range(70, 93, 5))
    ax.set_title(f"One head for all, {says['split'].split()[0]} splits")
    ax.set_xlabel("leave-out says %")
    ax.set_ylabel("test rows say %")
    named = [(says[h], truth[h], title, pictures.COLOURS["ours"]) for h, title in PLACES.items()]
    pictures.name_points(ax, named, [(v, v) for v in range(70, 93)])


def domains(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy in every domain of PACS, with 700 images per domain and with all."""
    rows = _stored("pacs", folder)
    by = {(r["method"], r["images per domain"]): r for r in rows}
    sizes = list(dict.fromkeys(r["images per domain"] for r in rows))
    bars = {str(size): {m: by[m, size] for m in (LOCAL, ALL, OWN)} for size in sizes}
    if pictures.can_draw():
        with pictures.canvas(path, len(bars), (4.2, 3.4)) as axes:
            for ax, (size, own) in zip(axes, bars.items(), strict=True):
                title = "PACS, all 9,991 images" if size == "all" else f"PACS, {size} images per domain"
                _points(ax, own, DOMAINS, title, (60, 103))
            pictures.legend(axes)
    return {"bars": bars}


def _points(ax: Any, found: dict[str, Row], names: dict[str, str], title: str, limits: tuple[float, float]) -> None:
    """A group of points for every site; bars would have to start at zero."""
    for i, (method, row) in enumerate(found.items()):
        places = [k + (i - 1) * WIDTH for k in range(len(names))]
        ax.plot(places, [row[name] for name in names], "o", markersize=6, color=SHADES[method], label=method)
        for place, name in zip(places, names, strict=True):
            above = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": pictures.SMALL}
            ax.annotate(f"{row[name]:.0f}", (place, row[name]), (0, 4), **above)
    ax.set_xticks(range(len(names)), list(names.values()), fontsize=pictures.SMALL)
    ax.set_ylim(*limits)
    ax.set_title(title)
    ax.set_ylabel("test accuracy %")
    ax.grid(visible=False, axis="x")


def cameras(folder: Path, path: Path) -> dict[str, Any]:
    """Accuracy by how skewed labels are, every site behind its own camera: for all classes, and for the own mix."""
    rows = _stored("cameras", folder)
    titles = {
        "all classes": "Twenty cameras on CIFAR-10, all classes",
        "own mix": "The same, a site's own mix of classes",
    }
    lines = {
        case: {m: [r for r in rows if (r["case"], r["method"]) == (case, m)] for m in (ALL, MENDED, MOVED, OWN)}
        for case in titles
    }
    lines = {case: {m: own for m, own in found.items() if own} for case, found in lines.items()}
    if pictures.can_draw():
        with pictures.canvas(path, len(lines), (4.2, 3.4)) as axes:
            for ax, (case, found) in zip(axes, lines.items(), strict=True):
                _lines(ax, found, titles[case])
            pictures.legend(axes, across=2)
    return {"lines": lines}


def _lines(ax: Any, found: dict[str, list[Row]], title: str) -> None:
    """A line per method over the skews."""
    own: list[Row] = []
    for method, own in found.items():
        ax.plot(range(len(own)), [r["accuracy"] for r in own], "o-", color=LINES[method], markersize=4, label=method)
    ax.set_xticks(range(len(own)), [f"α = {r['alpha']}" for r in own])
    ax.set_title(title)
    ax.set_xlabel("Dirichlet's α: the smaller, the more skewed")
    ax.set_ylabel("test accuracy %, mean of sites")


def _stored(name: str, folder: Path) -> list[Row]:
    found = report.read(name, folder)
    if found is None:
        raise DataMissingError(Missing(f"{folder / name}.json", f"Run python -m ghofl_benchmarks {name}."))
    return found["rows"]


DRAW: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "hospitals": hospitals,
    "domains": domains,
    "cameras": cameras,
}
