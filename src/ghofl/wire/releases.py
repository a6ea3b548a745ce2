"""A journal of released noisy totals, one line each, and the guarantee that they give together.

Every release of a total draws its own noise and spends its epsilon again. The average of four releases has half the
noise, so releases are counted.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ghofl import files
from ghofl.errors import FederationError, MessageError, PrivacyError
from ghofl.privacy import Guarantee, compose
from ghofl.privacy.errors import CompositionError
from ghofl.recipe import Recipe
from ghofl.wire.roster import guarantee_in
from ghofl.wire.total import Total


@dataclass(frozen=True, slots=True)
class Releases:
    """The journal of releases in a file of JSON lines; only its owner reads it."""

    path: Path

    def count(self, total: Total) -> Total:
        """Count a released total, before it is written anywhere: the same total with the guarantee of all releases so far.

        A total whose noise comes from its sites alone is not counted. Beside releases under another recipe it is refused: no file
        could then state what they promise together.
        """
        guarantee = total.guarantee
        if guarantee is None or guarantee.mechanism == "local":
            return total
        self._check_recipe(total.recipe, guarantee)
        facts = {key: value for key, value in guarantee.to_dict().items() if key != "assumptions"}
        line = json.dumps({"sites": [entry.site for entry in total.roster], "guarantee": facts}, ensure_ascii=False)
        kept = self.path.read_bytes() if self.path.exists() else b""
        files.write(self.path, kept + line.encode() + b"\n", files.PRIVATE)
        return replace(total, guarantee=self.compose(guarantee.assumptions))

    def _check_recipe(self, recipe: Recipe, guarantee: Guarantee) -> None:
        try:
            guarantee_in({"guarantee": compose([*self.guarantees(), guarantee]).to_dict()}, recipe)
        except (MessageError, CompositionError):
            raise FederationError(
                f"{self.path} counts releases under another recipe. Give this total a file name of its own, and tell those "
                "who get both what ghofl.privacy.compose says of the two: they are about the same rows."
            ) from None

    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantee of every single release, in order."""
        if not self.path.exists():
            return ()
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            return tuple(Guarantee.from_dict({**json.loads(line)["guarantee"], "assumptions": []}) for line in lines)
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
