"""How `simulate` reads the settings of a sweep, and shows the results of many runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.simulation.runs import Runs, check_format
from ghofl.simulation.sweep import Experiment, Setting, Source, read_axes, run_all


def axes_of(path: Path | None, given: Mapping[str, list[Any] | None], heads: str | None) -> dict[str, Any]:
    """The settings of all runs, from a file and from options, with defaults for what is missing, and the heads."""
    options = {name: values for name, values in given.items() if values} | ({"heads": heads} if heads else {})
    found = {} if path is None else read_axes(path)
    if twice := sorted(set(found) & set(options)):
        raise typer.BadParameter(f"{path} and --{twice[0].replace('_', '-')} both set {twice[0]}; leave out one.")
    if path is None and given["alpha"] and given["classes_per_client"]:
        raise typer.BadParameter("give one of --alpha and --classes-per-client.")
    axes = {"seed": [0], **found, **options}
    if "clients" not in axes:
        raise typer.BadParameter("give --clients K, how many clients the training rows are split over.")
    named = axes.get("heads", DEFAULT_HEAD)
    if not all(isinstance(name, str) for name in named):
        raise typer.BadParameter(f'heads in {path} is {named!r}; write texts, e.g. heads = ["nb", "lda"].')
    for seed in (seed for seed in axes["seed"] if isinstance(seed, int)):
        console.check_seed(seed)
    return {**axes, "heads": named if isinstance(named, str) else ",".join(named)}


def check_sweep(sweep: Path | None, output: Path | None, plot: Path | None, runs: int, force: bool) -> bool:
    """Whether this is a sweep; a usage error before the work where its files could not be written."""
    if output is not None:
        check_format(output)
        console.check_folder(str(output))
    if plot is not None:
        console.check_folder(str(plot))
        console.check_free(plot, force)
    return runs > 1 or any(path is not None for path in (sweep, output, plot))


def show_sweep(
    source: Source, experiment: Experiment, settings: Sequence[Setting], name: str, output: Path | None,
    plot: Path | None, json: str | None, force: bool,
) -> None:  # fmt: skip
    """Run a sweep, write its table and picture, and show means over seeds."""
    with console.progress() as report:
        runs = run_all(source, settings, experiment, output, force, name, report)
    if plot is not None:
        runs.plot(plot)
    console.show({"runs": list(runs.rows)}, _table(runs), json)
    for path in (output, plot):
        if path is not None and json != "-":
            console.out.print(f"Wrote {path}.", soft_wrap=True)


def _table(runs: Runs) -> Table:
    settings = [name for name in runs.varied if name not in ("seed", "head")]
    table = Table(title=f"{console.count(len(runs.ids), 'run')}, means over seeds")
    for name in [*settings, "head"]:
        table.add_column(name.replace("_", " "))
    for name in ("seeds", "accuracy %", "± sd", "log loss", "sent per client"):
        table.add_column(name, justify="right")
    for row in runs.summary():
        shown = ["none" if row[name] is None else f"{row[name]}" for name in settings]
        table.add_row(
            *shown, row["head"], str(row["seeds"]), f"{100 * row['accuracy']:.2f}", f"{100 * row['accuracy_sd']:.2f}",
            f"{row['log_loss']:.4f}", console.size(row["payload_bytes"]),
        )  # fmt: skip
    return table
