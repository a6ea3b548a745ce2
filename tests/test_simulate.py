import numpy as np
import pytest

from federations import blobs
from ghofl import HeadSpec, Layout
from ghofl.errors import EmbeddingsError, HeadError
from ghofl.simulation import partition
from ghofl.simulation.dataset import table_dataset
from ghofl.simulation.demo import digits
from ghofl.simulation.needs import all_heads, need_of
from ghofl.simulation.simulate import Dataset, recipe_for, simulate


@pytest.fixture(scope="module")
def data():
    return digits()


def run(data, parts, heads="lda", **options):
    specs = HeadSpec.parse_list(heads)
    return simulate(data, parts, recipe_for(data, specs.values(), **options), specs)


def splits(y):
    for clients in (1, 10, 100, 1000):
        yield partition.iid(y, clients, np.random.default_rng(clients))
    for alpha in (0.05, 0.1, 0.5):
        yield partition.dirichlet_by_class(y, 10, alpha, np.random.default_rng(1))
    for classes in (1, 2):
        yield partition.classes_per_client(y, 20, classes, np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["lda,nb", "qda"])
def test_every_split_gives_the_same_total_and_accuracy_to_the_bit(data, heads, as_users_run_it):
    results = [run(data, parts, heads) for parts in splits(data.y_train)]
    assert len({r.total.moments.sha256 for r in results}) == 1
    assert len({tuple(h.accuracy for h in r.heads.values()) for r in results}) == 1


@pytest.mark.slow
def test_all_heads_do_well_on_digits(data):
    specs = all_heads(sketch=True)
    parts = partition.dirichlet_by_class(data.y_train, 10, 0.1, np.random.default_rng(0))
    result = simulate(data, parts, recipe_for(data, specs.values(), sketch=16), specs)
    assert {name for name, head in result.heads.items() if head.accuracy < 0.85} == set()
    assert result.heads["rda"].accuracy > 0.97
    payloads = {name: head.payload_bytes for name, head in result.heads.items()}
    assert payloads["nearest_mean"] < payloads["nb"] < payloads["lda"] < payloads["sketched_qda"] < payloads["qda"]


@pytest.fixture(scope="module")
def uneven():
    """Two classes of different shape, one of them rare: what is drawn to calibrate probabilities differs by statistic."""
    rng = np.random.default_rng(3)
    y = (np.arange(240) % 6 == 0).astype(np.int64)
    x = rng.normal(size=(240, 3)) * np.where(y[:, None] == 1, [3.0, 0.3, 1.0], 1.0) + 1.5 * y[:, None]
    return Dataset(x[:160], y[:160], x[160:], y[160:], ("usual", "rare"))


@pytest.mark.parametrize("head", [name for name in all_heads(sketch=True) if len(HeadSpec.parse(name).needs) == 1])
def test_what_is_beside_a_head_does_not_change_it(uneven, head):
    """Linear heads were calibrated by class covariances where `qda` was beside them, and by the shared one alone."""
    parts = [np.arange(160)]
    alone = run(uneven, parts, head, sketch=2).heads[head]
    for others in ("qda", "nb,sketched_qda", "ridge,nearest_mean"):
        beside = run(uneven, parts, f"{head},{others}" if head not in others.split(",") else others, sketch=2).heads[
            head
        ]
        assert beside.metrics.to_dict() == alone.metrics.to_dict()
        assert beside.payload_bytes == alone.payload_bytes


def test_a_head_that_takes_what_others_need_is_named(uneven):
    parts = [np.arange(160)]
    assert run(uneven, parts, "lda,qda").notes == ()
    assert "fisher_mix (B)" in run(uneven, parts, "fisher_mix,lda").notes[0]
    assert "best (all there is)" in run(uneven, parts, "best,lda").to_dict()["notes"][0]
    assert "share the noise" in run(uneven, parts, "lda,nb", epsilon=4.0, delta=1e-5, radius=3.0).notes[0]


def test_a_projection_and_a_lift_run(data):
    parts = partition.iid(data.y_train, 3, np.random.default_rng(0))
    assert run(data, parts, "lda", project=32).heads["lda"].accuracy > 0.85
    lifted = run(data, parts, "ridge,lda", lift=512)
    assert lifted.heads["ridge"].accuracy > 0.96
    assert set(all_heads(lift=True)).isdisjoint({"qda", "rda", "low_rank_qda", "sketched_qda"})


def test_empty_clients_are_counted_and_do_not_dilute_the_payload(data):
    rows = np.arange(len(data.y_train))
    none = rows[:0]
    one, padded = run(data, [rows], "lda"), run(data, [none, rows, none], "lda")
    assert padded.empty_clients == 2
    assert padded.heads["lda"].payload_bytes == one.heads["lda"].payload_bytes
    assert padded.total.moments == one.total.moments


def test_heads_ask_for_the_fewest_statistics(data):
    def statistics(heads, **options):
        return recipe_for(data, HeadSpec.parse_list(heads).values(), **options).statistics

    assert statistics("nearest_mean") == ("N", "A")
    assert statistics("nb") == ("N", "A", "D")
    assert statistics("nearest_mean,lda") == ("N", "A", "B")
    assert statistics("nb,lda") == ("N", "A", "D", "B")
    assert statistics("nb,qda,ridge") == ("N", "A", "S")
    assert statistics("sketched_qda", sketch=4) == ("N", "A", "B")


def test_the_best_head_alone_asks_for_the_strongest_there_is(data):
    """It once took what other heads asked for, and alone that was nothing beside the class means."""

    def recipe(heads, **options):
        return recipe_for(data, HeadSpec.parse_list(heads).values(), **options)

    alone = recipe("best")
    assert alone == recipe("best", power=0.5), "the rows are never negative"
    assert Layout.of(alone).has("Z")
    assert recipe("best", project=16).statistics == ("N", "A", "S")
    assert recipe("best", sketch=16).statistics == ("N", "A", "B")
    assert recipe("best", lift=100).sketch.kept
    assert not recipe("best", lift=100, sketch=16).sketch.kept
    assert recipe("best,student").statistics == ("N", "A", "S")
    assert recipe("best,lda").statistics == ("N", "A", "B")
    parts = partition.iid(data.y_train, 3, np.random.default_rng(0))
    assert run(data, parts, "best").heads["best"].accuracy > 0.98


def test_a_head_the_recipe_cannot_serve_is_refused_before_clients_run(data):
    recipe = recipe_for(data, HeadSpec.parse_list("nb").values())
    with pytest.raises(HeadError, match="needs B, which this recipe does not ask for"):
        need_of(HeadSpec("lda"), recipe)


def test_no_accuracy_is_told_without_test_rows(rng, tmp_path):
    with pytest.raises(EmbeddingsError, match="there are no test rows"):
        Dataset(rng.normal(size=(4, 2)), np.arange(4) % 2, np.zeros((0, 2)), np.zeros(0, dtype=np.int64), ("a", "b"))
    (tmp_path / "few.csv").write_text("x,label\n1,a\n2,b\n3,a\n4,b\n")
    with pytest.raises(EmbeddingsError, match="there are no test rows"):
        table_dataset(tmp_path / "few.csv", "label")


def test_training_and_test_rows_must_have_one_length(rng):
    x, y = blobs(rng)
    with pytest.raises(EmbeddingsError, match="training rows have 6 numbers and test rows 5"):
        Dataset(x, y, x[:, :5], y, tuple("abcd"))
