"""Commands for trying things out on one machine: `simulate` and `demo`."""

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl import partition
from ghofl.best import propose
from ghofl.classifier import BEST, HeadSpec
from ghofl.cli import console, private
from ghofl.cli.site import Json
from ghofl.demo import run
from ghofl.embeddings import class_numbers, load_rows
from ghofl.errors import EmbeddingsError
from ghofl.features import calibrated
from ghofl.recipe import Grid, Privacy
from ghofl.secure import STAGES
from ghofl.simulate import Cohort, Dataset, Simulation, all_heads, recipe_for
from ghofl.simulate import simulate as run_simulation


def simulate(
    embeddings: Annotated[Path, typer.Option(help="An .npz with x_train, y_train, x_test and y_test.")],
    clients: Annotated[int, typer.Option(help="How many clients the training rows are split over.")],
    alpha: Annotated[float | None, typer.Option(help="Dirichlet skew of classes over clients.")] = None,
    classes_per_client: Annotated[int | None, typer.Option(help="Classes each client has.")] = None,
    iid: Annotated[bool, typer.Option("--iid", help="Split rows evenly (the default).")] = False,
    power: Annotated[float, typer.Option(help="Signed power transform; 0.5 is the square root, 1 none.")] = 1.0,
    project: Annotated[int | None, typer.Option(help="Project to this many dimensions.")] = None,
    lift: Annotated[int | None, typer.Option(help="Lift to this many random features.")] = None,
    sketch: Annotated[int | None, typer.Option(help="Class covariances of a sketch of this size.")] = None,
    bits: Annotated[int, typer.Option(help="Bits of the grid, 2 to 16.")] = Grid().bits,
    scale: Annotated[
        float | None, typer.Option(help="Grid steps in one unit of the embedding; fitted to the rows if not given.")
    ] = None,
    heads: Annotated[
        str, typer.Option(help="Heads separated by commas, with options in brackets, 'all', or 'best'.")
    ] = "lda",
    preset: Annotated[str, typer.Option(help="Options not written come from 'default' or 'paper'.")] = "default",
    budget: Annotated[
        str | None, typer.Option(help="Choose the recipe for messages of this size, e.g. 5MB; instead of its options.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split, the public matrices and who vanishes.")] = 0,
    unit_length: Annotated[bool, typer.Option("--unit-length", help="Scale every row to length 1.")] = False,
    anchor: private.Anchor = None,
    epsilon: private.Epsilon = None,
    delta: private.Delta = None,
    radius: private.Radius = None,
    unit: private.Unit = private.DEFAULTS.unit,
    neighbours: private.Neighbours = private.DEFAULTS.neighbours,
    noise: private.Noise = private.DEFAULTS.noise,
    secure: private.Secure = False,
    min_count: private.MinCount = 0,
    merge_into: private.MergeInto = "",
    client_rows: private.ClientRows = None,
    rounding: private.Rounding = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE=SHARE",
            help=f"Let this share of the clients vanish before a stage of the secure round: {', '.join(STAGES)}.",
        ),
    ] = None,
    assume_dropout: Annotated[float, typer.Option(help="Share of clients the secure round can lose.")] = 0.1,
    assume_corruption: Annotated[float, typer.Option(help="Share of clients that may work with the server.")] = 0.1,
    json: Json = None,
) -> None:
    """Split training rows over clients, run every message through bytes, and score heads of the total.

    Example: ghofl simulate --embeddings cifar10.npz --clients 10 --alpha 0.1 --heads nb,lda,qda --json out.json
    """
    console.refuse_missing_folder(json)
    console.refuse_negative_seed(seed)
    data = _dataset(embeddings)
    if heads == "all":
        specs = all_heads(preset, lift=lift is not None, sketch=sketch is not None)
    else:
        specs = HeadSpec.parse_list(heads, preset)
    if any("Z" in need for spec in specs.values() for need in spec.needs) and sketch is None and budget is None:
        raise typer.BadParameter("the head sketched_qda needs --sketch K, e.g. --sketch 128.")
    parts = _parts(data.y_train, clients, alpha, classes_per_client, iid, np.random.default_rng(seed))
    cohort = Cohort(_drops(drop or [], secure), assume_dropout, assume_corruption, seed)
    public_anchor, public = private.load_anchor(anchor)
    space = {"power": power, "bits": bits, "scale": scale, "project": project, "lift": lift, "sketch": sketch}
    space |= {
        "keep": lift is not None and heads == BEST,
        "seed": seed,
        "anchor": public_anchor,
        "unit_length": unit_length,
        "public": public,
    }
    promise = {"epsilon": epsilon, "delta": delta, "radius": radius, "unit": unit, "neighbours": neighbours}
    promise |= {"noise": noise, "secure": secure, "min_count": min_count, "merge_into": merge_into}
    promise |= {"client_rows": client_rows, "rounding": rounding}
    if noise == "distributed" and epsilon is not None:
        promise["min_cohort"] = cohort.honest_survivors(clients)
    is_private = None if epsilon is None else Privacy(1.0, epsilon, private.DELTA)
    recipe = private.with_privacy(recipe_for(data, specs.values(), **space, privacy=is_private), promise)
    if budget is not None:
        rows = len(data.y_train) // max(1, clients)
        proposal = propose(console.bytes_of(budget), data.classes, data.x_train.shape[1], rows)
        recipe = calibrated(proposal.recipe, data.x_train)
        console.err.print(f"Recipe for {budget}: {proposal.why}.", highlight=False)
    with console.progress() as report:
        result = run_simulation(data, parts, recipe, specs, report, cohort)
    result.clipping.warn(recipe)
    console.present({**result.to_dict(), "seed": seed}, _table(result), json)


def demo() -> None:
    """Run the main job on scikit-learn's digits: heads, partition invariance and exact unlearning.

    Example: ghofl demo
    """
    run(console.out)


def _dataset(path: Path) -> Dataset:
    train, test = load_rows(path, "train"), load_rows(path, "test")
    assert train.y is not None
    assert test.y is not None
    if train.y.dtype.kind in "iu":
        if train.y.min(initial=0) < 0:
            raise EmbeddingsError(f"{path}: labels start at {train.y.min()}; class numbers start at 0.")
        classes = tuple(map(str, range(int(train.y.max(initial=0)) + 1)))
    else:
        classes = tuple(sorted({str(label) for label in train.y}))
    return Dataset(train.x, class_numbers(train.y, classes), test.x, class_numbers(test.y, classes), classes)


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
