"""A head of somebody's own is a value: given where a head is named, and not needed where its file is used."""

import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

import ghofl
from deadlines import run
from exported_heads import session_of
from federations import blobs, recipe_of, total_of
from ghofl import HEADS, Classifier, Head, HeadSpec
from ghofl.errors import HeadError
from ghofl.evaluation.leave_out import cross_validate
from ghofl.heads import HeadOptions, option
from ghofl.heads.rules import Linear


@dataclass(frozen=True)
class RoundOptions(HeadOptions, head="round"):
    """How wide the classes are."""

    width: float = option(1.0, "the spread of every class, times the usual", above=0.0, paper=2.0)


def fit_round(gaussians, options=RoundOptions()):
    variance = options.width**2 * gaussians.pooled_variances().mean()
    return Linear.of_means(gaussians.means / variance, gaussians.means, gaussians.log_priors)


ROUND = Head(RoundOptions, fit_round, needs=(("D",), ("B",)))
ELSEWHERE = """
import sys
import numpy as np
from ghofl import HEADS, Classifier
found = Classifier.load(sys.argv[1])
assert "round" not in HEADS and found.head == "round" and found.options == {"width": 3.0}
np.save(sys.argv[3], found.predict_proba(np.load(sys.argv[2])))
"""


def test_its_file_is_used_and_exported_by_a_process_that_does_not_have_the_head(rng, tmp_path):
    x, y = blobs(rng)
    made = ghofl.fit(total_of(recipe_of(statistics=("D",)), x, y), ROUND(width=3.0))
    made.save(tmp_path / "head.safetensors")
    np.save(tmp_path / "x.npy", x)
    words = [ELSEWHERE, *(str(tmp_path / name) for name in ("head.safetensors", "x.npy", "there.npy"))]
    run(sys.executable, "-c", *words)
    assert np.array_equal(np.load(tmp_path / "there.npy"), made.predict_proba(x))
    assert Classifier.load(tmp_path / "head.safetensors") == made
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    words = ["-m", "ghofl", "export", str(tmp_path / "head.safetensors"), "-o", str(tmp_path / "head.onnx")]
    run(sys.executable, *words)
    floats = x.astype(np.float32)
    label, *_ = session_of(onnx.load(tmp_path / "head.onnx")).run(None, {"embeddings": floats})
    assert np.array_equal(label, made.predict(floats))


def test_options_are_given_by_calling_it_and_checked(rng):
    total = total_of(recipe_of(statistics=("D",)), *blobs(rng))
    plain, wide = ghofl.fit(total, ROUND), ghofl.fit(total, ROUND(width=3.0))
    assert (plain.options, wide.options) == ({}, {"width": 3.0})
    assert wide.rule.weights == pytest.approx(plain.rule.weights / 9.0)
    assert str(HeadSpec.of(ROUND(width=3.0))) == "round(width=3.0)"
    assert HeadSpec.of(ROUND, "paper").options == {"width": 2.0}
    assert HeadSpec.of(ROUND(width=3.0), "paper").options == {"width": 3.0}
    with pytest.raises(HeadError, match="width is 0; option width of head 'round' is a finite number above 0"):
        ROUND(width=0)
    with pytest.raises(HeadError, match="has no option 'hight'; it has width"):
        ROUND(hight=1)


def test_it_is_given_to_simulations_and_leave_out_beside_names(rng):
    x, y = blobs(rng)
    heads = ["nb, lda", ROUND, ROUND(width=2.0), HEADS["lda"](shrinkage=0.5), HeadSpec("ridge")]
    names = ["nb", "lda", "round", "round(width=2.0)", "lda(shrinkage=0.5)", "ridge"]
    result = ghofl.simulate((x, y), 3, heads=[*heads, "fedavg(rounds=2)"])
    assert list(result.heads) == [*names, "fedavg(rounds=2)"]
    assert set(ghofl.simulate((x, y), 3, heads=ROUND).total.recipe.statistics) == {"N", "A", "D"}
    total = total_of(recipe_of(), x, y, 2)
    found = cross_validate(total, x[:150], y[:150], heads, 3)
    assert list(found) == names
    assert found["round"].metrics.confusion.accuracy > 0.5


def test_it_is_given_to_the_estimator_of_scikit_learn(rng):
    base = pytest.importorskip("sklearn.base")
    from ghofl.sklearn import GaussianHeadClassifier

    x, y = blobs(rng)
    model = base.clone(GaussianHeadClassifier(ROUND(width=2.0))).fit(x, y)
    assert model.classifier_.head == "round"
    assert model.moments_.layout.statistics == ("N", "A", "D")
    assert base.clone(GaussianHeadClassifier(HEADS["lda"], shrinkage=0.3)).fit(x, y).classifier_.options == {
        "shrinkage": 0.3
    }


@pytest.mark.parametrize("name", ["lda", "best", "fedavg", "Round", "round-2", "r" * 41, ""])
def test_its_name_is_one_that_a_file_can_hold_and_not_one_of_ghofl_s(name, rng):
    class Options(HeadOptions, head=name): ...

    with pytest.raises(HeadError, match="cannot be the name of a head of your own"):
        ghofl.fit(total_of(recipe_of(), *blobs(rng)), Head(Options, fit_round, needs=((),)))


class Mine(Linear):
    kind = "mine"


@pytest.mark.parametrize(
    ("fit", "why"),
    [
        (lambda gaussians, options: gaussians.means, "gives a ndarray"),
        (
            lambda gaussians, options: Mine(gaussians.means, gaussians.log_priors),
            "its rule is mine, which is not known",
        ),
        (lambda gaussians, options: Linear(gaussians.means[:2], gaussians.log_priors[:2]), "its weights have shape"),
    ],
)
def test_what_is_not_a_rule_of_a_known_form_is_refused_when_it_is_fitted(fit, why, rng):
    """Its file would be refused only where it is used."""
    with pytest.raises(HeadError, match=f"head 'round' .*{why}"):
        ghofl.fit(total_of(recipe_of(), *blobs(rng)), replace(ROUND, fit=fit))
