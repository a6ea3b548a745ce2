"""How `simulate` reads the settings of a sweep, and shows the results of many runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import more
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.simulation.runs import Runs, check_format
from ghofl.simulation.sweep import Experiment, Setting, Source, read_axes, run_all


@dataclass(frozen=True)
class SplitOptions:
    """How training rows are split over clients."""

    clients: Annotated[
        list[int] | None, typer.Option(help="How many clients the training rows are split over; repeat for a sweep.")
    ] = None
    alpha: Annotated[
        list[float] | None,
        typer.Option(help="Dirichlet skew of classes over clients, none unless given; repeat for a sweep."),
    ] = None
    classes_per_client: Annotated[
        list[int] | None,
        typer.Option(help="Classes per client; repeat for a sweep.", rich_help_panel=more("clients")),
    ] = None


@dataclass(frozen=True)
class SweepFiles:
    """The settings of many runs, and where their results go."""

    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Run every combination of the settings in this file, e.g. clients = [10, 50] and project = [64, 128].",
            rich_help_panel=more("sweeps"),
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            rich_help_panel=more("sweeps"),
            help="A .csv, .parquet or .json with a row per run and head. Runs that it already has are not repeated.",
        ),
    ] = None

    def check(self, runs: int) -> bool:
        """Whether this is a sweep; a usage error before the work where its table could not be written."""
        if self.output is not None:
            check_format(self.output)
            console.check_folder(str(self.output))
        return runs > 1 or any(path is not None for path in vars(self).values())


def axes_of(path: Path | None, given: Mapping[str, list[Any] | None], heads: str | None) -> dict[str, Any]:
    """The settings of all runs, from a file and from options, with defaults for what is missing, and the heads."""
    options = {name: values for name, values in given.items() if values} | ({"heads": heads} if heads else {})
    found = {} if path is None else read_axes(path)
    if twice := sorted(set(found) & set(options)):
        raise typer.BadParameter(f"{path} and --{twice[0].replace('_', '-')} both set {twice[0]}; leave out one.")
    if path is None and given["alpha"] and given["classes_per_client"]:
        raise typer.BadParameter(
            f"give one of --alpha ({given['alpha']}) and --classes-per-client ({given['classes_per_client']})."
        )
    axes = {"seed": [0], **found, **options}
    if "clients" not in axes:
        raise typer.BadParameter("give --clients K, how many clients the training rows are split over.")
    named = axes.get("heads", DEFAULT_HEAD)
    if not all(isinstance(name, str) for name in named):
        raise typer.BadParameter(f'heads in {path} is {named!r}; write texts, e.g. heads = ["nb", "lda"].')
    for seed in (seed for seed in axes["seed"] if isinstance(seed, int)):
        console.check_seed(seed)
    return {**axes, "heads": named if isinstance(named, str) else ",".join(named)}


def show_sweep(
    source: Source, experiment: Experiment, settings: Sequence[Setting], name: str, files: SweepFiles, json: str | None,
    force: bool,
) -> None:  # fmt: skip
    """Run a sweep, write its table, and show means over seeds."""
    with console.progress() as report:
        runs = run_all(source, settings, experiment, files.output, force, name, report)
    console.show({"runs": list(runs.rows)}, _table(runs), json)
    if files.output is not None and json != "-":
        console.out.print(f"Wrote {files.output}.", soft_wrap=True)


def _table(runs: Runs) -> Table:
    table, (names, *lines) = console.titled(f"{console.count(len(runs.ids), 'run')}, means over seeds"), runs.table()
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i > names.index("head") else "left")
    for line in lines:
        table.add_row(*line)
    return table
