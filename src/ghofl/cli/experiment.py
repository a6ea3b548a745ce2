"""Commands for trying things out on one machine: `simulate` and `demo`."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, LabelColumn, PageFile, Preset, Without, complete_heads, more, names_in
from ghofl.cli.measures import thresholds_table
from ghofl.cli.options import AnchorFile, PublicFile, takes_groups
from ghofl.cli.report import page_writer
from ghofl.cli.sweeps import SplitOptions, SweepFiles, axes_of, show_sweep
from ghofl.evaluation.confusion import interval_text
from ghofl.planning.assembly import Assembly
from ghofl.planning.public_files import load_anchor, load_public
from ghofl.recipe import RecipeOptions
from ghofl.secure import CORRUPTION, DROPOUT, STAGES
from ghofl.simulation.dataset import Source, load, source_of
from ghofl.simulation.demo import run
from ghofl.simulation.simulate import Cohort, Simulation
from ghofl.simulation.sweep import Experiment, combinations


@dataclass(frozen=True)
class SourceOptions:
    """The rows of an experiment."""

    embeddings: Annotated[
        Path | None,
        typer.Option(
            help="An .npz with x_train, y_train, x_test and y_test; or with --label-column a table (CSV, TSV, JSON lines, "
            "Parquet), 30 % of which are test rows."
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

    def rows(self, is_private: bool) -> Source:
        """The rows, or a function that draws training and test rows of a table by a seed."""
        if self.embeddings is None or (self.schema is not None and not self.label_column):
            raise typer.BadParameter(
                f"--embeddings is {self.embeddings or 'not given'} and --schema {self.schema or 'not given'}; give --embeddings "
                "FILE, an .npz of rows or a table; for a table also --label-column COLUMN."
            )
        if self.without and (self.schema is not None or not self.label_column):
            raise typer.BadParameter(
                f"--without {self.without} is about a schema that is drafted from a table; leave it out, or give a table "
                "with --label-column and no --schema."
            )
        names = names_in(self.without)
        return source_of(self.embeddings, None, self.label_column, self.schema, names, is_private)


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


@takes_groups
def simulate(
    *,
    over: SplitOptions,
    source: SourceOptions,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Heads separated by commas, with options in brackets, or 'all'; 'best' unless given, the strongest "
            "within --budget; with other heads, the strongest that their statistics allow. Baselines may be among them: "
            "fedavg, fedprox.",
            autocompletion=complete_heads,
        ),
    ] = None,
    preset: Preset = "default",
    anchor: AnchorFile = None,
    public: PublicFile = None,
    options: RecipeOptions,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            help="Seed of the split, the public matrices and which clients vanish; 0 unless given; repeat for a sweep.",
            rich_help_panel=more("clients"),
        ),
    ] = None,
    unreliable: CohortOptions,
    files: SweepFiles,
    report: PageFile = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Simulate a federation: split training rows over clients, add up their messages, and score heads of the total.

    Example: ghofl simulate --embeddings cifar10.npz --clients 10 --alpha 0.1 --heads nb,lda,qda --json out.json
    """
    axes = axes_of(files.sweep, {**vars(over), "seed": seed}, heads)
    named = axes.pop("heads")
    vector, around = load_anchor(anchor)
    settings = list(combinations(axes, replace(options, anchor=vector)))
    is_sweep = files.check(len(settings))
    if is_sweep and report is not None:
        raise typer.BadParameter(f"--report {report} is about one run, and these are several; leave it out.")
    write_page = page_writer(report, force, json)
    rows, first = source.rows(options.epsilon is not None), settings[0].seed
    data, columns = load(rows, first)
    cohort = Cohort(_drops(unreliable.drop or [], options.secure), unreliable.dropout, unreliable.corruption)
    experiment = Experiment(named, preset, load_public(public, around, columns)[0], cohort)
    read = source.embeddings or Path()
    if is_sweep:
        show_sweep(rows, experiment, settings, read.name, files, json, force)
        return
    found, options = experiment.assemble(data, settings[0], columns)
    _tell(found)
    with console.progress() as progress:
        result = experiment.run(data, settings[0], found, options, progress)
    result.clipping.warn(found.recipe)
    console.show({**result.to_dict(), "seed": first}, _table(result), json)
    if json != "-":
        _show_thresholds(result, data.classes)
    title = f"{read.stem} over {console.count(settings[0].clients, 'client')}"
    write_page(result, experiment.methods(options), data, experiment.split(data, settings[0]), title)


def demo(report: PageFile = None, force: Force = False) -> None:
    """Run the whole method on scikit-learn's digits: heads, the same total for any split, and exact unlearning.

    Example: ghofl demo
    """
    write_page = page_writer(report, force)
    write_page(*run(console.out), "Digits over ten clients")
    if report is None:
        console.out.print("For a page with charts: ghofl demo --report demo.html")


def _show_thresholds(result: Simulation, classes: tuple[str, ...]) -> None:
    """The thresholds of the head that ranks rows best, where there are two classes."""
    best, judged = max(result.heads.items(), key=lambda item: item[1].metrics.average_precision or 0.0)
    if judged.metrics.thresholds:
        console.out.print(thresholds_table(judged.metrics, best, classes))


def _tell(found: Assembly) -> None:
    """Print on standard error what was chosen for the user."""
    if found.proposal is not None:
        console.err.print(f"Recipe: {found.proposal.why}.", highlight=False, soft_wrap=True)
    for note in found.notes:
        console.err.print(console.in_options(note), highlight=False, soft_wrap=True)


def _drops(texts: list[str], secure: bool) -> dict[str, float]:
    """Shares of clients by the stage before which they vanish."""
    if texts and not secure:
        raise typer.BadParameter(f"--drop {texts[0]} is about the stages of a secure round; give --secure too.")
    out: dict[str, float] = {}
    for text in texts:
        stage, _, share = text.partition("=")
        if stage not in STAGES or not re.fullmatch(r"0(\.\d+)?|1(\.0+)?|\.\d+", share):
            raise typer.BadParameter(
                f"--drop {text} is not STAGE=SHARE, e.g. mask=0.1; stages are {', '.join(STAGES)}."
            )
        out[stage] = out.get(stage, 0.0) + float(share)
    return out


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
    often = any(head.rounds > 1 for head in result.heads.values())  # then rounds take the place of milliseconds
    costs = ("rounds", "sent per client", "fit s") if often else ("sent per client", "fit s", "ms per sample")
    for name in ("accuracy %", "95 % interval", *rare, *costs):
        title = name.replace(" interval", "\ninterval").replace(" client", "\nclient") if often else name
        table.add_column(title, justify="right", min_width=9 if "interval" in name else None)
    for name, head in result.heads.items():
        shown = {
            "rounds": str(head.rounds),
            "sent per client": console.size(head.payload_bytes),
            "fit s": f"{head.fit_seconds:.2f}",
            "ms per sample": f"{head.ms_per_sample:.3f}",
        }
        table.add_row(
            name,
            f"{100 * head.accuracy:.2f}",
            interval_text(head.metrics.confusion.accuracy_interval, 1 if rare or often else 2),  # to fit 80 columns
            *(f"{100 * (head.metrics.average_precision or 0.0):.2f}" for _ in rare),
            *(shown[cost] for cost in costs),
        )
    return table
