"""Commands for trying things out on one machine: `simulate` and `demo`."""

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl.classifier import HeadSpec
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, PageFile, Preset, complete_heads
from ghofl.cli.options import SpaceOptions, takes_groups
from ghofl.cli.report import page_writer
from ghofl.planning.assembly import Assembly, PrivacyOptions
from ghofl.recipe import Table as Columns
from ghofl.samples import load_anchor, load_public
from ghofl.secure import STAGES
from ghofl.simulation import partition
from ghofl.simulation.demo import run
from ghofl.simulation.simulate import BEST_BUDGET, Cohort, Dataset, Simulation, all_heads, assembly_for
from ghofl.simulation.simulate import simulate as run_simulation
from ghofl.simulation.tables import table_dataset

DEFAULT_BUDGET = f"{BEST_BUDGET // 10**6} MB"


@takes_groups
def simulate(
    clients: Annotated[int, typer.Option(help="How many clients the training rows are split over.")],
    *,
    embeddings: Annotated[
        Path | None, typer.Option(help="An .npz with x_train, y_train, x_test and y_test; or give --table.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="A CSV, TSV, JSON-lines or Parquet table, a part of which is the test.")
    ] = None,
    label: Annotated[str, typer.Option(help="With --table: the column of labels.")] = "",
    schema: Annotated[
        Path | None, typer.Option(help="With --table: its schema; drafted from the training rows unless given.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Dirichlet skew of classes over clients.")] = None,
    classes_per_client: Annotated[int | None, typer.Option(help="Classes each client has.")] = None,
    iid: Annotated[bool, typer.Option("--iid", help="Split rows evenly (the default).")] = False,
    heads: Annotated[
        str,
        typer.Option(
            help="Heads separated by commas, with options in brackets, or 'all'. 'best' alone is the strongest within "
            f"--budget, {DEFAULT_BUDGET} unless given; beside others, the strongest of what they need.",
            autocompletion=complete_heads,
        ),
    ] = "lda",
    preset: Preset = "default",
    space: SpaceOptions,
    seed: Annotated[int, typer.Option(help="Seed of the split, the public matrices and who vanishes.")] = 0,
    privacy: PrivacyOptions,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=SHARE",
            help=f"Let this share of the clients vanish before a stage of the secure round: {', '.join(STAGES)}.",
        ),
    ] = None,
    assume_dropout: Annotated[float, typer.Option(help="Share of clients the secure round can lose.")] = 0.1,
    assume_corruption: Annotated[float, typer.Option(help="Share of clients that may work with the server.")] = 0.1,
    report: PageFile = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Split training rows over clients, run every message through bytes, and score heads of the total.

    Example: ghofl simulate --embeddings cifar10.npz --clients 10 --alpha 0.1 --heads nb,lda,qda --json out.json
    """
    console.check_seed(seed)
    write_page = page_writer(report, force, json)
    data, columns = _load(embeddings, table, label, schema, seed, privacy)
    specs = _specs(heads, preset, space)
    parts = _parts(data.y_train, clients, alpha, classes_per_client, iid, np.random.default_rng(seed))
    cohort = Cohort(_drops(drop or [], privacy.secure), assume_dropout, assume_corruption, seed)
    anchor, around = load_anchor(space.anchor)
    privacy = cohort.fill_in(privacy, clients)
    wanted = space.for_recipe(anchor, privacy, seed, site_rows=len(data.y_train) // max(1, clients), table=columns)
    found = assembly_for(data, specs.values(), wanted, load_public(space.public, around, columns)[0])
    _tell(found, space.budget)
    with console.progress() as progress:
        result = run_simulation(data, parts, found.recipe, specs, progress, cohort)
    result.clipping.warn(found.recipe)
    console.show({**result.to_dict(), "seed": seed}, _table(result), json)
    source = embeddings or table
    assert source is not None
    write_page(result, specs, data, parts, f"{source.stem} over {console.count(clients, 'client')}")


def demo(report: PageFile = None, force: Force = False) -> None:
    """Run the main job on scikit-learn's digits: heads, partition invariance and exact unlearning.

    Example: ghofl demo
    """
    write_page = page_writer(report, force)
    write_page(*run(console.out), "Digits over ten clients")
    if report is None:
        console.out.print("The same as a page with charts: ghofl demo --report demo.html")


def _load(
    path: Path | None, table: Path | None, label: str, schema: Path | None, seed: int, privacy: PrivacyOptions
) -> tuple[Dataset, Columns | None]:
    """The rows of an experiment, and the schema of a table's."""
    if (path is None) == (table is None) or (table is None and (label or schema)) or (table and not label):
        raise typer.BadParameter("give --embeddings FILE, or --table FILE with --label COLUMN.")
    if table is not None:
        return table_dataset(table, label, schema, seed=seed, is_private=privacy.epsilon is not None)
    assert path is not None
    return Dataset.load(path), None


def _specs(heads: str, preset: str, space: SpaceOptions) -> dict[str, HeadSpec]:
    if heads == "all":
        return all_heads(preset, lift=space.lift is not None, sketch=space.sketch is not None)
    specs = HeadSpec.parse_list(heads, preset)
    needs_sketch = any("Z" in need for spec in specs.values() for need in spec.needs)
    if needs_sketch and space.sketch is None and space.budget is None:
        raise typer.BadParameter("the head sketched_qda needs --sketch K, e.g. --sketch 128.")
    return specs


def _tell(found: Assembly, budget: str | None) -> None:
    """Say on standard error what was chosen for the user."""
    if found.proposal is not None:
        size = DEFAULT_BUDGET if budget is None else budget
        console.err.print(f"Recipe for {size}: {found.proposal.why}.", highlight=False, soft_wrap=True)
    for note in found.notes:
        console.err.print(note, highlight=False, soft_wrap=True)


def _parts(
    y: np.ndarray, clients: int, alpha: float | None, count: int | None, iid: bool, rng: np.random.Generator
) -> partition.Parts:
    if (alpha is not None) + (count is not None) + iid > 1:
        raise typer.BadParameter("give one of --alpha, --classes-per-client and --iid.")
    return partition.split(y, clients, rng, alpha, count)


def _drops(texts: list[str], secure: bool) -> dict[str, float]:
    """Shares of clients by the stage before which they vanish."""
    if texts and not secure:
        raise typer.BadParameter("--drop is about the stages of a secure round; give --secure too.")
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
            f"neighbours, threshold {plan.threshold}, {plan.bits} bits per entry, a client sent {sent}."
        )
    if result.total.small_classes is not None:
        lines.append(result.total.small_classes.revealed)
    return "\n".join(lines)


def _table(result: Simulation) -> Table:
    empty = f", {result.empty_clients} of them empty" if result.empty_clients else ""
    table = Table(
        title=f"{result.clients} clients{empty}, {result.total.moments.rows:,} rows, "
        f"total {result.total.moments.sha256[:16]}…",
        caption=_caption(result) or None,
        caption_justify="left",
    )
    table.add_column("head")
    for name in ("accuracy %", "a client sends", "fit s", "ms per sample"):
        table.add_column(name, justify="right")
    for name, head in result.heads.items():
        table.add_row(
            name,
            f"{100 * head.accuracy:.2f}",
            console.size(head.payload_bytes),
            f"{head.fit_seconds:.2f}",
            f"{head.ms_per_sample:.3f}",
        )
    return table
