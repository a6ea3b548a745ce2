"""The recipe in a question, read before the site's folder is locked, so that nobody waits while it is parsed."""

from dataclasses import replace
from pathlib import Path

from ghofl.custody.site import Custodian, Site
from ghofl.errors import PolicyError
from ghofl.recipe import Recipe
from ghofl.wire.letter import Letter

LISTS = ("counted", "signatures", "known")  # fields of questions that are lists
SLACK = 2**16  # characters that a server's recipe may have beyond twice the site's own


def with_recipe(query: Letter, site: Custodian) -> Letter:
    """The question with its recipe, if it has one, read, or with the error that reading it gave."""
    if "recipe" not in query.fields:
        return query
    found: Recipe | Exception
    try:
        found = _read_recipe(str(query.fields["recipe"]), site)
    except Exception as error:
        found = error
    return replace(query, fields={**query.fields, "recipe": found})


def _read_recipe(text: str, site: Custodian) -> Recipe:
    """The recipe in a text from outside, which is not parsed where the site's own copy is the same."""
    if not (isinstance(site, Site) and site.recipe):
        return Recipe.from_toml(text)
    own = Path(site.recipe).read_text(encoding="utf-8")
    if text == own:
        return Recipe.load(site.recipe)
    if len(text) > 2 * len(own) + SLACK:
        raise PolicyError("the server's recipe is not the one agreed on here: it is much longer; give both the same.")
    return Recipe.from_toml(text)


def check_fields(query: Letter) -> None:
    """Raise `PolicyError` where a field of a question is not the list that it should be."""
    wrong = [name for name in LISTS if not isinstance(query.fields.get(name, []), list | tuple)]
    if wrong:
        raise PolicyError(f"the field {wrong[0]} of a question is not a list; send a list.")


def recipe_of(query: Letter) -> Recipe:
    """The recipe of a question that `with_recipe` has read; raises where it could not be read."""
    found = query.fields.get("recipe")
    if found is None:
        raise PolicyError("the question has no recipe; send the one agreed on with it.")
    if isinstance(found, Exception):
        raise found
    return found
