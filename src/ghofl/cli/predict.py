"""The command that uses a finished head: `predict`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.cli.options import EncoderOptions, SampleOptions, takes_groups
from ghofl.cli.use import HeadFile, Priors, Threshold, load_head, used
from ghofl.samples.predictions import SUFFIXES, Asked, open_table, predict_stream
from ghofl.samples.streaming import Encoding, open_stream


@takes_groups
def predict(
    head: HeadFile,
    data: Annotated[
        str,
        typer.Argument(
            help="Embeddings (.npz, .npy, .safetensors, .parquet, .arrow, .feather), a table by the recipe's schema, a folder "
            "of images, a table with a column of texts or of image files, or hf:OWNER/NAME."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The table to write: .csv, .tsv, .jsonl or .parquet; '-' for standard output."
        ),
    ],
    *,
    split: Annotated[str, typer.Option(help="Read x_SPLIT, or this split of the samples.")] = "",
    id_column: Annotated[
        str, typer.Option(help="Keep this column or array of ids; files of images are kept by themselves.")
    ] = "",
    top: Annotated[int, typer.Option(min=0, help="Also write the K most probable classes.", metavar="K")] = 0,
    every: Annotated[bool, typer.Option("--all", help="Also write the probability of every class.")] = False,
    priors: Priors = None,
    threshold: Threshold = None,
    reject: Annotated[
        float | None,
        typer.Option(
            help="Leave the label empty for rows that are none of the classes, at the cost of this share of those that "
            "are, e.g. 0.05."
        ),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="For samples: the recipe's encoder, as in 'ghofl embed'; by its name unless given.")
    ] = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Predict labels of embeddings, tables, images or texts, a block at a time in bounded memory.

    Every row has its place in the data (row), the file or --id-column it came with, label and probability.

    Example: ghofl predict lda.safetensors new.npz -o predictions.csv
    """
    to_standard_output = str(output) == "-"
    if to_standard_output and json == "-":
        raise typer.BadParameter("both --output and --json are '-'; give one of them a file.")
    if not to_standard_output and output.suffix not in SUFFIXES:
        raise typer.BadParameter(f"{output} is of no known kind; write to {', '.join(SUFFIXES)}, or '-' for a CSV.")
    if samples.label_column:
        raise typer.BadParameter("--label-column is not for predictions; 'ghofl evaluate' compares them with labels.")
    console.check_outputs(json, force, *([] if to_standard_output else [output]))
    classifier = used(load_head(head), priors, threshold)
    encoding = Encoding(encoder, vars(model), samples.runtime, samples.batch_size)
    opened = open_stream(
        classifier.recipe,
        data,
        split,
        columns=samples.columns,
        ids=id_column,
        encoding=encoding,
        skip_bad=samples.skip_bad,
    )
    with opened as stream, console.progress(rate=True) as report, open_table(output) as write:
        rows, left = predict_stream(classifier, stream, write, Asked(top, every, reject), report)
    console.list_bad(stream.bad)
    result = {"file": str(output), "rows": rows, "head": classifier.head.name, "without_label": left}
    result["left_out"] = [{"row": row, "reason": why} for row, why in stream.bad]
    if to_standard_output:
        console.show(result, None, json)
        return
    told = f", {left:,} of them without a label" if left else ""
    console.say(result, f"Wrote {output}: {rows:,} predictions of {classifier.head.name}{told}.", json)
