"""What sites add to all of their rows: a mixed model from counts and sums, and heads without it."""

from dataclasses import replace

import numpy as np
import pytest

from federations import moments_of, recipe_of
from ghofl import Classifier, HeadSpec, Message, Total
from ghofl.errors import EmbeddingsError, HeadError, MissingStatisticError, PrivacyError, RosterError
from ghofl.gaussians.site_effects import RATIOS, SiteEffects, _Sites
from ghofl.personal.offset import fit_without_site_effects, offset_head
from ghofl.recipe import Privacy
from pages import run

DIM, CLASSES = 4, 3
CENTRES = 2.0 * np.eye(CLASSES, DIM)


def sites(rng, ratio, count=30, most=30, skew=False):
    """Rows and labels of sites that each see everything shifted."""
    out = []
    for _ in range(count):
        shares = rng.dirichlet([0.2] * CLASSES) if skew else np.full(CLASSES, 1 / CLASSES)
        y = rng.choice(CLASSES, size=rng.integers(5, most), p=shares)
        out.append((CENTRES[y] + np.sqrt(ratio) * rng.normal(size=DIM) + rng.normal(size=(len(y), DIM)), y))
    return out


def sums_of(parts):
    counts = np.array([np.bincount(y, minlength=CLASSES) for _, y in parts])
    sums = np.array([np.eye(CLASSES)[y].T @ x for x, y in parts])
    return counts, sums, sum(x.T @ x for x, _ in parts)


def test_means_offsets_and_likelihood_are_those_of_the_dense_mixed_model(rng):
    """By matrices over all rows: generalised least squares, best linear predictions, the restricted likelihood."""
    parts = sites(rng, 0.3, count=6, most=12)
    counts, sums, second = sums_of(parts)
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    who = np.repeat(np.eye(6), [len(y) for _, y in parts], axis=0)
    design, found, dense = np.eye(CLASSES)[y], [], []
    model = _Sites(counts.astype(float), sums, second)
    for ratio in (0.01, 0.3, 5.0):
        inverse = np.linalg.inv(np.eye(len(y)) + ratio * who @ who.T)
        normal = design.T @ inverse @ design
        means = np.linalg.solve(normal, design.T @ inverse @ x)
        assert model.means(ratio) == pytest.approx(means)
        left = x - design @ means
        effects = SiteEffects(ratio, means)
        for k in range(6):
            assert effects.offset(counts[k], sums[k]) == pytest.approx(ratio * (who.T @ inverse @ left)[k])
        assert model.covariance(ratio) == pytest.approx(left.T @ inverse @ left / (len(y) - CLASSES))
        squares = np.einsum("nd,nm,md->d", left, inverse, left)
        logs = -np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(normal)[1]
        dense.append(-0.5 * (np.sum(squares / model.within) + DIM * logs))
        found.append(model.likelihood(ratio))
    assert np.diff(found) == pytest.approx(np.diff(dense))


@pytest.mark.parametrize("ratio", [0.3, 3.0])
def test_the_ratio_is_found_and_means_are_nearer_to_the_truth(ratio, rng):
    counts, sums, second = sums_of(sites(rng, ratio, count=80, skew=True))
    found = SiteEffects.estimate(counts, sums, second)
    assert ratio / 2 < found.ratio < ratio * 2
    pooled = sums.sum(axis=0) / counts.sum(axis=0)[:, None]
    apart = lambda means: np.abs(np.diff(means - CENTRES, axis=0)).mean()  # noqa: E731
    assert apart(found.means) < apart(pooled)


def test_without_site_effects_nothing_changes(rng):
    recipe = recipe_of(dim=DIM, classes=CLASSES, statistics=("B",), scale=100.0, bits=12)
    messages = [
        Message.of(moments_of(recipe, x, y), recipe, str(i)) for i, (x, y) in enumerate(sites(rng, 0.0, most=400))
    ]
    total, x = Total.of(messages, recipe), CENTRES.repeat(20, axis=0)
    found = fit_without_site_effects(total, messages)
    assert found.site_effects.ratio <= RATIOS[RATIOS > 0][16]  # 10⁻³
    assert np.array_equal(found.predict(x), Classifier.fit(total, "lda").predict(x))


def test_sites_of_one_class_each_could_be_anything_so_nothing_changes(rng):
    parts = [(x + 5.0 * y[:1], np.full(len(y), k % CLASSES)) for k, (x, y) in enumerate(sites(rng, 1.0))]
    counts, sums, second = sums_of(parts)
    found = SiteEffects.estimate(counts, sums, second)
    assert found.ratio == 0
    assert found.means == pytest.approx(sums.sum(axis=0) / counts.sum(axis=0)[:, None])
    within = second - np.einsum("cd,ce,c->de", sums.sum(axis=0), sums.sum(axis=0), 1 / counts.sum(axis=0))
    assert found.shared == pytest.approx(within / (counts.sum() - CLASSES))


def test_constant_features_and_classes_without_rows_are_no_trouble(rng):
    counts, sums, second = sums_of(sites(rng, 0.5))
    wide = np.zeros((len(counts), CLASSES + 1, DIM + 1))
    wide[:, :CLASSES, :DIM] = sums
    square = np.zeros((DIM + 1, DIM + 1))
    square[:DIM, :DIM] = second
    found = SiteEffects.estimate(np.pad(counts, ((0, 0), (0, 1))), wide, square)
    assert found.ratio == SiteEffects.estimate(counts, sums, second).ratio
    assert np.isfinite(found.means).all()


@pytest.fixture
def shifted(rng):
    """A recipe, messages of sites that see everything shifted, their total, and rows of one more with its offset."""
    recipe = recipe_of(dim=DIM, classes=CLASSES, statistics=("B",), scale=100.0, bits=12)
    parts = sites(rng, 2.0, count=20, skew=True)
    messages = [Message.of(moments_of(recipe, x, y), recipe, f"site-{i}") for i, (x, y) in enumerate(parts)]
    return recipe, messages, Total.of(messages, recipe), parts


def test_a_head_with_an_own_offset_beats_the_pooled_one_and_survives_its_file(shifted, rng, tmp_path):
    _, messages, total, parts = shifted
    head, pooled = fit_without_site_effects(total, messages), Classifier.fit(total, "lda")
    head.save(tmp_path / "head.safetensors")
    loaded = Classifier.load(tmp_path / "head.safetensors")
    assert loaded == head
    own, before = [], []
    for x, y in parts:
        moved, centre = offset_head(loaded, x, y), np.mean(x - CENTRES[y], axis=0)
        labels = rng.integers(CLASSES, size=200)
        rows = CENTRES[labels] + centre + rng.normal(size=(200, DIM))
        own.append(np.mean(moved.with_priors("uniform").predict_numbers(rows) == labels))
        before.append(np.mean(pooled.with_priors("uniform").predict_numbers(rows) == labels))
        assert moved.personal
        assert moved.guarantee is None
    assert np.mean(own) > np.mean(before) + 0.1


def test_what_does_not_fit_is_refused_in_a_sentence(shifted):
    _, messages, total, ((x, y), *_) = shifted
    with pytest.raises(RosterError, match="the messages of 'site-0' are missing"):
        fit_without_site_effects(total, messages[1:])
    with pytest.raises(RosterError, match="'site-0' is not in this total, or came twice"):
        fit_without_site_effects(total, [messages[0], *messages])
    with pytest.raises(MissingStatisticError):
        fit_without_site_effects(total, messages, HeadSpec("qda"))
    secure = recipe_of(dim=DIM, classes=CLASSES, statistics=("B",), privacy=Privacy(secure=True))
    hidden = Total.of_round(np.full(25, 60), secure, ["a", "b", "c"])
    with pytest.raises(PrivacyError, match="they need plain messages"):
        fit_without_site_effects(hidden, [])
    dropped = replace(total, recipe=replace(total.recipe, privacy=Privacy(min_count=5)))
    with pytest.raises(PrivacyError, match="hides single sites or small classes"):  # its means would show their rows
        fit_without_site_effects(dropped, messages)
    with pytest.raises(HeadError, match="made with site effects"):
        offset_head(Classifier.fit(total, "lda"), x, y)
    with pytest.raises(EmbeddingsError, match="no rows came"):
        offset_head(fit_without_site_effects(total, messages), x[:0], y[:0])
    with pytest.raises(HeadError, match="one site's own already"):  # it would be moved twice
        offset_head(offset_head(fit_without_site_effects(total, messages), x, y), x, y)


def test_the_commands_make_a_mended_head_and_one_with_an_own_offset(shifted, tmp_path, monkeypatch):
    recipe, messages, total, parts = shifted
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sent").mkdir()
    for message in messages:
        message.save(f"sent/{message.site}.ghofl")
    total.save("total.ghofl")
    recipe.save("recipe.toml")
    np.savez("own.npz", x=parts[3][0], y=np.array(recipe.classes)[parts[3][1]])
    assert "Site effects: ratio" in run("ghofl head sent --recipe recipe.toml --site-effects -o mended.safetensors")
    assert "moved by the offset" in run("ghofl personal mended.safetensors own.npz -o own.safetensors")
    assert (tmp_path / "own.safetensors").stat().st_mode & 0o777 == 0o600
    run("ghofl head total.ghofl -o plain.safetensors --head lda")
    run("ghofl personal plain.safetensors own.npz -o b.safetensors", refusal="made with site effects")
    run("ghofl head total.ghofl --site-effects -o b.safetensors", refusal="came without --recipe")
