"""The command that builds a head, from messages or from a total."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, Preset, complete_heads
from ghofl.cli.server import load_total, promise_result, release_counted, sum_files
from ghofl.errors import MessageError
from ghofl.heads.novelty import check_novelty
from ghofl.heads.spec import DEFAULT_HEAD, HeadSpec
from ghofl.privacy import Guarantee, plan_of
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.total import Total


def head(
    files: Annotated[
        list[Path], typer.Argument(help="A total; or with --recipe, message files of sites or folders of them.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The head file to write.")],
    recipe: Annotated[
        Path | None, typer.Option("--recipe", "-r", help="The recipe of messages, which are added up first.")
    ] = None,
    head: Annotated[
        str,
        typer.Option(
            help="Which head, e.g. lda or 'rda(blend=0.9, shrinkage=0.05)'; best is the strongest that the total allows.",
            autocompletion=complete_heads,
        ),
    ] = DEFAULT_HEAD,
    preset: Preset = "default",
    novelty: Annotated[
        bool, typer.Option("--novelty", help="Also learn what is none of the classes, for 'ghofl predict --reject'.")
    ] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """Build a head from messages or from a total. Its file includes the recipe, so it takes raw embeddings.

    Messages are added up as by 'ghofl sum', and no total is kept. Where the recipe promises epsilon by noise on the total,
    every such run is a release of its own, counted in HEAD.releases.jsonl; build several heads from one released total.

    Example: ghofl head north.ghofl south.ghofl --recipe recipe.toml -o head.safetensors
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    spec = HeadSpec.parse(head, preset)
    total = _total_of(files, recipe)
    spec.check(total.moments.layout, total.recipe)  # before a release is counted
    if novelty:
        check_novelty(total.moments.layout)
    if recipe is not None and plan_of(total.recipe) is not None and total.guarantee is None:
        total = release_counted(total, output)[1]
        _warn_of_repetition(total.guarantee)
    classifier = Classifier.fit(total, spec, novelty=novelty)
    classifier.save(output)
    result = {"head": classifier.head, "options": classifier.options, "file": str(output)}
    result |= {"bytes": output.stat().st_size, "rows": classifier.rows, "sites": classifier.sites}
    console.say(
        {**result, **promise_result(classifier.guarantee), "revealed": classifier.revealed},
        f"Wrote {output}: {classifier.head} from {classifier.rows:,} rows of "
        f"{console.count(classifier.sites, 'site')}, {console.size(output.stat().st_size)}."
        + (f" {console.promise(classifier.guarantee)}" if classifier.guarantee else "")
        + (f" {classifier.revealed}" if classifier.revealed else ""),
        json,
    )


def _total_of(files: list[Path], recipe: Path | None) -> Total:
    """The total in a file, or with a recipe that of messages."""
    if recipe is not None:
        return sum_files(files, Recipe.load(recipe))
    if len(files) > 1 or files[0].is_dir():
        raise typer.BadParameter(
            f"{', '.join(map(str, files[:5]))} came without --recipe; give one total, or messages and --recipe recipe.toml."
        )
    if (peek(files[0]) or {}).get("kind") == "message":
        raise MessageError(
            f"{files[0]}: this file is a 'message', and a 'total' was expected; with --recipe recipe.toml messages are added "
            "up first."
        )
    return load_total(files[0])


def _warn_of_repetition(together: Guarantee | None) -> None:
    if together is not None and together.releases > 1:
        console.tell(
            "Warning",
            f"these sums were released {together.releases} times now, each time with new noise, and the head promises what "
            "all releases promise together. For several heads of one release: 'ghofl sum', 'ghofl release' and 'ghofl head "
            "released.ghofl'.",
        )
