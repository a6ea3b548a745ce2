"""Bytes that must not change by accident: fingerprints, messages, totals and heads of every kind, as they once were."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import golden_files
from ghofl import HEADS, Classifier, Message, Total
from ghofl.recipe.recipe import SCHEMA as RECIPE_SCHEMA
from ghofl.wire.envelope import SCHEMA, peek

GOLDEN = Path(__file__).parent / "golden"
NOW = GOLDEN / f"schema-{SCHEMA}"
EVERY = sorted(GOLDEN.glob("schema-*"))


def of_schemas(pattern: str) -> list[Path]:
    """The files of a name in every schema that was ever written."""
    return [path for folder in EVERY for path in sorted(folder.glob(pattern))]


def name_of(path: Path) -> str:
    return path.stem.split("-", 1)[1]


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("folder", EVERY, ids=lambda folder: folder.name)
def test_fingerprints_of_recipes_are_what_they_were(folder):
    fingerprints = json.loads((folder / "recipes.json").read_text())
    assert {name: golden_files.RECIPES[name].fingerprint for name in fingerprints} == fingerprints


@pytest.mark.parametrize("name", golden_files.TOTALS)
def test_the_bytes_of_messages_are_what_they_were(name):
    assert golden_files.message(name, 0).to_bytes() == (NOW / f"message-{name}.safetensors").read_bytes()


@pytest.mark.parametrize("name", golden_files.TOTALS)
def test_the_bytes_of_totals_are_what_they_were(name, tmp_path):
    expected = (NOW / f"total-{name}.safetensors").read_bytes()
    total = golden_files.total(name)
    total.save(tmp_path / "total")
    assert total.to_bytes() == expected
    assert (tmp_path / "total").read_bytes() == expected


@pytest.mark.parametrize("path", sorted(NOW.glob("released-*")), ids=label)
def test_a_released_total_that_is_read_is_written_as_it_was(path):
    """Not made anew: the numbers of a guarantee may differ in their last digits between platforms."""
    assert Total.load(path).to_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", of_schemas("message-*"), ids=label)
def test_messages_of_every_schema_are_read(path):
    name = name_of(path)
    read, made = Message.load(path, golden_files.RECIPES[name]), golden_files.message(name, 0)
    assert (read.fingerprint, read.id, read.site) == (made.fingerprint, made.id, made.site)
    assert read.moments == made.moments


@pytest.mark.parametrize("path", of_schemas("total-*"), ids=label)
def test_totals_of_every_schema_are_read(path):
    assert same_total(Total.load(path), golden_files.total(name_of(path)))


@pytest.mark.parametrize("path", of_schemas("released-*"), ids=label)
def test_released_totals_of_every_schema_are_read(path):
    assert same_total(Total.load(path), golden_files.released(name_of(path)))


@pytest.mark.parametrize("path", sorted(NOW.glob("head-*")), ids=label)
def test_a_head_that_is_read_is_written_as_it_was(path):
    assert Classifier.load(path).to_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", of_schemas("head-*"), ids=label)
def test_heads_of_every_schema_say_what_a_head_made_now_says(path):
    """To a tolerance: their numbers come out of a BLAS, and of a few steps of training."""
    read, made = Classifier.load(path), golden_files.head(name_of(path))
    assert (read.recipe, read.sites, read.rows) == (made.recipe, made.sites, made.rows)
    x = np.concatenate([golden_files.rows(site)[0] for site in range(3)])
    is_trained = name_of(path) in ("fisher_mix", "proto_hyper")
    tolerance = {"rel": 1e-3, "abs": 1e-3} if is_trained else {"rel": 1e-6, "abs": 1e-6}
    assert read.scores(x) == pytest.approx(made.scores(x), **tolerance)


def test_the_promise_names_every_schema_and_each_has_its_files():
    """A new schema comes with files of its own, and those of the old ones stay."""
    assert [folder.name for folder in EVERY] == [f"schema-{n}" for n in range(1, SCHEMA + 1)]
    for folder in EVERY:
        assert {path.stem.split("-")[0] for path in folder.glob("*.safetensors")} == {
            "message",
            "total",
            "released",
            "head",
        }
    page = Path(__file__).parents[1] / "docs" / "message-format.md"
    if page.exists():
        known = ", ".join(str(n) for n in range(1, SCHEMA + 1))
        text = page.read_text(encoding="utf-8")
        assert f"| message, total, head | {known} | {SCHEMA} |" in text
        assert f"| recipe | {RECIPE_SCHEMA} | {RECIPE_SCHEMA} |" in text


@pytest.mark.parametrize("path", of_schemas("total-B*") + of_schemas("head-lda*"), ids=label)
def test_an_old_file_that_is_saved_again_is_of_the_newest_schema(path, tmp_path):
    kind = Total if path.stem.startswith("total") else Classifier
    read = kind.load(path)
    read.save(tmp_path / "again")
    again = kind.load(tmp_path / "again")
    assert again == read
    assert peek(tmp_path / "again")["schema"] == SCHEMA


def test_there_is_a_golden_file_of_every_head():
    assert {name_of(path) for path in NOW.glob("head-*")} == set(HEADS)


def same_total(one: Total, other: Total) -> bool:
    """Whether two totals hold the same; numbers of a guarantee may differ in their last digits."""
    promises = one.guarantee is other.guarantee is None or (
        one.guarantee is not None and other.guarantee is not None and one.guarantee.agrees_with(other.guarantee)
    )
    return promises and replace(one, guarantee=None) == replace(other, guarantee=None)
