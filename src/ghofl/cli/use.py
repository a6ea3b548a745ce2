"""Commands that judge a head: `evaluate`, `select` and `calibrate`."""

from dataclasses import dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from ghofl.classifier import Classifier
from ghofl.cli import console, measures
from ghofl.cli.arguments import Force, Json, LabelsAreNumbers, complete_heads, refuse_unused
from ghofl.cli.options import (
    DATA_HELP,
    EncoderOptions,
    Reading,
    RecipesEncoder,
    SampleOptions,
    encoding_of,
    judged_split,
    takes_groups,
)
from ghofl.evaluation import Metrics
from ghofl.evaluation.confusion import interval_text
from ghofl.evaluation.selection import Report, best_of, calibrate_head, load_reports
from ghofl.evaluation.tally import Tally
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

BLOCK = 2048
Priors = Annotated[
    str | None,
    typer.Option(
        metavar="PRIORS",
        help="How common classes are where the head is used: 'uniform', a=0.9,b=0.1, or a JSON file of such numbers; "
        "as in the total unless given.",
    ),
]
Threshold = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLASS=P",
        help="Predict this class wherever it has at least this probability, and nowhere else; may be repeated.",
    ),
]
HeadFile = Annotated[Path, typer.Argument(help="A head written by 'ghofl head'.")]


@dataclass(frozen=True)
class ReportOptions:
    """What leaves a site about a head."""

    site: Annotated[str, typer.Option(help="This site's name in the report, for 'ghofl select'.")] = ""
    site_file: Annotated[
        Path | None,
        typer.Option(
            help="The site's TOML file: its policy decides whether the report may leave, and its ledger records it."
        ),
    ] = None
    tally: Annotated[
        bool, typer.Option("--tally", help="Include what 'ghofl calibrate' needs in the report: sums over rows.")
    ] = False

    def check(self, json: str | None) -> None:
        """Raise where a report would leave and nothing says where to write it."""
        if self.site_file is not None and json is None:
            raise typer.BadParameter(
                f"--site-file {self.site_file} is about the report that leaves; say with --json where to write it."
            )


@dataclass(frozen=True)
class LeaveOutOptions:
    """Which heads of a total are judged on rows that are in it, and how these are divided."""

    leave_out: Annotated[
        int | None,
        typer.Option(
            metavar="FOLDS", help="With a total and the rows this site sent: predict each row without its fold."
        ),
    ] = None
    heads: Annotated[
        str, typer.Option(help="With --leave-out: heads, separated by commas.", autocompletion=complete_heads)
    ] = DEFAULT_HEAD
    person: Annotated[
        str, typer.Option(help="With --leave-out: the column that says who a row is about; a fold has all of a person.")
    ] = ""

    def check_unused(self) -> None:
        """Raise where folds are described and none is left out."""
        if self.leave_out is None:
            where = "there is no --leave-out, and one head is judged"
            refuse_unused(where, heads=self.heads != DEFAULT_HEAD, person=self.person)

    def show(self, total: Path, rows: str, reading: Reading, about: ReportOptions, json: str | None) -> None:
        """Judge the heads on this site's own rows."""
        from ghofl.cli.own import show_leave_out

        assert self.leave_out is not None
        show_leave_out(total, rows, reading, about, self.leave_out, self.heads, json)


@takes_groups
def evaluate(
    head: Annotated[Path, typer.Argument(help="A head written by 'ghofl head', or with --leave-out a total.")],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP}; with labels.")],
    *,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT, or this split of the samples.")] = "",
    about: ReportOptions,
    labels_are_numbers: LabelsAreNumbers = False,
    priors: Priors = None,
    threshold: Threshold = None,
    folds: LeaveOutOptions,
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Compare a head's predictions with labels.

    Example: ghofl evaluate lda.safetensors test.npz
    """
    console.check_outputs(json, force)
    folds.check_unused()
    reading = Reading(split, samples, encoding_of(encoder, model, samples), labels_are_numbers, folds.person)
    if folds.leave_out is not None:
        refuse_unused(
            f"--leave-out {folds.leave_out} judges heads of a total, and these are for one head",
            site=about.site, priors=priors, threshold=threshold,
        )  # fmt: skip
        folds.show(head, data, reading, about, json)
        return
    about.check(json)
    reading = replace(reading, split=judged_split(data, split))
    classifier = adjust(load_head(head), priors, threshold)
    classes = classifier.recipe.classes
    x, y, _ = reading.load(classifier.recipe, data)
    probabilities = _probabilities(classifier, x)
    found = Metrics.of(probabilities, y, classifier.decide(probabilities))
    counted = Tally.of(classifier, x, y) if about.tally else None
    report, shown = Report.of(head, about.site, classifier, found.confusion, counted), found
    if about.site_file is not None:
        (report,) = register([report], about.site_file, classifier.recipe, x, y)
        found = replace(found, thresholds=())  # they are probabilities of single rows
    result = {
        **report.to_dict(),
        "expected_calibration_error": found.ece,
        **found.to_dict(),
        **measures.per_class(found, classes),
    }
    console.show(result, measures.measures_table(found, classifier.head, classes), json, is_private=True)
    if json != "-":
        for table in measures.tables_of(shown, classifier.head, classes):
            console.out.print(table)


def register(
    reports: list[Report], path: Path, recipe: Recipe, x: np.ndarray, y: np.ndarray, total: Total | None = None
) -> list[Report]:
    """Reports on the same rows under the site's own name, after its policy has allowed them and its ledger has a line.

    Where they are on heads of a `total`, the ledger also says that the site has it.
    """
    from ghofl.custody.custody import Custody
    from ghofl.custody.site import Site
    from ghofl.outbox.row_version import version_of

    site = Site.load(path)
    if reports[0].sites not in (("",), (site.name,)):
        raise typer.BadParameter(
            f"these rows are of {reports[0].sites[0]!r}, and the site of {path} is {site.name!r}; give that site's file, and "
            "leave --site out."
        )
    reports = [replace(report, sites=(site.name,)) for report in reports]
    version = version_of(x, y, recipe.classes)
    content = dumps([report.to_dict() for report in reports], sort_keys=True).encode()
    with Custody.locked(site, site.storage()) as custody:
        if total is not None:
            custody.record_total(total)
        custody.record_evaluation(recipe, reports[0].confusion.counts.sum(axis=1), version, content)
    return reports


def select(
    reports: Annotated[list[Path], typer.Argument(help="Reports that sites wrote with 'ghofl evaluate --json'.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: add up the sites' counts of right and wrong predictions and name the best head.

    Reports by leave-out add up to federated cross-validation.

    Example: ghofl select north-lda.json south-lda.json north-rda.json south-rda.json
    """
    console.check_outputs(json, force)
    totals = best_of(report for path in reports for report in load_reports(path))
    by = f", {totals[0].folds} folds at every site" if totals[0].folds else ""
    table = console.titled(f"{console.count(len(totals), 'head')}, best first{by}")
    sha256 = "total's sha256" if by else "file's sha256"
    for name in ("head", sha256, "sites", "rows", "accuracy %", "95 % interval"):
        table.add_column(name, justify="left" if name in ("head", sha256) else "right")
    for found in totals:
        rows, accuracy = f"{found.confusion.rows:,}", f"{100 * found.confusion.accuracy:.2f}"
        interval = interval_text(found.confusion.accuracy_interval, 2)
        head = found.head if found.built in ("", found.head) else f"{found.head}: {found.built}"
        table.add_row(Text(head), found.sha256[:12], str(len(found.sites)), rows, accuracy, interval)
    console.show({"heads": [found.to_dict() for found in totals]}, table, json, is_private=True)


def calibrate(
    head: HeadFile,
    reports: Annotated[list[Path], typer.Argument(help="Reports of 'ghofl evaluate --tally --json' on that head.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The calibrated head to write.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: calibrate a head's probabilities and its novelty on the rows that sites reported on.

    The reports are exact, so a calibrated head keeps no promise of epsilon; its file says so.

    Example: ghofl calibrate lda.safetensors north.json south.json -o calibrated.safetensors
    """
    console.check_outputs(json, force, output)
    classifier = load_head(head)
    found = [report for path in reports for report in load_reports(path)]
    made, total = calibrate_head(head, classifier, found)
    made.save(output)
    result = {"file": str(output), "rows": total.confusion.rows, "sites": len(total.sites)}
    result |= {"temperature_before": classifier.temperature, "temperature": made.temperature}
    if classifier.guarantee is not None:
        console.tell("Warning", f"{output} promises no epsilon. {made.revealed}")
    console.say(
        result,
        f"Wrote {output}: calibrated on {total.confusion.rows:,} rows of {console.count(len(total.sites), 'site')}, "
        f"temperature {classifier.temperature:.3g} → {made.temperature:.3g}.",
        json,
    )


def adjust(classifier: Classifier, priors: str | None, thresholds: list[str] | None) -> Classifier:
    """The classifier with the priors and thresholds of the command line."""
    if priors is not None:
        classifier = classifier.with_priors(priors if priors == "uniform" else named_numbers(priors, "--priors"))
    if thresholds:
        pairs = [pair for text in thresholds for pair in named_numbers(text, "--threshold").items()]
        classifier = classifier.with_thresholds(dict(pairs))
    return classifier


def named_numbers(text: str, option: str) -> dict[str, float]:
    """NAME=NUMBER pairs separated by commas, or the JSON object in a file."""
    path = Path(text)
    if "=" not in text and path.is_file():
        try:
            values = loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or not all(type(v) in (int, float) for v in values.values()):
            raise typer.BadParameter(f'{path} is not a JSON object of numbers by class, e.g. {{"cat": 0.9}}.')
        return {name: float(value) for name, value in values.items()}
    found = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(f"{option} {text} is neither a file nor of the form a=0.9,b=0.1.")
    return found


def load_head(path: Path) -> Classifier:
    """The head in a file; errors name the file."""
    with console.errors_about(path):
        return Classifier.load(path)


def _probabilities(classifier: Classifier, x: np.ndarray) -> np.ndarray:
    parts = [np.zeros((0, len(classifier.recipe.classes)))]
    with console.progress() as report:
        for start in range(0, len(x), BLOCK):
            parts.append(classifier.predict_proba(x[start : start + BLOCK]))
            report("rows", min(start + BLOCK, len(x)), len(x))
    return np.concatenate(parts)
