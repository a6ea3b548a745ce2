"""The recipe in a request, read before the site's folder is locked, so that nobody waits while it is parsed."""

from dataclasses import replace
from pathlib import Path

from ghofl.custody.site import Custodian, Site
from ghofl.errors import PolicyError
from ghofl.recipe import Recipe
from ghofl.wire.letter import Letter

LISTS = ("counted", "signatures", "known")  # fields of requests that are lists
SLACK = 2**16  # characters that a server's recipe may have beyond twice the site's own


def with_recipe(request: Letter, site: Custodian) -> Letter:
    """The request with its recipe, if it has one, read, or with the error that reading it gave."""
    if "recipe" not in request.fields:
        return request
    found: Recipe | Exception
    try:
        found = _read_recipe(str(request.fields["recipe"]), site)
    except Exception as error:
        found = error
    return replace(request, fields={**request.fields, "recipe": found})


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


def check_fields(request: Letter) -> None:
    """Raise `PolicyError` where a field of a request is not the list that it should be."""
    wrong = [name for name in LISTS if not isinstance(request.fields.get(name, []), list | tuple)]
    if wrong:
        raise PolicyError(f"the field {wrong[0]} of a request is not a list; send a list.")


def recipe_of(request: Letter) -> Recipe:
    """The recipe of a request that `with_recipe` has read; raises where it could not be read."""
    found = request.fields.get("recipe")
    if found is None:
        raise PolicyError("the request has no recipe; send the one agreed on with it.")
    if isinstance(found, Exception):
        raise found
    return found
