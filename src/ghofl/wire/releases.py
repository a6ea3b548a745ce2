"""A journal of released noisy totals, one line each, and the guarantee that they give together.

Every release of a total draws its own noise and spends its epsilon again. The average of four releases has half the
noise, so releases are counted: in a journal beside the total, and by the total's content in a folder of the user's, where a
copy under another name finds them.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ghofl import files
from ghofl.errors import FederationError, MessageError, PrivacyError
from ghofl.privacy import Guarantee, compose
from ghofl.privacy.errors import CompositionError
from ghofl.recipe import Recipe
from ghofl.wire.roster import guarantee_in
from ghofl.wire.total import Total

WAIT = 60.0  # seconds for another release of the same user
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Releases:
    """The journal of releases in a file of JSON lines; only its owner reads it."""

    path: Path

    def count(self, released: Total, exact: Total | None = None) -> Total:
        """Count a released total, before it is written anywhere: the same total with the guarantee of all releases so far.

        Where the `exact` total is given, releases of its copies count too, and copies will know of this one. A total whose
        noise comes from its sites alone is not counted. Beside releases under another recipe it is refused: no file could
        then state what they promise together.
        """
        guarantee = released.guarantee
        if guarantee is None or guarantee.mechanism == "local":
            return released
        if exact is None:
            self._write([*self._lines(), self._line(released, guarantee, "")], released.recipe)
        else:
            with files.lock(folder := copies_folder(), WAIT):
                self._count_with_copies(released, guarantee, exact, folder)
        return replace(released, guarantee=self.compose(guarantee.assumptions))

    def _count_with_copies(self, released: Total, guarantee: Guarantee, exact: Total, folder: Path) -> None:
        of_copies, own = Releases(folder / f"{content_of(exact)}.jsonl"), self._lines()
        seen = {line["id"] for line in own}
        lines = [*own, *(line for line in of_copies._lines() if line["id"] not in seen)]
        lines.append(self._line(released, guarantee, content_of(exact)))
        self._write(lines, released.recipe)
        of_copies._write([line for line in lines if line["total"] == content_of(exact)], released.recipe)

    def _line(self, released: Total, guarantee: Guarantee, content: str) -> Line:
        facts = {key: value for key, value in guarantee.to_dict().items() if key != "assumptions"}
        sites = [entry.site for entry in released.roster]
        return {"id": secrets.token_hex(16), "total": content, "sites": sites, "guarantee": facts}

    def _write(self, lines: list[Line], recipe: Recipe) -> None:
        self._check_recipe(recipe, [self._guarantee(line) for line in lines])
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        files.write(self.path, text, files.PRIVATE)

    def _check_recipe(self, recipe: Recipe, guarantees: list[Guarantee]) -> None:
        try:
            guarantee_in({"guarantee": compose(guarantees).to_dict()}, recipe)
        except (MessageError, CompositionError):
            raise FederationError(
                f"{self.path} counts releases under another recipe. Give this total a file name of its own, and tell those "
                "who get both what ghofl.privacy.compose says of the two: they are about the same rows."
            ) from None

    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantee of every single release, in order."""
        return tuple(map(self._guarantee, self._lines()))

    @staticmethod
    def _guarantee(line: Line) -> Guarantee:
        return Guarantee.from_dict({**line["guarantee"], "assumptions": []})

    def _lines(self) -> list[Line]:
        if not self.path.exists():
            return []
        try:
            lines = list(map(json.loads, self.path.read_text(encoding="utf-8").splitlines()))
            for line in lines:
                _ = line["id"], line["total"], self._guarantee(line)
            return lines
        except (ValueError, KeyError, TypeError, RecursionError, PrivacyError):
            raise FederationError(
                f"{self.path} is damaged; it counts what was released. Restore it from a copy: without it, nobody "
                "knows what the releases promise together."
            ) from None

    def compose(self, assumptions: Iterable[str] = ()) -> Guarantee | None:
        """The guarantee of all releases together for a record that is in each of them; None where none was counted."""
        found = self.guarantees()
        if not found:
            return None
        together = compose(found)
        return Guarantee.from_dict({**together.to_dict(), "assumptions": list(assumptions)})


def content_of(total: Total) -> str:
    """What a total and its copies share: the sha256 of its recipe and its sums."""
    return hashlib.sha256(f"{total.recipe.fingerprint} {total.moments.sha256}".encode()).hexdigest()


def copies_folder() -> Path:
    """The folder in which releases are counted by the content of their totals: under XDG_STATE_HOME, or ~/.local/state."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ghofl" / "releases"
    try:
        files.private_folder(folder)
        (folder / files.LOCK).touch(files.PRIVATE)
    except OSError as error:
        raise FederationError(
            f"{folder} cannot be written ({error.strerror}), and releases of copies of a total are counted there. Set "
            "XDG_STATE_HOME to a folder of yours."
        ) from None
    return folder
