"""Commands that make and judge a head: `head`, `evaluate`, `select` and `calibrate`."""

from dataclasses import replace
from json import dumps, loads
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl.classifier import Classifier
from ghofl.cli import console, measures
from ghofl.cli.arguments import Force, Json, LabelsAreNumbers, Preset, TotalFile, complete_heads
from ghofl.cli.options import (
    DATA_HELP,
    EncoderOptions,
    RecipesEncoder,
    SampleOptions,
    encoding_of,
    load_judged,
    takes_groups,
)
from ghofl.cli.server import files_in, load_total, promise_result
from ghofl.evaluation import Metrics
from ghofl.evaluation.confusion import interval_text
from ghofl.evaluation.selection import Report, best_of, calibrate_head
from ghofl.evaluation.tally import Tally
from ghofl.heads.plugins import BEST
from ghofl.heads.spec import DEFAULT_HEAD, HeadSpec
from ghofl.wire.message import Message
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


def head(
    total: TotalFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The head file to write.")],
    head: Annotated[
        str,
        typer.Option(
            help="Which head, e.g. lda or 'rda(blend=0.9, shrinkage=0.05)'; best is the strongest that the total allows.",
            autocompletion=complete_heads,
        ),
    ] = DEFAULT_HEAD,
    preset: Preset = "default",
    site_effects: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MESSAGES",
            help="Take out what each site adds to all its rows, by all messages in the total; 'best' is then lda.",
        ),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Build a head from a total. Its file includes the recipe, so it takes raw embeddings.

    Example: ghofl head total.ghofl -o head.safetensors
    """
    console.check_outputs(json, force, output)
    spec, found = HeadSpec.parse(head, preset), load_total(total)
    classifier = _fit_mended(found, spec, site_effects) if site_effects else Classifier.fit(found, spec)
    classifier.save(output)
    result = {"head": classifier.head.name, "options": classifier.options, "file": str(output)}
    result |= {"bytes": output.stat().st_size, "rows": classifier.rows, "sites": classifier.sites}
    result |= {} if classifier.site_effects is None else {"site_effects_ratio": classifier.site_effects.ratio}
    console.say(
        {**result, **promise_result(classifier.guarantee), "revealed": classifier.revealed},
        f"Wrote {output}: {classifier.head.name} from {classifier.rows:,} rows of "
        f"{console.count(classifier.sites, 'site')}, {console.size(output.stat().st_size)}."
        + (f" Site effects: ratio {effects.ratio:.2g}." if (effects := classifier.site_effects) else "")
        + (f" {console.promise(classifier.guarantee)}" if classifier.guarantee else "")
        + (f" {classifier.revealed}" if classifier.revealed else ""),
        json,
    )


def _fit_mended(total: Total, spec: HeadSpec, paths: list[Path]) -> Classifier:
    from ghofl.personal.offset import fit_without_site_effects

    messages = (Message.load(path, total.recipe) for path in files_in(paths))
    return fit_without_site_effects(total, messages, None if spec.name == BEST else spec)


@takes_groups
def evaluate(
    head: Annotated[Path, typer.Argument(help="A head written by 'ghofl head', or with --leave-out a total.")],
    data: Annotated[str, typer.Argument(help=f"{DATA_HELP}; with labels.")],
    *,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT, or this split of the samples.")] = "",
    site: Annotated[str, typer.Option(help="This site's name in the report, for 'ghofl select'.")] = "",
    site_file: Annotated[
        Path | None,
        typer.Option(
            help="The site's TOML file: its policy decides whether the report may leave, and its ledger records it."
        ),
    ] = None,
    labels_are_numbers: LabelsAreNumbers = False,
    priors: Priors = None,
    threshold: Threshold = None,
    tally: Annotated[
        bool, typer.Option("--tally", help="Include what 'ghofl calibrate' needs in the report: sums over rows.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the confusion matrix into this file, .png or .svg.")] = None,
    leave_out: Annotated[
        int | None,
        typer.Option(
            metavar="FOLDS", help="With a total and the rows this site sent: predict each row without its fold."
        ),
    ] = None,
    heads: Annotated[
        str, typer.Option(help="With --leave-out: heads, separated by commas.", autocompletion=complete_heads)
    ] = DEFAULT_HEAD,
    person: Annotated[
        str, typer.Option(help="With --leave-out: the column that says who a row is about; a fold has all of a person.")
    ] = "",
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Compare a head's predictions with labels.

    Example: ghofl evaluate lda.safetensors test.npz
    """
    console.check_outputs(json, force, plot)
    if leave_out is not None:
        if tally or site or plot or priors or threshold:
            raise typer.BadParameter(
                "--tally, --site, --plot, --priors and --threshold are for a head, not --leave-out."
            )
        from ghofl.cli.own import show_leave_out

        how = {"split": split, "label_column": samples.label_column, "person": person}
        how["labels_are_numbers"] = labels_are_numbers
        show_leave_out(head, Path(data), site_file, leave_out, heads, json, **how)
        return
    if site_file is not None and json is None:
        raise typer.BadParameter(
            f"--site-file {site_file} is about the report that leaves; say with --json where to write it."
        )
    classifier = adjust(load_head(head), priors, threshold)
    classes, encoding = classifier.recipe.classes, encoding_of(encoder, model, samples)
    x, y = load_judged(classifier.recipe, data, split, samples, encoding, labels_are_numbers)
    probabilities = _probabilities(classifier, x)
    found = Metrics.of(probabilities, y, classifier.decide(probabilities))
    counted = Tally.of(classifier, x, y) if tally else None
    if plot is not None:
        measures.plot_confusion(found, classes, plot)
    report, shown = Report.of(head, site, classifier, found.confusion, counted), found
    if site_file is not None:
        report = _register(report, site_file, classifier, x, y)
        found = replace(found, thresholds=())  # they are probabilities of single rows
    result = {
        **report.to_dict(),
        "expected_calibration_error": found.ece,
        **found.to_dict(),
        **measures.per_class(found, classes),
    }
    console.show(result, measures.measures_table(found, classifier.head.name, classes), json, is_private=True)
    if json != "-":
        for table in measures.tables_of(shown, classifier.head.name, classes):
            console.out.print(table)


def _register(report: Report, path: Path, classifier: Classifier, x: np.ndarray, y: np.ndarray) -> Report:
    """The report under the site's own name, after its policy has allowed it and its ledger has recorded it."""
    from ghofl.custody.custody import Custody
    from ghofl.custody.site import Site
    from ghofl.outbox.row_version import version_of

    site = Site.load(path)
    if report.sites not in (("",), (site.name,)):
        raise typer.BadParameter(
            f"--site is {report.sites[0]!r}, and the site of {path} is {site.name!r}; leave --site out."
        )
    report = replace(report, sites=(site.name,))
    version = version_of(x, y, classifier.recipe.classes)
    content = dumps(report.to_dict(), sort_keys=True).encode()
    with Custody.locked(site, site.storage()) as custody:
        custody.record_evaluation(classifier.recipe, report.confusion.counts.sum(axis=1), version, content)
    return report


def select(
    reports: Annotated[list[Path], typer.Argument(help="Reports that sites wrote with 'ghofl evaluate --json'.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: add up the sites' counts of right and wrong predictions and name the best head.

    Example: ghofl select north-lda.json south-lda.json north-rda.json south-rda.json
    """
    console.check_outputs(json, force)
    totals = best_of(Report.load(path) for path in reports)
    table = Table(title=f"{console.count(len(totals), 'head')}, best first")
    for name in ("head", "file's sha256", "sites", "rows", "accuracy %", "95 % interval"):
        table.add_column(name)
    for found in totals:
        rows, accuracy = f"{found.confusion.rows:,}", f"{100 * found.confusion.accuracy:.2f}"
        interval = interval_text(found.confusion.accuracy_interval, 2)
        table.add_row(found.head, found.sha256[:12], str(len(found.sites)), rows, accuracy, interval)
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
    made, total = calibrate_head(head, classifier, [Report.load(path) for path in reports])
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
