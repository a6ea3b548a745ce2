"""The charts of a report as Plotly figures in plain values; colours of text and lines are the page's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghofl.names import shown
from ghofl.report.findings import Findings, HeadLine

BLUE, ORANGE = "#2f6fb0", "#c8641e"
MOST_CELLS = 300  # classes of a confusion matrix that can still be drawn
NEAR = 0.06  # of the range of accuracies: labels of nearer points would cover each other
MOST_BARS = 60  # clients in the chart of labels
PALETTE = (
    "#2f6fb0", "#c8641e", "#3d8f5f", "#a0457e", "#7a6a2f", "#4f5fb8", "#b0413e", "#1f8a8c", "#8a5a3c", "#6b7f1e",
)  # fmt: skip


def charts_of(findings: Findings) -> dict[str, dict[str, Any]]:
    """Every chart that there is data for, by the id of its place on the page."""
    found = {
        "payload": _payload(findings),
        "confusion": _confusion(findings),
        "calibration": _calibration(findings),
        "labels": _labels(findings),
        "view": _view(findings),
    }
    return {name: chart for name, chart in found.items() if chart is not None}


def text(name: str) -> str:
    """A name from somebody's file for Plotly, which reads some HTML: markup is escaped."""
    return shown(name, 60).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _figure(data: list[dict[str, Any]], x: str = "", y: str = "", **layout: Any) -> dict[str, Any]:
    axes = {"xaxis": {"title": {"text": x}, "automargin": True}, "yaxis": {"title": {"text": y}, "automargin": True}}
    for name in axes:
        axes[name] |= layout.pop(name, {})
    return {"data": data, "layout": {"margin": {"l": 60, "r": 20, "t": 36, "b": 50}, "height": 420} | axes | layout}


def _payload(findings: Findings) -> dict[str, Any] | None:
    heads = [h for h in findings.heads if h.accuracy is not None and h.payload_bytes]
    if not heads:
        return None
    sizes = np.log([h.payload_bytes or 1 for h in heads])
    middle = sizes.min() + sizes.max()
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [h.payload_bytes for h in heads],
        "y": [100 * (h.accuracy or 0.0) for h in heads],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "color": BLUE,
            "thickness": 1,
            "array": [_reach(h, 1) for h in heads],
            "arrayminus": [_reach(h, 0) for h in heads],
        },
        "text": _point_labels(heads),
        "textposition": ["middle right" if 2 * np.log(h.payload_bytes or 1) < middle else "middle left" for h in heads],
        "hovertext": [text(h.name) for h in heads],
        "cliponaxis": False,
        "marker": {"size": 10, "color": BLUE},
        "hovertemplate": "%{hovertext}: %{y:.2f} %, %{x:,} bytes<extra></extra>",
    }
    return _figure([points], "bytes that one site sends", "accuracy, %", xaxis={"type": "log"}, showlegend=False)


def _reach(head: HeadLine, end: int) -> float:
    """The distance from the accuracy to the lower (0) or upper end (1) of its 95 % interval, in per cent."""
    return 0.0 if head.interval is None else 100 * abs(head.interval[end] - (head.accuracy or 0.0))


def _point_labels(heads: Sequence[HeadLine]) -> list[str]:
    """Labels that do not overlap: heads of one size that are almost equally good share one label, at the best of them."""
    accuracies = [h.accuracy or 0.0 for h in heads]
    near = NEAR * max(max(accuracies) - min(accuracies), 0.01)
    labels, groups = [""] * len(heads), list[list[int]]()
    for i in sorted(range(len(heads)), key=lambda i: (heads[i].payload_bytes or 0, -accuracies[i])):
        last = groups[-1] if groups else []
        is_near = bool(last) and heads[last[0]].payload_bytes == heads[i].payload_bytes
        if is_near and accuracies[last[0]] - accuracies[i] < near:
            last.append(i)
        else:
            groups.append([i])
    for group in groups:
        names = [text(heads[i].name) for i in group]
        labels[group[0]] = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return labels


def _confusion(findings: Findings) -> dict[str, Any] | None:
    if findings.judged is None or len(findings.classes) > MOST_CELLS:
        return None
    counts = np.array(findings.judged.counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = [text(c) for c in findings.classes]
    heat = {
        "type": "heatmap",
        "z": np.round(100 * shares, 2).tolist(),
        "x": list(range(len(names))),
        "y": list(range(len(names))),
        "customdata": [[[names[i], names[j], int(n)] for j, n in enumerate(row)] for i, row in enumerate(counts)],
        "colorscale": [[0, "rgba(47,111,176,0)"], [1, BLUE]],
        "colorbar": {"thickness": 12, "title": {"text": "%"}},
        "hovertemplate": "%{customdata[0]} predicted as %{customdata[1]}: %{customdata[2]:,} rows, %{z:.1f} %<extra></extra>",
    }
    ticks = {"tickvals": list(range(len(names))), "ticktext": names, "constrain": "domain"}
    return _figure(
        [heat],
        "predicted",
        "true",
        height=560,
        xaxis=ticks,
        yaxis=ticks | {"autorange": "reversed", "scaleanchor": "x"},
    )


def _calibration(findings: Findings) -> dict[str, Any] | None:
    if findings.judged is None or not findings.judged.calibration:
        return None
    mean, right, rows = zip(*findings.judged.calibration, strict=True)
    ideal = {
        "type": "scatter", "mode": "lines", "x": [0, 100], "y": [0, 100], "line": {"dash": "dot", "color": ORANGE},
        "name": "perfectly calibrated", "hoverinfo": "skip",
    }  # fmt: skip
    found = {
        "type": "scatter", "mode": "lines+markers", "x": [100 * m for m in mean], "y": [100 * r for r in right],
        "customdata": list(rows), "name": "this head", "line": {"color": BLUE},
        "marker": {"size": [6 + 18 * float(np.sqrt(n / max(rows))) for n in rows], "color": BLUE},
        "hovertemplate": "confidence %{x:.1f} %, right in %{y:.1f} % of %{customdata:,} rows<extra></extra>",
    }  # fmt: skip
    legend = {"orientation": "h", "y": 1.08}
    return _figure([ideal, found], "confidence, %", "how often it was right, %", legend=legend)


def _labels(findings: Findings) -> dict[str, Any] | None:
    sites = [s for s in findings.sites if s.counts][:MOST_BARS]
    if not sites:
        return None
    names = [text(s.name) for s in sites]
    bars = [
        {
            "type": "bar",
            "name": text(label),
            "x": names,
            "y": [s.counts[c] for s in sites],
            "marker": {"color": PALETTE[c % len(PALETTE)]},
            "hovertemplate": "%{x}: %{y:,} rows of %{fullData.name}<extra></extra>",
        }
        for c, label in enumerate(findings.classes)
        if any(s.counts[c] for s in sites)
    ]
    return _figure(bars, "site", "rows", barmode="stack", showlegend=len(bars) <= 20, xaxis={"type": "category"})


def _view(findings: Findings) -> dict[str, Any] | None:
    view = findings.view
    if view is None:
        return None
    data = []
    for i, (name, mean, outline) in enumerate(zip(view.names, view.means, view.outlines, strict=True)):
        colour = PALETTE[i % len(PALETTE)]
        xs, ys = zip(*outline, strict=True)
        common = {"legendgroup": str(i), "name": text(name)}
        data += [
            common | {
                "type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": {"color": colour}, "hoverinfo": "skip",
                "showlegend": False,
            },
            common | {
                "type": "scatter", "mode": "markers+text", "x": [mean[0]], "y": [mean[1]], "text": [text(name)],
                "textposition": "top center", "marker": {"color": colour, "size": 7}, "showlegend": False,
                "hovertemplate": "%{text}<extra></extra>",
            },
        ]  # fmt: skip
    return _figure(data, "first direction", "second direction", height=520, yaxis={"scaleanchor": "x"})
