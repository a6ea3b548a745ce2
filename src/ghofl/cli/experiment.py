"""Commands for trying things out on one machine: `simulate` and `demo`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, LabelColumn, PageFile, Preset, Without, complete_heads, more, names_in
from ghofl.cli.measures import thresholds_table
from ghofl.cli.options import AnchorFile, PublicFile, RepeatedOptions, takes_groups
from ghofl.cli.report import page_writer
from ghofl.evaluation.confusion import interval_text
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.planning.public_files import load_anchor, load_public
from ghofl.secure import CORRUPTION, DROPOUT, STAGES
from ghofl.simulation import simulate as simulation
from ghofl.simulation.cohort import Cohort
from ghofl.simulation.dataset import load, source_of
from ghofl.simulation.demo import run
from ghofl.simulation.federation import Simulation
from ghofl.simulation.runs import SPLIT, Runs


@dataclass(frozen=True)
class RowOptions:
    """The rows of an experiment, and how they are split over clients."""

    embeddings: Annotated[
        Path | None,
        typer.Option(
            help="An .npz with x_train, y_train, x_test and y_test; or with --label-column a table (CSV, TSV, JSON lines, "
            "Parquet), 30 % of which are test rows."
        ),
    ] = None
    clients: Annotated[list[int] | None, typer.Option(help="How many clients the training rows are split over.")] = None
    alpha: Annotated[
        list[float] | None, typer.Option(help="Dirichlet skew of classes over clients, none unless given.")
    ] = None
    classes_per_client: Annotated[
        list[int] | None, typer.Option(help="Classes per client.", rich_help_panel=more("clients"))
    ] = None
    seed: Annotated[
        list[int] | None,
        typer.Option(
            help="Seed of the split, the public matrices and which clients vanish; 0 unless given.",
            rich_help_panel=more("clients"),
        ),
    ] = None
    label_column: LabelColumn = ""
    schema: Annotated[
        Path | None,
        typer.Option(
            help="For a table: its schema; drafted from the training rows unless given.", rich_help_panel=more("tables")
        ),
    ] = None
    without: Without = ""


@dataclass(frozen=True)
class CohortOptions:
    """Clients of a secure round that vanish or collude."""

    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=SHARE",
            help=f"Let this share of the clients vanish before a stage of the secure round: {', '.join(STAGES)}.",
            rich_help_panel=more("clients"),
        ),
    ] = None
    dropout: Annotated[
        float, typer.Option(help="Share of clients the secure round can lose.", rich_help_panel=more("clients"))
    ] = DROPOUT
    corruption: Annotated[
        float, typer.Option(help="Share of clients that may collude with the server.", rich_help_panel=more("clients"))
    ] = CORRUPTION

    def cohort(self, secure: bool) -> Cohort | None:
        """The clients of a secure round; there are none of these without one."""
        if not secure:
            if self.drop:
                raise typer.BadParameter(
                    f"--drop {self.drop[0]} is about the stages of a secure round; give --secure too."
                )
            return None
        drops: dict[str, float] = {}
        for text in self.drop or ():
            stage, _, share = text.partition("=")
            if stage not in STAGES or not re.fullmatch(r"0(\.\d+)?|1(\.0+)?|\.\d+", share):
                raise typer.BadParameter(
                    f"--drop {text} is not STAGE=SHARE, e.g. mask=0.1; stages are {', '.join(STAGES)}."
                )
            drops[stage] = drops.get(stage, 0.0) + float(share)
        return Cohort(drops, self.dropout, self.corruption)


@takes_groups
def simulate(
    *,
    rows: RowOptions,
    heads: Annotated[
        str,
        typer.Option(
            help="Heads separated by commas, with options in brackets, or 'all'; 'best' unless given, the strongest "
            "within --budget; with other heads, the strongest that their statistics allow. Baselines may be among them: "
            "fedavg, fedprox.",
            autocompletion=complete_heads,
        ),
    ] = DEFAULT_HEAD,
    preset: Preset = "default",
    anchor: AnchorFile = None,
    public: PublicFile = None,
    options: RepeatedOptions,  # type: ignore[reportInvalidTypeForm]
    unreliable: CohortOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A .json file for a row per run and head; what it already has is not run again."
        ),
    ] = None,
    report: PageFile = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Simulate a federation: split training rows over clients, add up their messages, and score heads of the total.

    Every combination is run of --clients, --alpha, --seed and options of the recipe that are given several times.

    Example: ghofl simulate --embeddings cifar10.npz --clients 10 --alpha 0.1 --heads nb,lda,qda --json out.json
    """
    if rows.embeddings is None or not rows.clients:
        raise typer.BadParameter(
            "give --embeddings FILE, and --clients K for how many clients its rows are split over."
        )
    write_page, (vector, around) = page_writer(report, force, json), load_anchor(anchor)
    given = {**vars(options), **{name: getattr(rows, name) for name in SPLIT}, "anchor": vector}
    asked: Any = {name: v[0] if isinstance(v, list) and len(v) == 1 else v for name, v in given.items() if v}
    if report is not None and (output is not None or any(isinstance(value, list) for value in asked.values())):
        raise typer.BadParameter(f"--report {report} is about one run, and not about a table of runs; leave it out.")
    console.check_folder(None if output is None else str(output))
    for seed in rows.seed or ():
        console.check_seed(seed)
    without, is_private = names_in(rows.without), "epsilon" in asked
    source = source_of(rows.embeddings, None, rows.label_column, rows.schema, without, is_private)
    schema = None if public is None else load(source, (rows.seed or [0])[0])[1]
    with console.progress() as progress:
        result = simulation.simulate(
            source, heads=heads, preset=preset, public=load_public(public, around, schema)[0], output=output, fresh=force,
            cohort=unreliable.cohort(options.secure), name=rows.embeddings.name, progress=progress, **asked,
        )  # fmt: skip
    if isinstance(result, Runs):
        console.say({"runs": list(result.rows)}, str(result), json)
    else:
        _show(result, json)
        write_page(result, f"{rows.embeddings.stem} over {console.count(result.clients, 'client')}")


def demo(report: PageFile = None, force: Force = False) -> None:
    """Run the whole method on scikit-learn's digits: heads, the same total for any split, and exact unlearning.

    Example: ghofl demo
    """
    write_page = page_writer(report, force)
    write_page(run(console.out), "Digits over ten clients")
    if report is None:
        console.out.print("For a page with charts: ghofl demo --report demo.html")


def _show(result: Simulation, json: str | None) -> None:
    """One simulation: what was chosen, and its heads, with the thresholds of the one that ranks rows best if there are any."""
    for note in result.federation.notes:
        console.err.print(console.in_options(note), highlight=False, soft_wrap=True)
    result.clipping.warn(result.total.recipe)
    console.show({**result.to_dict(), "seed": result.federation.seed}, _table(result), json)
    best, judged = max(result.heads.items(), key=lambda item: item[1].metrics.average_precision or 0.0)
    if judged.metrics.thresholds and json != "-":
        console.out.print(thresholds_table(judged.metrics, best, result.total.recipe.classes))


def _caption(result: Simulation) -> str:
    lines = [console.promise(result.total.guarantee)] if result.total.guarantee is not None else []
    if result.secure_round is not None:
        plan, sent = result.secure_round.plan, console.size(result.secure_round.sent_bytes)
        lines.append(
            f"Secure round: {len(result.secure_round.survivors)} of {plan.clients} clients survived, {plan.neighbours} "
            f"neighbours, threshold {plan.threshold}, {plan.bits} bits per entry, {sent} sent per client."
        )
    if result.total.small_classes is not None:
        lines.append(result.total.small_classes.revealed)
    lines += result.notes
    return "\n".join(lines)


def _table(result: Simulation) -> Table:
    empty = f", {result.empty_clients} of them empty" if result.empty_clients else ""
    table = console.titled(
        f"{result.clients} clients{empty}, {result.total.moments.rows:,} rows, total {result.total.moments.sha256[:16]}…",
        _caption(result) or None,
    )
    table.add_column("head", overflow="fold")
    judged = next(iter(result.heads.values())).metrics.confusion
    rare = [f"average precision % of {result.total.recipe.classes[judged.rarest]}"] if judged.has_rare else []
    in_rounds = ["rounds"] if any(head.rounds > 1 for head in result.heads.values()) else []
    for title in ("accuracy %", "95 % interval", *rare, *in_rounds, "sent per client"):
        table.add_column(title, justify="right", min_width=9 if "interval" in title else None)
    for name, head in result.heads.items():
        table.add_row(
            name,
            f"{100 * head.accuracy:.2f}",
            interval_text(head.metrics.confusion.accuracy_interval, 2),
            *(f"{100 * (head.metrics.average_precision or 0.0):.2f}" for _ in rare),
            *(str(head.rounds) for _ in in_rounds),
            console.size(head.payload_bytes),
        )
    return table
