"""The references of the speed part do the same work as ours, and what a run becomes; nothing is timed here."""

import sys

import data
import growth
import numpy as np
import pytest
import ratios
import scipy.special
import speed
import timing
from sklearn.metrics import log_loss
from speed import described, images, made
from timing import Command, against, peak_mb

from ghofl import Features, Gaussians, HeadSpec
from ghofl.gaussians import Fisher
from ghofl.heads import HEADS
from ghofl.heads.proto_hyper import ProtoHyperOptions, fit_proto_hyper

SIZES = {"CLASSES": 4, "DIM": 12}


@pytest.fixture
def small(monkeypatch):
    """Few rows of few classes as exact moments by statistic, as the loop's sums, and rows to score."""
    for name, value in SIZES.items():
        monkeypatch.setattr(made, name, value)
    rng = np.random.default_rng(0)
    x, y = made.rows(rng, 400)
    features = Features.of(made.recipe(("S",)))
    sums = described.client_statistics(features.values(x).astype(np.float32), y, 4)
    gaussians = {s: Gaussians.estimate(made.moments(made.recipe((s,)), x, y), features.unit) for s in "DBS"}
    return gaussians, sums, features.values(x[:50])


def test_the_loop_over_batches_adds_up_our_sums(small):
    gaussians, sums, _ = small
    assert np.array_equal(sums.n, gaussians["S"].counts)
    assert sums.a / sums.n[:, None] == pytest.approx(gaussians["S"].means, abs=1e-5)
    assert described.pooled_covariance(sums) == pytest.approx(gaussians["B"].pooled(), abs=1e-4)
    assert described.class_covariance(sums, 2) == pytest.approx(gaussians["S"].by_class(2), abs=1e-4)
    assert sums.d[1] == pytest.approx(sums.s[1].diagonal(), rel=1e-5)


@pytest.mark.parametrize(
    ("head", "statistic", "loop"),
    [("nb", "D", described.naive_bayes), ("lda", "B", described.lda), ("qda", "S", described.qda)],
)
def test_the_paper_s_closed_forms_as_loops_score_as_ours_do(small, head, statistic, loop):
    gaussians, sums, x = small
    ours = HEADS[head].fit(gaussians[statistic], HeadSpec.parse(head, "paper").record).scores(x)
    theirs = loop(sums)(x)
    # Scores may differ by a term common to all classes.
    assert ours - ours[:, :1] == pytest.approx(theirs - theirs[:, :1], abs=2e-3)


def test_the_fisher_space_of_the_description_is_ours_and_draws_follow_its_covariances(small):
    gaussians, sums, _ = small
    inside, ours = described.fisher(sums, 1.0), Fisher.of_energy(gaussians["S"], 1.0)
    assert inside.basis.shape == ours.basis.shape == (12, 3)
    assert inside.basis @ inside.basis.T == pytest.approx(ours.basis @ ours.basis.T, abs=1e-3)
    z, y = described.synthesise(inside, 20_000, np.random.default_rng(0))
    assert np.array_equal(np.bincount(y), [20_000] * 4)
    assert z[y == 1].mean(axis=0) == pytest.approx(inside.means[1], abs=0.05)
    assert np.cov(z[y == 1].T) == pytest.approx(0.81 * inside.covariances[1], abs=0.1)


@pytest.mark.slow
def test_the_paper_s_trained_heads_as_loops_learn_as_ours_do(monkeypatch):
    torch = pytest.importorskip("torch")
    for name, value in SIZES.items():
        monkeypatch.setattr(made, name, value)
    x, y = made.rows(np.random.default_rng(0), 400)
    x += 3.0 * np.eye(12, dtype=np.float32)[y]
    recipe = made.recipe(("S",))
    gaussians = Gaussians.estimate(made.moments(recipe, x, y), Features.of(recipe).unit)
    sums = described.client_statistics(x, y, 4)

    def loss(scores):
        return log_loss(y, scipy.special.softmax(scores, axis=1))

    def mix(epochs):
        weights, bias = described.train_fisher_mix(sums, epochs, per_class=2000)
        return loss(x @ weights.T + bias)

    def hyper(epochs):
        student, basis = described.train_proto_hyper(sums, epochs, per_class=2000, rank=3)
        return student(torch.from_numpy((x @ basis).astype(np.float32))).detach().numpy()

    assert mix(20) < 0.9 * mix(0)
    settings = {**ProtoHyperOptions.preset("paper"), "rank": 3, "per_class": 2000, "epochs": 5}
    ours = fit_proto_hyper(gaussians, ProtoHyperOptions(**settings)).scores(x.astype(np.float64))
    assert loss(hyper(0)) != loss(hyper(5)) == pytest.approx(loss(ours), rel=0.1)
    assert np.mean(hyper(5).argmax(axis=1) == ours.argmax(axis=1)) > 0.98


def test_flower_averages_the_vectors_that_it_is_given_and_those_from_stored_bytes():
    pytest.importorskip("flwr")
    from speed import flower

    vectors = [np.full(7, i, np.float32) for i in range(4)]
    assert flower.average(flower.replies(vectors)) == pytest.approx(np.full(7, 1.5))
    kept = flower.stored(vectors)
    for _ in range(2):  # what is stored can be read again
        assert flower.average(flower.inflated(kept)) == pytest.approx(np.full(7, 1.5))


def test_photos_are_left_out_with_a_reason_where_there_are_no_weights(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(images, "WEIGHTS", tmp_path / "none.safetensors")
    monkeypatch.setattr(images, "find_spec", lambda name: name)
    assert list(images.measures(np.random.default_rng(0))) == []
    assert "embed: left out, no " in (said := capsys.readouterr().out)
    assert "none.safetensors; set GHOFL_DATA" in said
    monkeypatch.setattr(images, "find_spec", lambda name: None)
    assert images.missing().startswith("no torch and torchvision here")


@pytest.mark.slow
@pytest.mark.parametrize("views", images.VIEWS.values(), ids=images.VIEWS)
def test_the_bare_passes_give_the_rows_of_embed(views, monkeypatch, real_data):
    pytest.importorskip("torchvision")
    for path in (images.WEIGHTS, images.PHOTOS):
        assert path == real_data(str(path.relative_to(data.FOLDER)))
    monkeypatch.setattr(images, "IMAGES", 8)
    assert images.forward(views)() == pytest.approx(images.embedding(views)(), abs=1e-4)


def test_a_turn_of_ours_is_divided_by_the_rows_that_it_has_more(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing, "cpu_seconds", lambda: clock[0])

    def work(seconds):
        clock[0] += seconds

    found = against("a", "rows", lambda: work(3.0), "one row", lambda: work(0.5), repeats=3, rows=10, at_most=0.7)
    assert found.ours == pytest.approx((0.3,) * 3)
    assert found.reference == pytest.approx((0.5,) * 3)
    assert found.keeps_its_promise
    quick = against("b", "quick", lambda: work(0.001), "slow", lambda: work(1.0), repeats=1)
    assert quick.ours == pytest.approx((0.001,))


@pytest.mark.slow
def test_peak_memory_is_what_a_call_allocates_and_what_a_process_has_of_its_own():
    assert peak_mb(lambda: np.ones(10**6)) == pytest.approx(8.0, rel=0.05)
    large = np.ones(4 * 10**7)  # 320 MB of this process, which a process it starts does not have
    assert 3 < peak_mb(Command([sys.executable, "-c", "pass"])) < 100
    assert peak_mb(Command([sys.executable, "-c", "x = bytearray(200 * 10**6)"])) > 200
    del large


def test_a_command_that_fails_is_not_timed():
    command = Command([sys.executable, "-c", "raise SystemExit(3)"])
    for run in (command, command.peak_mb):
        with pytest.raises(timing.subprocess.CalledProcessError):
            run()


def made_up(name, ratio=2.0, **fields):
    return ratios.Measure(name, f"what {name} does", "a bare product", (ratio, ratio), (1.0, 1.0), **fields)


def made_up_run(*measures, **fields):
    rates = {"float32_gflops": 100.0, "float64_gflops": 50.0, "copy_gb_per_s": 9.0, "sha256_gb_per_s": 1.7}
    names = [m.name for m in measures]
    groups = {title: names if i == 0 else [] for i, title in enumerate(speed.GROUPS)}
    return {**rates, "threads": 1, "clock": "CPU", "groups": groups, "measures": ratios.as_stored(measures), **fields}


def test_the_page_of_a_speed_run_has_every_measure_and_names_missed_promises_and_what_was_left_out():
    packed = [ratios.Measure(name, name, "a copy", (0.02,), (0.01,)) for name in ("pack", "pack_copy", "unpack")]
    run = made_up_run(*packed, made_up("score_qda", at_most=1.5), left_out={"embed": "no torch here"})
    table = speed.table(run)
    assert all(f"| {m.what} |" in table for m in packed)
    assert "pack 1.6 GB/s (promised: 0.25), unpack 1.6 GB/s (promised: 0.5)." in table
    assert "Promises missed: what score_qda does." in table
    assert "Left out: embed, no torch here." in table
    assert "### At a site: features and sums" in table


def test_a_run_of_an_older_format_still_has_a_table():
    table = speed.table({"float32_gflops": 1.0, "float64_gflops": 1.0, "measures": ratios.as_stored([made_up("lda")])})
    assert "| what lda does | a bare product |" in table


def curve(exponent, expected=1.0, over="rows", bare=1.0):
    sizes = [100, 200, 400, 800]
    seconds = [1e-3 * (n / 100) ** exponent for n in sizes]
    about = {"stage": "features", "over": over, "reference_is": "a copy", "sizes": sizes, "seconds": seconds}
    reference = {"reference_seconds": [1e-3 * n / 100 for n in sizes], "reference_exponent": bare}
    return {**about, **reference, "exponent": exponent, "expected": expected, "peak_mb": 1.0}


def test_the_exponent_is_the_slope_of_logarithms():
    sizes = [100, 200, 400, 800]
    assert growth.exponent(sizes, [3e-6 * n**2 for n in sizes]) == pytest.approx(2.0)
    assert growth.exponent(sizes, [5.0 for _ in sizes]) == pytest.approx(0.0, abs=1e-9)


def test_curves_cover_rows_classes_dimensions_and_clients_and_each_has_four_doubled_sizes():
    curves = list(growth.curves(np.random.default_rng(0)))
    names = [(c.stage, c.over) for c in curves]
    assert len(set(names)) == len(names) >= 12
    assert {"rows", "classes", "dimension", "clients"} <= {c.over for c in curves}
    assert {c.over for c in curves} == {over for names in growth.PANELS.values() for over in names}
    assert all(np.array_equal(np.divide(c.sizes, c.sizes[0]), [1, 2, 4, 8]) for c in curves)


@pytest.mark.slow
def test_work_of_the_smallest_size_can_be_done_and_so_can_its_reference():
    for c in growth.curves(np.random.default_rng(0)):
        c.work(c.sizes[0])()
        c.reference(c.sizes[0])()


def test_a_curve_steeper_than_its_formula_and_its_reference_is_named():
    table = growth.table({"curves": [curve(1.02), curve(1.5, over="classes")]})
    assert "Steeper than expected, and than the reference, by more than 0.15: features over classes." in table
    assert "| **1.50** | 1 |" in table
    assert "none." in growth.table({"curves": [curve(1.02)]})
    assert not growth.is_steeper(curve(1.5, bare=1.4))  # caches, which slow the bare reference as much


def test_the_largest_size_of_a_curve_is_a_measure_against_its_reference(monkeypatch):
    (first, *_) = growth.curves(np.random.default_rng(0))
    small = first._replace(sizes=(8, 16, 32, 64))
    monkeypatch.setattr(growth, "curves", lambda rng: [small])
    monkeypatch.setattr(growth, "SHORTEST", 0.0)
    run = growth.run()
    (measure,) = ratios.from_stored(run)
    assert measure.name == "growth_features_rows"
    assert measure.reference_is == small.reference_is == run["curves"][0]["reference_is"]
    assert len(measure.ours) == growth.REPEATS
    assert measure.peak_mb[0] > 0


def test_pictures_are_drawn_from_stored_runs(tmp_path):
    pytest.importorskip("matplotlib")
    growth.figure({"curves": [curve(1.02), curve(1.9, 2.0, "dimension")]}, tmp_path / "growth.svg")
    speed.figure(made_up_run(made_up("fit_lda"), made_up("score_qda", at_most=1.5)), tmp_path / "speed.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert "features: 1.02, expected 1" in drawn
    assert "more dimensions" in drawn
    assert "score_qda" in (tmp_path / "speed.svg").read_text()
