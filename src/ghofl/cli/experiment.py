"""Commands for trying things out on one machine: `simulate` and `demo`."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl.classifier import HeadSpec
from ghofl.cli import console, private
from ghofl.cli.site import Bits, Force, Json, LiftTo, Power, Project, SketchTo, UnitLength
from ghofl.errors import EmbeddingsError
from ghofl.planning.assembly import Assembly, PrivacyOptions, RecipeOptions
from ghofl.recipe import Limits
from ghofl.recipe import Table as Columns
from ghofl.samples import class_numbers, classes_of, load_rows
from ghofl.secure import STAGES
from ghofl.simulation import partition
from ghofl.simulation.demo import run
from ghofl.simulation.simulate import BEST_BUDGET, Cohort, Dataset, Simulation, all_heads, assembly_for
from ghofl.simulation.simulate import simulate as run_simulation
from ghofl.simulation.tables import table_dataset

DEFAULT_BUDGET = f"{BEST_BUDGET // 10**6} MB"


@private.takes_privacy
def simulate(
    clients: Annotated[int, typer.Option(help="How many clients the training rows are split over.")],
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
    power: Power = None,
    project: Project = None,
    lift: LiftTo = None,
    sketch: SketchTo = None,
    bits: Bits = None,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Grid steps in one unit of the embedding; without it fitted to the rows, not under --epsilon."
        ),
    ] = None,
    heads: Annotated[
        str,
        typer.Option(
            help="Heads separated by commas, with options in brackets, or 'all'. 'best' alone is the strongest within "
            f"--budget, {DEFAULT_BUDGET} unless given; beside others, the strongest of what they need."
        ),
    ] = "lda",
    preset: Annotated[str, typer.Option(help="Options not written come from 'default' or 'paper'.")] = "default",
    budget: Annotated[
        str | None, typer.Option(help="Choose statistics and space for messages of this size, e.g. 5MB.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split, the public matrices and who vanishes.")] = 0,
    max_rows: private.MaxRows = None,
    max_share: private.MaxShare = None,
    unit_length: UnitLength = False,
    anchor: private.Anchor = None,
    public: private.Public = None,
    privacy: PrivacyOptions = PrivacyOptions(),  # noqa: B008 (frozen)
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=SHARE",
            help=f"Let this share of the clients vanish before a stage of the secure round: {', '.join(STAGES)}.",
        ),
    ] = None,
    assume_dropout: Annotated[float, typer.Option(help="Share of clients the secure round can lose.")] = 0.1,
    assume_corruption: Annotated[float, typer.Option(help="Share of clients that may work with the server.")] = 0.1,
    force: Force = False,
    json: Json = None,
) -> None:
    """Split training rows over clients, run every message through bytes, and score heads of the total.

    Example: ghofl simulate --embeddings cifar10.npz --clients 10 --alpha 0.1 --heads nb,lda,qda --json out.json
    """
    console.refuse_negative_seed(seed)
    console.check_outputs(json, force)
    data, columns = _dataset(embeddings, table, label, schema, seed, privacy.epsilon is not None)
    if heads == "all":
        specs = all_heads(preset, lift=lift is not None, sketch=sketch is not None)
    else:
        specs = HeadSpec.parse_list(heads, preset)
    if any("Z" in need for spec in specs.values() for need in spec.needs) and sketch is None and budget is None:
        raise typer.BadParameter("the head sketched_qda needs --sketch K, e.g. --sketch 128.")
    parts = _parts(data.y_train, clients, alpha, classes_per_client, iid, np.random.default_rng(seed))
    cohort = Cohort(_drops(drop or [], privacy.secure), assume_dropout, assume_corruption, seed)
    if privacy.noise == "distributed" and privacy.epsilon is not None and privacy.min_cohort is None:
        privacy = replace(privacy, min_cohort=cohort.honest_survivors(clients))
    public_anchor, around = private.load_anchor(anchor)
    wanted = RecipeOptions(
        power=power, unit_length=unit_length, anchor=public_anchor, bits=bits, scale=scale, project=project, lift=lift,
        sketch=sketch, seed=seed, budget=None if budget is None else console.bytes_of(budget),
        site_rows=len(data.y_train) // max(1, clients), privacy=privacy, limits=Limits(max_rows, max_share),
        table=columns,
    )  # fmt: skip
    found = assembly_for(data, specs.values(), wanted, private.load_public(public, around, columns)[0])
    _tell(found, budget)
    with console.progress() as report:
        result = run_simulation(data, parts, found.recipe, specs, report, cohort)
    result.clipping.warn(found.recipe)
    console.present({**result.to_dict(), "seed": seed}, _table(result), json)


def demo() -> None:
    """Run the main job on scikit-learn's digits: heads, partition invariance and exact unlearning.

    Example: ghofl demo
    """
    run(console.out)


def _dataset(
    path: Path | None, table: Path | None, label: str, schema: Path | None, seed: int, is_private: bool
) -> tuple[Dataset, Columns | None]:
    """The rows of an experiment, and the schema of a table's."""
    if (path is None) == (table is None) or (table is None and (label or schema)) or (table and not label):
        raise typer.BadParameter("give --embeddings FILE, or --table FILE with --label COLUMN.")
    if table is not None:
        return table_dataset(table, label, schema, seed=seed, is_private=is_private)
    assert path is not None
    train, test = load_rows(path, "train"), load_rows(path, "test")
    assert train.y is not None
    assert test.y is not None
    try:
        classes = classes_of(train.y)
    except EmbeddingsError as error:
        raise EmbeddingsError(f"{path}: {error}") from None
    return Dataset(train.x, class_numbers(train.y, classes), test.x, class_numbers(test.y, classes), classes), None


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
    lines = [private.guarantee_text(result.total.guarantee)] if result.total.guarantee is not None else []
    if result.secure_round is not None:
        plan, sent = result.secure_round.plan, console.size(result.secure_round.sent_bytes)
        lines.append(
            f"Secure round: {len(result.secure_round.survivors)} of {plan.clients} clients survived, {plan.neighbours} "
            f"neighbours, threshold {plan.threshold}, {plan.bits} bits an entry, a client sent {sent}."
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
    for name in ("accuracy %", "a client sends", "fit s", "ms a sample"):
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
