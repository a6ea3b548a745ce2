"""The results page, from stored JSON files only: what was measured where, beside the paper's figures, and what was not."""

from pathlib import Path
from typing import Any

from ghofl_benchmarks import made, report
from ghofl_benchmarks.figures import NAMES
from ghofl_benchmarks.tables import TABLES, load_table

HEAD = """# The paper's tables, measured again

Written by `python -m ghofl_benchmarks page` from the JSON files beside it, and from nothing else. In every table,
`accuracy` (or the measure named) is ours, measured on the machine that the section names; `paper` is the paper's figure
and `difference` is ours minus it; – is a cell that was not run or that the paper does not have. Kinds: *ours* is this
library, *baseline* another system, *ceiling* one that sees all rows.
"""


ROUNDS = """
## Whole networks on images, CIFAR-10

`python -m ghofl_benchmarks.gpu_multiround`, {device}; MobileNetV2 from pretrained weights on images of {size} pixels, ten
clients, seed 0, test accuracy %. DENSE and Co-Boosting had {seconds} s of wall-clock each beside other runs and were still
moving: longer runs may do better. Small networks are three convolutions on 32 pixels, trained from nothing
({small} s each). One message with LDA on the same {size} pixels has {ours}.

| method | a client sends | {alphas} |
|---|---:|{lines}
"""


def rounds_table(found: dict[str, Any]) -> str:
    """What networks that are trained in rounds, or sent once and distilled, reach at the end."""
    alphas, rows = list(found["rounds"]), dict[tuple[str, int], dict[str, float]]()
    for alpha, runs in found["rounds"].items():
        for method, run in runs.items():
            title = f"{NAMES[method]}, {len(run['accuracy'])} rounds"
            rows.setdefault((title, len(run["accuracy"]) * run["bytes_up"]), {})[alpha] = run["accuracy"][-1]
    for key, kind in (("distillation", ""), ("distillation_small", ", small networks")):
        for alpha, runs in found.get(key, {}).items():
            for method, run in runs.items():
                last = run["accuracy"] if method == "ensemble" else run["accuracy"][-1]
                title = f"{method.replace('ensemble', 'Ensemble of the clients')}{kind}"
                rows.setdefault((title, runs["ensemble"]["bytes_up"]), {})[alpha] = last
    lines = [
        f"| {title} | {size / 1e6:,.1f} MB | "
        + " | ".join(f"{100 * own[a]:.1f}" if a in own else "–" for a in alphas)
        + " |"
        for (title, size), own in rows.items()
    ]
    settings = found["settings"], found.get("distillation_settings", {}), found.get("distillation_small_settings", {})
    return ROUNDS.format(
        device=found["machine"]["device"], size=settings[0]["size"],
        seconds=settings[1].get("distillation_seconds", "–"), small=settings[2].get("distillation_seconds", "–"),
        ours=round(100 * found["ours"]["lda_of_moments"]["accuracy"], 1), alphas=" | ".join(f"α = {a}" for a in alphas),
        lines="---:|" * len(alphas) + "\n" + "\n".join(lines),
    )  # fmt: skip


def write_page(folder: Path = report.RESULTS) -> Path:
    """Write TABLES.md beside the JSON files, and every table's page and picture; the path."""
    parts = [HEAD]
    for name in TABLES:
        result = report.read(f"table-{name}", folder)
        if result is None:
            parts.append(f"\n## {TABLES[name]}\n\nNot run: `python -m ghofl_benchmarks table {name}`.\n")
        else:
            parts.append("\n#" + report.show(result, folder, load_table(name)[1])[0].read_text(encoding="utf-8"))
    sites = [report.read(name, folder) for name in ("flamby", "pacs", "no_shift", "cameras", "candidates")]
    parts += ["\n#" + report.show(found, folder)[0].read_text(encoding="utf-8") for found in sites if found is not None]
    rounds = report.read("multiround", folder)
    parts += [] if rounds is None else [rounds_table(rounds)]
    drawn = [
        name for name in ("figure-tradeoff", "figure-convergence", "figure-time") if (folder / f"{name}.svg").is_file()
    ]
    parts += [f"\n## {name.removeprefix('figure-').capitalize()}\n\n![{name}]({name}.svg)\n" for name in drawn]
    path = folder / "TABLES.md"
    made.store(path, "".join(parts))
    return path
