"""The command that uses a finished head: `predict`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.cli.options import (
    DATA_HELP,
    EncoderOptions,
    RecipesEncoder,
    SampleOptions,
    encoding_of,
    judged_split,
    takes_groups,
)
from ghofl.cli.use import HeadFile, Priors, Threshold, adjust, load_head
from ghofl.encoders.streaming import open_stream
from ghofl.evaluation.predictions import SUFFIXES, Extras, open_table, predict_stream


@dataclass(frozen=True)
class ResultColumns:
    """What a table of predictions has besides labels and their probabilities."""

    id_column: Annotated[
        str, typer.Option(help="Copy this column or array of ids; file names of images are always written.")
    ] = ""
    top: Annotated[
        str,
        typer.Option(
            help="Also write the K most probable classes; or 'all', the probability of every class.", metavar="K|all"
        ),
    ] = "0"
    reject: Annotated[
        float | None,
        typer.Option(
            help="Leave the label empty for rows that fit none of the classes; this share of rows that do fit is rejected "
            "too, e.g. 0.05. The head is one of 'ghofl head --novelty'."
        ),
    ] = None

    @property
    def extras(self) -> Extras:
        """The columns to compute."""
        if self.top == "all":
            return Extras(every=True, reject=self.reject)
        if not self.top.isdecimal() or len(self.top) > 9:
            raise typer.BadParameter(f"--top is {self.top[:40]!r}; write a number of classes, or 'all'.")
        return Extras(int(self.top), reject=self.reject)


@takes_groups
def predict(
    head: HeadFile,
    data: Annotated[
        str,
        typer.Argument(help=f"{DATA_HELP}."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The table to write: .csv, .tsv, .jsonl or .parquet; '-' for standard output."
        ),
    ],
    *,
    split: Annotated[str, typer.Option(help="Read x_SPLIT, or this split of the samples.")] = "",
    columns: ResultColumns,
    priors: Priors = None,
    threshold: Threshold = None,
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Predict labels of embeddings, tables, images or texts, a block at a time in bounded memory.

    Every row of the result has its position in the data (row), its file or --id-column, a label and a probability.

    Example: ghofl predict lda.safetensors new.npz -o predictions.csv
    """
    extras, to_standard_output = columns.extras, str(output) == "-"
    if to_standard_output and json == "-":
        raise typer.BadParameter("both --output and --json are '-'; give one of them a file.")
    if not to_standard_output and output.suffix not in SUFFIXES:
        raise typer.BadParameter(f"{output} has no known suffix; write to {', '.join(SUFFIXES)}, or '-' for a CSV.")
    if samples.label_column:
        raise typer.BadParameter(f"--label-column {samples.label_column} is for 'ghofl evaluate', not for predictions.")
    console.check_outputs(json, force, None if to_standard_output else output)
    classifier = adjust(load_head(head), priors, threshold)
    if extras.reject is not None and classifier.novelty_rule is None:
        raise typer.BadParameter(
            f"--reject asks for novelty, and {head} has none; make it with 'ghofl head --novelty'."
        )
    opened = open_stream(
        classifier.recipe, data, judged_split(data, split), columns=samples.columns, ids=columns.id_column,
        encoding=encoding_of(encoder, model, samples),
        skip_bad=samples.skip_bad,
    )  # fmt: skip
    with opened as stream, console.progress(rate=True) as report, open_table(output) as write:
        rows, left = predict_stream(classifier, stream, write, extras, report)
    console.list_bad(stream.bad)
    result = {"file": str(output), "rows": rows, "head": classifier.head, "without_label": left}
    result["left_out"] = [{"row": row, "reason": why} for row, why in stream.bad]
    if to_standard_output:
        console.show(result, None, json)
        return
    unlabelled = f", {left:,} of them without a label" if left else ""
    console.say(result, f"Wrote {output}: {rows:,} predictions of {classifier.head}{unlabelled}.", json)
