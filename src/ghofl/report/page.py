"""A report as one HTML file that needs nothing else: no network, no other file."""

import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import compress
from typing import Any

import numpy as np

from ghofl.evaluation.confusion import Confusion, interval_text
from ghofl.report.charts import MOST_CELLS, TITLES, charts_of
from ghofl.report.findings import Findings
from ghofl.report.markup import document, escape

BELOW = "\n"  # in a cell: before what is smaller, in a line of its own
MANY = 6  # columns, which a phone shows as a list
NOT_SHARES = {
    "log_loss": "log loss",
    "brier": "Brier score",
    "auc": "area under ROC",
}  # every other measure is a share, in per cent
NAMES = {"ece": "calibration error", "macro_f1": "macro F1"}


def page(findings: Findings) -> str:
    """The whole report. Every name in it is escaped; scripts and styles are inside."""
    charts = charts_of(findings)
    sections = [
        _summary(findings),
        _chart("payload", charts),
        _chart("accuracy", charts),
        _heads(findings),
        _chart("confusion", charts),
        _classes(findings),
        _thresholds(findings),
        _chart("calibration", charts),
        _chart("view", charts),
        _chart("labels", charts),
        _sites(findings),
        _recipe(findings),
    ]
    script = (resources.files("ghofl.report") / "page.js").read_text(encoding="utf-8")
    data = _json(dataclasses.asdict(findings))
    return document(
        findings.title,
        "".join(sections),
        f'<script id="data" type="application/json">{data}</script><script>{script}</script>',
    )


def _summary(findings: Findings) -> str:
    rows, best = sum(findings.counts), max(findings.heads, key=lambda head: head.accuracy or 0.0, default=None)
    facts = [
        (f"{len(findings.sites):,}", "site" if len(findings.sites) == 1 else "sites"),
        (f"{rows:,}", "rows"),
        (f"{len(findings.classes):,}", "classes"),
    ]
    if best is not None and best.accuracy:
        sure = "" if best.interval is None else f" ({interval_text(best.interval)} with 95 % confidence)"
        facts.append((f"{100 * best.accuracy:.1f} %", f"best accuracy{sure}"))
    tiles = "".join(f"<div class='tile'><b>{value}</b> {name}</div>" for value, name in facts)
    notes = "".join(f"<p class='note'>{escape(note, 500)}</p>" for note in findings.notes)
    return (
        f"<section><div class='tiles'>{tiles}</div><p><b>Privacy.</b> {escape(findings.guarantee, 2000)}</p>{notes}"
        "<p class='screen'><button id='download'>Download the figures (JSON)</button></p></section>"
    )


def _chart(name: str, charts: Mapping[str, str]) -> str:
    if name not in charts:
        return ""
    title, text = TITLES[name]
    return f"<section><h2>{title}</h2><p>{text}</p><div class='chart' id='{name}'>{charts[name]}</div></section>"


def _heads(findings: Findings) -> str:
    if not findings.heads:
        return ""
    numbers = {key for head in findings.heads for key, value in head.metrics.items() if isinstance(value, float)}
    measures = sorted(numbers - {"accuracy"})
    rows = [
        (
            head.name,
            _beside("" if head.accuracy is None else f"{100 * head.accuracy:.2f}", head.interval),
            _count(head.payload_bytes),
            *(_measure(head.metrics, m) for m in measures),
        )
        for head in findings.heads
    ]
    note = "Small numbers are 95 % intervals." if any(BELOW in cell for row in rows for cell in row[1:]) else ""
    return _table("Heads", ("head", "accuracy, %", "bytes per site", *map(_heading, measures)), rows, note)


def _heading(measure: str) -> str:
    return NOT_SHARES.get(measure) or f"{NAMES.get(measure, measure.replace('_', ' '))}, %"


def _measure(metrics: Mapping[str, Any], name: str) -> str:
    """A measure and, where it is a kind of accuracy, its interval."""
    value = metrics.get(name)
    if value is None:
        return ""
    return _beside(f"{value:.4f}" if name in NOT_SHARES else f"{100 * value:.2f}", metrics.get(f"{name}_interval"))


def _beside(text: str, interval: Sequence[float] | None) -> str:
    return text if interval is None else text + BELOW + interval_text((interval[0], interval[1]), 2)


def _classes(findings: Findings) -> str:
    rows: list[tuple[str, ...]] = []
    counts = None if findings.judged is None else np.array(findings.judged.counts)
    for c, name in enumerate(findings.classes):
        own: tuple[str, ...] = (name, _count(findings.counts[c]))
        if counts is not None:
            right, true, said = int(counts[c, c]), int(counts[c].sum()), int(counts[:, c].sum())
            own += (_count(true), _ratio(right, true), _ratio(right, said))
        rows.append(own)
    columns: tuple[str, ...] = ("class", "rows behind the heads")
    note = ""
    if findings.judged is not None:
        columns += ("rows judged", "recall, %", "precision, %")
        note = f"Judged with {findings.judged.head}."
        if len(findings.classes) > MOST_CELLS:
            note += f" With more than {MOST_CELLS} classes the matrix is not drawn. The download has it, so this file is large."
    return _table("Classes", columns, rows, note)


def _thresholds(findings: Findings) -> str:
    """Of two classes, what becomes of the rarer one at several thresholds, by the head that is judged class by class."""
    head = next((h for h in findings.heads if findings.judged is not None and h.name == findings.judged.head), None)
    if head is None or findings.judged is None or not head.metrics.get("by_threshold"):
        return ""
    rarer = findings.classes[Confusion(np.array(findings.judged.counts)).rarest]
    rows = [
        (f"{line['probability']:.3g}", *(f"{100 * line[name]:.2f}" for name in ("recall", "precision", "flagged")))
        for line in head.metrics["by_threshold"]
    ]
    note = f"What {head.name} finds where {escape(rarer)} is predicted from this probability on."
    return _table("Thresholds", ("threshold", "recall, %", "precision, %", "rows flagged, %"), rows, note)


def _sites(findings: Findings) -> str:
    rows = [
        (site.name, _count(site.rows), _count(site.bytes), "" if site.clipped is None else f"{100 * site.clipped:.3f}")
        for site in findings.sites
    ]
    hidden = any(site.rows is None for site in findings.sites)
    note = "A secure round or a release hides how many rows each site has." if hidden else ""
    return _table("Who took part", ("site", "rows", "bytes sent", "clipped, %"), rows, note)


def _recipe(findings: Findings) -> str:
    return (
        f"<section><h2>The recipe</h2><p>Fingerprint <code>{findings.fingerprint}</code></p><details><summary>Every "
        f"setting</summary><pre>{html.escape(_short(findings.recipe_toml))}</pre></details></section>"
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    has = [i == 0 or any(row[i] for row in rows) for i in range(len(columns))]  # a column of empty cells says nothing
    columns, rows = tuple(compress(columns, has)), [tuple(compress(row, has)) for row in rows]
    head = "".join(f"<th scope='col'><button>{escape(c)}</button></th>" for c in columns)
    is_wide = len(columns) >= MANY
    body = "".join(
        f"<tr><td class=name>{escape(row[0])}</td>"
        + "".join(_cell(text, name if is_wide else "") for name, text in zip(columns[1:], row[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f"<section><h2>{title}</h2>{f'<p>{note}</p>' if note else ''}<div class='wide'><table{' class=many' if is_wide else ''}>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _cell(text: str, name: str) -> str:
    value, _, small = text.partition(BELOW)
    named = f" data-name='{escape(name)}'" if name else ""
    return f"<td{named}>{escape(value)}{f'<small>{escape(small)}</small>' if small else ''}</td>"


def _short(toml: str, most: int = 20_000) -> str:
    return toml if len(toml) <= most else toml[:most] + f"\n… {len(toml) - most:,} more characters"


def _json(value: Any) -> str:
    """JSON in which no text can close the script element."""
    raw = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ratio(part: int, whole: int) -> str:
    return "" if not whole else f"{100 * part / whole:.2f}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
