"""The command that says what a file would reveal: `audit`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.custody.disclosure import UNKNOWN, Disclosure, Verdict
from ghofl.errors import MessageError
from ghofl.moments import Moments
from ghofl.privacy import Guarantee, plan_of
from ghofl.privacy import audit as privacy_audit
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.message import Message
from ghofl.wire.total import Total

RULES = Disclosure("usual")


def audit(
    file: Annotated[Path, typer.Argument(help="A message or a total.")],
    recipe: Annotated[Path | None, typer.Option("--recipe", "-r", help="The recipe of a message.")] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Say in words and numbers what a message or a total would reveal to someone who reads it.

    Example: ghofl audit north.ghofl --recipe recipe.toml
    """
    console.check_outputs(json, force)
    with console.errors_about(file):
        moments, agreed, guarantee, sites = _open(file, None if recipe is None else Recipe.load(recipe))
    found = privacy_audit.audit(moments, agreed, guarantee)
    verdicts = _verdicts(moments, agreed, guarantee, sites)
    sentences = "\n".join(f"- {sentence}" for sentence in (*found.sentences(), *map(str, verdicts)))
    console.say(
        {
            "file": str(file),
            "bytes": file.stat().st_size,
            **found.to_dict(),
            "disclosure": {"preset": RULES.preset, "rules": list(map(asdict, verdicts))},
        },
        f"{file.name}: {file.stat().st_size:,} bytes, {console.count(moments.rows, 'row')} of "
        f"{sum(map(bool, moments.counts))} of {len(agreed.classes)} classes.\n{sentences}",
        json,
        is_private=guarantee is None,
    )


def _verdicts(moments: Moments, recipe: Recipe, guarantee: Guarantee | None, sites: int | None) -> tuple[Verdict, ...]:
    """What every rule says; rules about rows need exact sums and cannot be evaluated under noise."""
    if guarantee is None:
        return RULES.verdicts(moments, recipe, sites)
    why = "Counts have noise; here the promise of epsilon protects rows."
    asked = [rule for rule in ("class_rows", "saturation") if RULES.number(rule)]
    unknown = tuple(Verdict(rule.replace("_", " "), UNKNOWN, why) for rule in asked)
    return unknown + RULES.of_recipe(recipe, sites)


def _open(file: Path, recipe: Recipe | None) -> tuple[Moments, Recipe, Guarantee | None, int | None]:
    """The moments in a message or total, their recipe, and what noise in them promises."""
    header = peek(file)
    if header is not None and header.get("kind") == "total":
        total = Total.load(file)
        return total.moments, total.recipe, total.guarantee, len(total.roster)
    if recipe is None:
        raise MessageError(
            "this is not a total, and a message can only be read with its recipe; give --recipe recipe.toml."
        )
    plan = plan_of(recipe)
    is_noisy = plan is not None and plan.mechanism == "local"
    return Message.load(file, recipe).moments, recipe, plan.guarantee if is_noisy and plan is not None else None, None
