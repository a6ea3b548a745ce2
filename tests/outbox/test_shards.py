"""Shards of a site's rows, added up apart, make the message of one process."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ghofl
from deadlines import run
from ghofl import Encoder, Features, Grid, Lift, Message, Recipe
from ghofl.errors import ClippingWarning, EmbeddingsError, PrivacyError
from ghofl.features import Clipping
from ghofl.outbox import Counted, Embedded, count
from ghofl.privacy import NoiseStream
from ghofl.recipe import Privacy

RECIPE = Recipe(tuple("abc"), Encoder(dim=4), ("S",), grid=Grid(bits=6, scale=20.0))
NUMBERED = replace(RECIPE, classes=("0", "1", "2"))
LOCAL = Privacy(radius=2.0, epsilon=1.0, delta=1e-5, noise="local")
PERSONS = Recipe(tuple("abc"), Encoder(dim=4), privacy=Privacy(unit="person", person_rows=2))
pytestmark = pytest.mark.filterwarnings("ignore::ghofl.errors.ClippingWarning")  # grids that clip are the point here
PAGE = Path(__file__).parents[2] / "docs" / "how-to-big-sites.md"


def rows_of(rng, rows=60, dim=4, **more):
    return Embedded(rng.normal(size=(rows, dim)), rng.integers(3, size=rows), **more)


def shards_of(rows, shards, recipe=RECIPE):
    parts = np.array_split(np.arange(len(rows.y)), shards)
    return [count(Features.of(recipe), Embedded(rows.x[some], rows.y[some])) for some in parts]


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(0, 40), st.integers(1, 6), st.booleans(), st.booleans())
def test_the_message_of_shards_is_that_of_one_process(seed, rows, shards, is_lifted, has_noise):
    privacy = LOCAL if has_noise else Privacy()
    recipe = Recipe(tuple("abc"), Encoder(dim=4), ("B",), lift=Lift(dim=6) if is_lifted else None, privacy=privacy)
    all_rows = rows_of(np.random.default_rng(seed), rows)
    whole, found = count(Features.of(recipe), all_rows), sum(reversed(shards_of(all_rows, shards, recipe)))
    assert found.moments.sha256 == whole.moments.sha256
    assert found.clipping == whole.clipping
    given_rows = {"x": all_rows.x, "y": all_rows.y, "labels_are_numbers": True}
    one, other = (
        ghofl.message(recipe, "north", stream=NoiseStream(b"once"), **more) for more in (given_rows, {"moments": found})
    )
    assert (one.moments, one.rows, one.clipped) == (other.moments, other.rows, other.clipped)


def test_rows_of_shards_that_are_left_out_are_counted_together(rng):
    rows = rows_of(rng)
    rows.x[[3, 50]] = np.nan
    recipe = Recipe(tuple("abc"), Encoder(dim=4), privacy=LOCAL)
    found = sum(shards_of(rows, 3, recipe))
    assert found.not_counted == 2
    with pytest.warns(ClippingWarning, match="2 rows do not fit"):
        ghofl.message(recipe, "north", moments=found)


def test_noise_is_drawn_once_per_message_and_not_for_shards(rng):
    recipe = Recipe(tuple("abc"), Encoder(dim=4), privacy=LOCAL)
    found = sum(shards_of(rows_of(rng), 3, recipe))
    one, other = (ghofl.message(recipe, "north", moments=found) for _ in range(2))
    assert found.moments.rows == 60
    assert one.moments != found.moments
    assert one.moments != other.moments


def test_shards_are_refused_where_the_rows_per_person_are_limited(rng):
    with pytest.raises(PrivacyError, match="at most 2 rows of one person"):
        shards_of(rows_of(rng), 2, PERSONS)
    for recipe in (PERSONS, RECIPE):  # the recipe's limit, or a site's own
        limited = count(Features.of(recipe), rows_of(rng, rows_per_person=2))
        for other in (limited, Counted(limited.moments, Clipping())):
            for terms in ((limited, other), (other, limited)):
                with pytest.raises(PrivacyError, match="does not see the person's rows in the others"):
                    sum(terms)
        assert ghofl.message(recipe, "north", moments=limited).rows == 60
    with pytest.raises(PrivacyError, match="at most 2 rows of one person"):
        ghofl.message(PERSONS, "north", moments=Counted(limited.moments, Clipping()))


def test_rows_and_moments_are_not_given_together(rng, as_users_run_it):
    rows = rows_of(rng)
    found = count(Features.of(RECIPE), rows)
    for more in ({"x": rows.x, "moments": found}, {"moments": found, "person": rows.y}, {"y": rows.y}):
        with pytest.raises(EmbeddingsError, match="and not both"):
            ghofl.message(RECIPE, "north", **more)
    with pytest.raises(EmbeddingsError, match="moments are Moments"):
        ghofl.message(RECIPE, "north", moments=found.moments)
    with pytest.raises(EmbeddingsError, match="moments are NoneType"):
        ghofl.message(RECIPE, "north")


def examples() -> list[str]:
    if not PAGE.exists():
        pytest.skip("the pages are not beside the tests")
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def whole(tmp_path, monkeypatch, rng):
    """What one process makes of the rows in three files, of which some are clipped."""
    monkeypatch.chdir(tmp_path)
    NUMBERED.save("recipe.toml")
    rows = rows_of(rng, 3000)
    for number, some in enumerate(np.array_split(np.arange(3000), 3), start=1):
        np.savez(f"rows-{number}.npz", x=rows.x[some], y=rows.y[some])
    return ghofl.message(NUMBERED, "north", rows.x, rows.y)


def check_same(whole: Message) -> None:
    found = Message.load("north.ghofl", NUMBERED)
    assert found.moments.sha256 == whole.moments.sha256
    assert (found.rows, found.clipped) == (whole.rows, whole.clipped)
    assert found.clipped > 0.01


@pytest.mark.slow
@pytest.mark.skipif(" " in sys.prefix, reason=f"Ray starts no workers from {sys.prefix}, whose path has a space")
@pytest.mark.filterwarnings("ignore")
def test_the_example_on_ray_gives_the_message_of_one_process(whole, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    example, _ = examples()
    assert len(example.splitlines()) <= 20
    src = str(Path(ghofl.__file__).parents[1])
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": src}, "working_dir": None})
    try:
        exec(compile(example.replace('"rows-', f'"{tmp_path}/rows-'), PAGE.name, "exec"), {"__name__": "example"})
    finally:
        ray.shutdown()
    check_same(whole)


def test_the_example_of_batches_gives_the_message_of_one_process(whole):
    exec(compile(examples()[1], PAGE.name, "exec"), {"__name__": "example"})
    check_same(whole)


BATCHES = """
import resource
import numpy as np
import ghofl
from ghofl import Encoder, Features, Layout, MomentsBuilder, Recipe
from ghofl.features import Clipping
from ghofl.outbox import Counted

recipe = Recipe(tuple("abc"), Encoder(dim=128))
features, layout = Features.of(recipe), Layout.of(recipe)
x, y = np.random.default_rng(0).normal(size=(4096, 128)), np.arange(4096) % 3

def message(batches):
    builder, clipping = MomentsBuilder(layout), Clipping()
    for _ in range(batches):
        q, clipped = features.rows(x)
        builder.add(q, y)
        clipping += clipped
    return ghofl.message(recipe, "north", moments=Counted(builder.moments(), clipping))

one = message(1)  # what is loaded when it is first used is there now
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 96 * 2**20,) * 2)
try:
    np.tile(x, (100, 1))
except MemoryError:
    print("too many rows for memory")
many = message(100)
assert all(np.array_equal(many.moments.blocks[n], 100 * b) for n, b in one.moments.blocks.items())
assert (many.rows, many.clipped) == (409_600, one.clipped)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process uses")
def test_batches_of_more_rows_than_memory_takes_make_a_message():
    """420 MB of rows where 96 MB are left."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert "too many rows for memory" in run(sys.executable, "-c", BATCHES, env=env).stdout
