"""What a site keeps of a round between two questions."""

import os

from ghofl.custody.ledger import USED
from ghofl.custody.storage import Memory
from ghofl.errors import PolicyError
from ghofl.privacy import NoiseStream
from ghofl.recipe import Recipe
from ghofl.secure import Identity, node_keys


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


def sign_once(key_file: str, content: bytes, round_id: str, memory: Memory) -> bytes:
    """A node's signature on some content; no two are the same, so the first is kept, and given again while it is true."""
    place = f"round/{round_id}/signature"
    signature = node_keys.sign(key_file, content, memory.get(place) or b"")
    memory.put(place, signature)
    return signature
