"""What must not change by accident: fingerprints, messages, totals and heads of every kind, as they once were.

Files of sums are compared by what their streams inflate to: builds of zlib (such as zlib-ng) may squeeze the same planes into
other bytes, and then lengths, offsets and the checksum differ too.
"""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

import golden_files
from ghofl import HEADS, Classifier, Message, Total
from ghofl.recipe.recipe import SCHEMA as RECIPE_SCHEMA
from ghofl.wire.envelope import SCHEMA

GOLDEN = Path(__file__).parent / "golden"


def files_of(pattern: str) -> list[Path]:
    return sorted(GOLDEN.glob(pattern))


def name_of(path: Path) -> str:
    return path.stem.split("-", 1)[1]


def said(data: bytes) -> tuple[dict, list[tuple[int, bytes]]]:
    """The header of a file of sums without its checksum, and the width and the planes of every slab; read as the page says."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ghofl"])
    (entries,), slabs = load(data).values(), []
    left = entries.tobytes()
    while left:
        end = 5 + int.from_bytes(left[1:5], "little")
        slabs.append((left[0], zlib.decompress(left[5:end])))
        left = left[end:]
    return {key: value for key, value in header.items() if key != "sha256"}, slabs


def test_fingerprints_of_recipes_are_what_they_were():
    fingerprints = json.loads((GOLDEN / "recipes.json").read_text())
    assert {name: golden_files.RECIPES[name].fingerprint for name in fingerprints} == fingerprints


@pytest.mark.parametrize("name", golden_files.TOTALS)
def test_messages_say_what_they_said(name):
    path, made = GOLDEN / f"message-{name}.safetensors", golden_files.message(name, 0)
    assert said(made.to_bytes()) == said(path.read_bytes())
    assert Message.load(path, golden_files.RECIPES[name]) == made


@pytest.mark.parametrize("name", golden_files.TOTALS)
def test_totals_say_what_they_said(name, tmp_path):
    path, made = GOLDEN / f"total-{name}.safetensors", golden_files.total(name)
    made.save(tmp_path / "total")
    assert made.to_bytes() == (tmp_path / "total").read_bytes()
    assert said(made.to_bytes()) == said(path.read_bytes())
    assert same_total(Total.load(path), made)


@pytest.mark.parametrize("path", files_of("released-*"), ids=name_of)
def test_released_totals_say_what_they_said(path):
    """Not made anew: the numbers of a guarantee may differ in their last digits between platforms."""
    read = Total.load(path)
    assert said(read.to_bytes()) == said(path.read_bytes())
    assert same_total(read, golden_files.released(name_of(path)))


@pytest.mark.parametrize("path", files_of("head-*"), ids=name_of)
def test_a_head_that_is_read_is_written_as_it_was(path):
    assert Classifier.load(path).to_bytes() == path.read_bytes()


@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # means alone say nothing about probabilities
@pytest.mark.parametrize("path", files_of("head-*"), ids=name_of)
def test_heads_say_what_a_head_made_now_says(path):
    """To a tolerance: their numbers come out of a BLAS, and of a few steps of training."""
    read, made = Classifier.load(path), golden_files.head(name_of(path))
    assert (read.recipe, read.sites, read.rows) == (made.recipe, made.sites, made.rows)
    x = np.concatenate([golden_files.rows(site)[0] for site in range(3)])
    is_trained = name_of(path) in ("fisher_mix", "proto_hyper")
    tolerance = {"rel": 1e-3, "abs": 1e-3} if is_trained else {"rel": 1e-6, "abs": 1e-6}
    assert read.scores(x) == pytest.approx(made.scores(x), **tolerance)


def test_the_page_names_the_schemas():
    page = Path(__file__).parents[1] / "docs" / "message-format.md"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        assert f"messages, totals and heads have schema {SCHEMA}, recipes schema {RECIPE_SCHEMA}" in text


def test_there_is_a_golden_file_of_every_head():
    assert {name_of(path) for path in files_of("head-*")} == set(HEADS)


def same_total(one: Total, other: Total) -> bool:
    """Whether two totals hold the same; numbers of a guarantee may differ in their last digits."""
    promises = one.guarantee is other.guarantee is None or (
        one.guarantee is not None and other.guarantee is not None and one.guarantee.agrees_with(other.guarantee)
    )
    return promises and replace(one, guarantee=None) == replace(other, guarantee=None)
