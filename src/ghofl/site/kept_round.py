"""What a site keeps of a round between two questions."""

import os

from ghofl.errors import PolicyError
from ghofl.privacy import NoiseStream
from ghofl.recipe import Recipe
from ghofl.secure import Identity
from ghofl.site.ledger import USED
from ghofl.site.memory import Memory


def noise_of_round(memory: Memory, round_id: str) -> NoiseStream:
    """The stream of this round's noise: its seed is drawn once, and saved before anything with that noise leaves."""
    key = f"round/{round_id}/state/noise"
    secret = memory.get(key)
    if secret is None:
        secret = os.urandom(32)
        memory.put(key, secret)
    return NoiseStream(secret)


def identity_of(memory: Memory, round_id: str) -> Identity:
    """The site's key pair of a round that it joined."""
    kept = memory.get(f"round/{round_id}/identity")
    if kept is None:
        raise PolicyError(f"this site has not joined round {round_id!r}.")
    return Identity(kept)


def recipe_of_round(memory: Memory, round_id: str) -> Recipe:
    """The recipe of a round that the site joined."""
    kept = memory.get(f"round/{round_id}/recipe")
    if kept is None:
        raise PolicyError(f"this site has not joined round {round_id!r}.")
    return Recipe.from_toml(kept.decode())


def data_of_round(memory: Memory, round_id: str) -> str:
    """The version of the rows that the site joined a round with."""
    return (memory.get(f"round/{round_id}/data") or b"").decode()


def used_rounds(memory: Memory) -> tuple[str, ...]:
    """The ids of rounds that the site has joined."""
    return tuple((memory.get(USED) or b"").decode().split())
