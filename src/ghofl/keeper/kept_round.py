"""What a site keeps of a round between two requests."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ghofl.custody.known_sums import Known
from ghofl.custody.ledger import USED
from ghofl.custody.storage import Storage
from ghofl.errors import PolicyError
from ghofl.privacy import NoiseStream
from ghofl.recipe import Recipe
from ghofl.secure import Identity, node_keys


@dataclass(frozen=True, slots=True)
class KeptRound:
    """The files of one round in a site's storage; `round_id` may become the name of a folder."""

    storage: Storage
    round_id: str

    def __post_init__(self) -> None:
        if not (len(self.round_id) == 32 and all(c in "0123456789abcdef" for c in self.round_id)):
            raise PolicyError(f"the round id {self.round_id[:40]!r} is not allowed; ids are 32 hexadecimal digits.")

    def get(self, name: str) -> bytes | None:
        """The bytes under a name, or None."""
        return self.storage.get(f"round/{self.round_id}/{name}")

    def put(self, name: str, content: bytes) -> None:
        """Store bytes under a name."""
        self.storage.put(f"round/{self.round_id}/{name}", content)

    def forget_secrets(self) -> None:
        """Remove the states of the round's stages; what was answered stays."""
        self.storage.forget(f"round/{self.round_id}/state")

    def begin(self, recipe: Recipe, data: str, identity: Identity) -> None:
        """Keep what the site joins with; an older round is over when a new one begins."""
        self.storage.put(USED, "\n".join([*used_rounds(self.storage), self.round_id]).encode())
        self.storage.forget("round")
        self.put("recipe", recipe.to_toml().encode())
        self.put("data", data.encode())
        self.put("identity", identity.secret)

    @property
    def identity(self) -> Identity:
        """The site's key pair of the round."""
        return Identity(self._joined_with("identity"))

    @property
    def recipe(self) -> Recipe:
        """The recipe of the round."""
        return Recipe.from_toml(self._joined_with("recipe").decode())

    @property
    def data(self) -> str:
        """The version of the rows that the site joined with."""
        return (self.get("data") or b"").decode()

    @property
    def others(self) -> dict[str, Known]:
        """What the participants know of earlier sums, as saved when they were named."""
        kept = json.loads(self.get("known") or b"{}")
        return {name: Known.from_text(text) for name, text in kept.items()}

    def save_others(self, others: Mapping[str, Known]) -> None:
        """Save what the participants know of earlier sums, for when the survivor list comes."""
        self.put("known", json.dumps({name: known.to_text() for name, known in others.items()}).encode())

    def noise(self) -> NoiseStream:
        """The stream of this round's noise: its seed is drawn once, and saved before anything with that noise leaves."""
        secret = self.get("state/noise")
        if secret is None:
            secret = os.urandom(32)
            self.put("state/noise", secret)
        return NoiseStream(secret)

    def sign_once(self, key_file: str, content: bytes) -> bytes:
        """A node's signature on some content; no two are the same, so the first is kept, and given again while it is true."""
        signature = node_keys.sign(key_file, content, self.get("signature") or b"")
        self.put("signature", signature)
        return signature

    def _joined_with(self, name: str) -> bytes:
        kept = self.get(name)
        if kept is None:
            raise PolicyError(f"this site has not joined round {self.round_id!r}.")
        return kept


def used_rounds(storage: Storage) -> tuple[str, ...]:
    """The ids of rounds that the site has joined."""
    return tuple((storage.get(USED) or b"").decode().split())
