"""From texts to token numbers, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghofl.encoders.base import doorway
from ghofl.shapes import Float, Int64

# Texts per forward pass: enough to keep cores busy, few enough that a long text pads few others.
TEXTS_AT_ONCE = 32
TOKENS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token numbers of texts, each text cut to `longest` tokens.

    `definition` is the tokenizer's own JSON, so that an exported encoder can include it.
    """

    definition: str = field(repr=False)
    longest: int
    tokenizer: Any = field(repr=False, compare=False)

    @classmethod
    def of(cls, definition: str, longest: int) -> "Tokens":
        """Tokens of the tokenizer in a tokenizer.json."""
        tokenizer = doorway("tokenizers", "a text encoder", "text").Tokenizer.from_str(definition)
        tokenizer.enable_truncation(longest)
        tokenizer.no_padding()
        return cls(definition, longest, tokenizer)

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """The token numbers of each text."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]


def encode_by_length(
    tokens: Tokens, texts: Sequence[str], dim: int, forward: Callable[..., np.ndarray]
) -> Float[np.ndarray, "n dim"]:
    """The embeddings of texts in their order, computed from the longest text to the shortest."""
    numbers = tokens.numbers(texts)
    x = np.empty((len(texts), dim), dtype=np.float32)
    for group in _groups([len(ids) for ids in numbers]):
        x[group] = forward(*pad([numbers[i] for i in group]))
    return x


def _groups(lengths: Sequence[int]) -> Iterator[np.ndarray]:
    order, start = np.argsort([-n for n in lengths], kind="stable"), 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        stop = start + max(TEXTS_AT_ONCE, TOKENS_AT_ONCE // longest)
        yield order[start:stop]
        start = stop


def pad(numbers: Sequence[Sequence[int]]) -> tuple[Int64[np.ndarray, "n t"], Int64[np.ndarray, "n t"]]:
    """Token numbers as a rectangle, and a mask of the positions that hold one; the others are never used."""
    width = max(1, *map(len, numbers)) if numbers else 1
    ids, mask = np.zeros((2, len(numbers), width), dtype=np.int64)
    for row, present, own in zip(ids, mask, numbers, strict=True):
        row[: len(own)] = own
        present[: len(own)] = 1
    return ids, mask
