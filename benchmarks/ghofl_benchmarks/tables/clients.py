"""The same rows over 10 to 100 clients, by Dirichlet shares or by classes per client: ours, and how baselines spread.

Ours is computed anew from every split's own clients: the sha256 of each total is compared, and the accuracy of a total
that was seen before is that total's. Baselines are means over `--seeds` splits, with their range; `--methods` and
`--rows` let them run on fewer rows than ours, and every row of the table says on how many.
"""

from pathlib import Path

from ghofl.classifier import Classifier, HeadSpec
from ghofl.errors import PartitionError
from ghofl.simulation.partition import Parts, count_empty
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.message import Message
from ghofl.wire.total import Total
from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.baselines.linear import Fit, rounds
from ghofl_benchmarks.baselines.one_shot import ensemble, mixtures
from ghofl_benchmarks.tables import TORCH, Settings, add_row, has_torch, leave_out, start

SPLITS = {
    "α = 0.5": {"alpha": 0.5}, "α = 0.1": {"alpha": 0.1}, "α = 0.05": {"alpha": 0.05}, "2 classes": {"count": 2},
    "1 class": {"count": 1},
}  # fmt: skip
HEADS = {"Student": "student", "LDA": "lda"}


def run(settings: Settings) -> dict:
    """Every cell on CIFAR-10 (or the sets that were named)."""
    result = start("clients", settings)
    names, missing = data.at_hand(settings.sets or ("cifar10",))
    for m in missing:
        leave_out(result, m, set=m.what)
    if not has_torch():
        leave_out(result, TORCH)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        seen: dict[str, dict[str, float]] = {}
        for title, options in SPLITS.items():
            for clients in paper.CLIENTS:
                try:
                    parts = ours.parts_of(rows, clients, settings.seed, **options)
                except PartitionError as error:
                    result["notes"].append(f"{name}, {title}, {clients} clients: {error}")
                    continue
                _cell(result, name, rows, title, parts, seen, settings)
                _baselines(result, name, rows, title, clients, settings)
        if seen:
            result["notes"].append(f"{data.TITLES[name]}: {len(seen)} different total(s) in all cells.")
    return result


def _cell(
    result: dict, name: str, rows: Dataset, title: str, parts: Parts, seen: dict[str, dict[str, float]],
    settings: Settings,
) -> None:  # fmt: skip
    fields = {"set": name, "split": title, "clients": len(parts), "empty_clients": count_empty(parts)}
    fields |= {"train_rows": len(rows.y_train)}
    if wanted := {head: spec for head, spec in HEADS.items() if settings.wants(head)}:
        recipe = recipe_for(rows, [HeadSpec.parse(spec) for spec in wanted.values()], power=0.5)
        moments = ours.total_of(rows, parts, recipe)
        digest = moments.sha256
        if digest not in seen:
            total = Total.of([Message.of(moments, recipe, "all")], recipe)
            seen[digest] = {
                head: float((Classifier.fit(total, spec).predict_numbers(rows.x_test) == rows.y_test).mean())
                for head, spec in wanted.items()
            }
        for head, accuracy in seen[digest].items():
            known = (
                paper.ABLATION[title][paper.CLIENTS.index(len(parts))]
                if name == "cifar10" and head == "Student"
                else None
            )
            add_row(result, "ours", accuracy, known, **fields, method=head, total=digest[:16])


def _baselines(result: dict, name: str, rows: Dataset, title: str, clients: int, settings: Settings) -> None:
    """Means over splits, and how far apart the splits are."""
    fit = Fit(epochs=5, least_steps=50)
    methods = {"Client ensemble": ensemble(fit), "FedPFT, diagonal": mixtures("diagonal", 1, fit)}
    wanted = [method for method in (*methods, f"FedAvg, {settings.rounds} rounds") if settings.wants(method)]
    for method in wanted:
        found = []
        for seed in range(settings.seed, settings.seed + settings.seeds):
            parts = ours.parts_of(rows, clients, seed, **SPLITS[title])
            if method in methods:
                found.append(methods[method](rows, parts, seed).accuracy)
            else:
                found.append(rounds("fedavg", rows, parts, seed, settings.rounds)[0][-1])
        if found:
            fields = {"set": name, "split": title, "clients": clients, "method": method, "seeds": len(found)}
            fields |= {"range": round(100 * (max(found) - min(found)), 2), "train_rows": len(rows.y_train)}
            add_row(result, "baseline", sum(found) / len(found), None, **fields)


def draw(result: dict, path: Path) -> bool:
    """Accuracy against clients, a panel per kind of split."""
    if not pictures.can_draw():
        return False
    with pictures.canvas(path, len(SPLITS), (2.8, 2.6), across=3) as axes:
        for ax, title in zip(axes, SPLITS, strict=True):
            rows = [r for r in result["rows"] if r["split"] == title]
            for method in dict.fromkeys(r["method"] for r in rows):
                own = [r for r in rows if r["method"] == method]
                style = "o-" if own[0]["kind"] == "ours" else "s--"
                ax.plot([r["clients"] for r in own], [r["accuracy"] for r in own], style, markersize=3, label=method)
            theirs = paper.ABLATION[title][: len(paper.CLIENTS)]
            ax.plot(paper.CLIENTS, theirs, "k:", label="the paper's")
            ax.set_title(title)
            ax.set_xlabel("clients")
            ax.set_ylim(0, 100)
            ax.set_ylabel("test accuracy %")
        pictures.legend(axes, across=5)
    return True
