"""Accuracy against bytes: one message with a projection to 512, 256 or 128, by statistics; the paper's kB beside."""

from pathlib import Path

from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.tables import Settings, add_row, leave_out, start

PROJECTIONS = (512, 256, 128)
HEADS = {"means (A, N)": "nearest_mean", "NB (A, D, N)": "nb", "LDA (A, B, N)": "lda", "RDA (A, S, N)": "rda"}
LETTERS = {"A, B, D, N": "LDA (A, B, N)", "A, D, N": "NB (A, D, N)", "A, N": "means (A, N)"}
RESNET18, DISTILBERT = 43859, 261543


def run(settings: Settings) -> dict:
    """Every projection on the sets at hand, with bytes of real messages."""
    result = start("communication", settings)
    result["notes"].append(
        "Bytes are the mean length of ten clients' real messages at α = 0.1 (integers, packed); the paper counts float32, "
        "and its accuracies are those of its best head of each configuration. A model in rounds, per client and round: "
        f"{RESNET18:,} kB (ResNet-18), {DISTILBERT:,} kB (DistilBERT)."
    )
    names, missing = data.at_hand(settings.sets or ("cifar10", "cifar100", *data.TEXTS))
    for m in missing:
        leave_out(result, m, set=m.what)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        parts = ours.parts_of(rows, settings.clients, settings.seed, 0.1)
        dim = rows.x_train.shape[1]
        for k in [*(p for p in PROJECTIONS if p < dim), None]:
            heads = HEADS if k is not None or len(rows.classes) < 50 else {t: s for t, s in HEADS.items() if s != "rda"}
            options = {} if k is None else {"project": k}
            found = ours.run(rows, parts, heads, **options)
            for title, head in found.heads.items():
                size, accuracy = _paper(name, k, title)
                add_row(
                    result, "ours", head.accuracy, accuracy, set=name, projection=k or f"none ({dim})", method=title,
                    bytes_up=head.payload_bytes, paper_kB=size, seconds=round(head.fit_seconds, 3),
                    ms_per_sample=round(head.ms_per_sample, 4),
                )  # fmt: skip
    return result


def _paper(name: str, k: int | None, title: str) -> tuple[float | None, float | None]:
    if k not in paper.COMMUNICATION or name not in paper.COMMUNICATION_SETS:
        return None, None
    statistics, sizes, accuracies = paper.COMMUNICATION[k]
    if LETTERS[statistics] != title:
        return None, None
    at = paper.COMMUNICATION_SETS.index(name)
    return sizes[at], accuracies[at]


def draw(result: dict, path: Path) -> bool:
    """Accuracy against bytes, a panel per set."""
    if not pictures.can_draw():
        return False
    names = list(dict.fromkeys(row["set"] for row in result["rows"]))
    with pictures.canvas(path, len(names), (2.8, 2.7), across=3) as axes:
        for ax, name in zip(axes, names, strict=True):
            for title in HEADS:
                rows = [r for r in result["rows"] if r["set"] == name and r["method"] == title]
                rows.sort(key=lambda r: r["bytes_up"])
                style = "o-" if len(rows) > 2 else "o"  # a line between two would show a course that nobody measured
                ax.semilogx([r["bytes_up"] for r in rows], [r["accuracy"] for r in rows], style, label=title)
            known = [r for r in result["rows"] if r["set"] == name and r.get("paper") is not None]
            ax.plot([1e3 * r["paper_kB"] for r in known], [r["paper"] for r in known], "kx", label="the paper's")
            ax.set_title(data.TITLES[name])
            ax.set_xlabel("one client sends")
            ax.set_ylabel("test accuracy %")
            pictures.bytes_axis(ax)
        pictures.legend(axes, across=5)
    return True
