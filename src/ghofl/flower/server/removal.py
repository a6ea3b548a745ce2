"""Taking sites out of a federation's folder, and everything that was made with them."""

import logging
from collections.abc import Sequence

from ghofl.errors import FederationError, RosterError
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.recipe import Recipe

log = logging.getLogger("flwr")


def check_removal(folder: RunFolder, recipe: Recipe, settings: Settings) -> None:
    """Raise unless every site in `remove` can be removed; nothing is changed."""
    if not settings.remove:
        if settings.forget:
            raise RosterError('forget=true goes with the names of sites to remove; give remove="north" too.')
        return
    if recipe.privacy.secure:
        raise FederationError(
            f"{', '.join(settings.remove)} cannot be removed: a secure total hides its parts, and a second one without "
            "them would show theirs by subtraction. Nothing was changed."
        )
    known = {header["site"] for header in folder.headers().values()} | set(folder.removed().values())
    for name in settings.remove:
        if name not in known:
            raise RosterError(f"site {name!r} cannot be removed, as it is not in {folder.path}; check the name.")


def remove(folder: RunFolder, names: Sequence[str], forget: bool) -> list[str]:
    """Take sites out; the returned sentences say what was moved or deleted, and what remains.

    Heads and totals go first: a server that dies in between leaves none that contains a site whose message is gone.
    """
    inside = {header["site"] for header in folder.headers().values()} & set(names)
    notes = []
    if inside:
        moved = folder.set_aside()
        folder.forget_total()
        if moved and not forget:
            notes.append(
                f"Heads that were built with {', '.join(sorted(inside))} are in {', '.join(moved)}: they still contain "
                "what was removed. Delete them, and use the new ones."
            )
    for name in names:
        folder.remove(name, forget)
    if forget:
        folder.forget_old_heads()
        notes.append(
            f"{', '.join(names)}: forgotten. Message, older totals and older heads were deleted from this folder; a name "
            "and a message id stay in removed/, to keep the site out. Heads and released totals that were given away, and "
            "backups of this folder, may remain elsewhere."
        )
    elif inside:
        notes.append(
            f"{', '.join(sorted(inside))}: removed. The message is kept in removed/; remove again with forget=true to "
            "delete it. Heads and released totals that were given away still contain it."
        )
    for note in notes:
        log.info("%s", note)
    return notes
