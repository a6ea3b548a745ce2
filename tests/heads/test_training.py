import numpy as np
import pytest

from federations import blobs, gaussians_of, recipe_of
from ghofl import HEADS
from ghofl.heads.training import AdamW, softmax


def test_adamw_takes_the_steps_of_its_formula():
    """Two steps by hand, with weight decay."""
    rule = AdamW(learning_rate=0.1, weight_decay=0.5)
    found = rule.minimise([np.array([2.0])], lambda p, rows: [3.0 * p[0]], 1, 1, 2, np.random.default_rng(0))[0][0]
    w, m, v = 2.0, 0.0, 0.0
    for t in (1, 2):
        g = 3.0 * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w * (1 - 0.1 * 0.5) - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert found == pytest.approx(w, rel=1e-12)


def test_a_falling_rate_ends_at_zero():
    """A gradient of constant sign moves Adam by the rate at each step, so the steps are those of the straight line."""
    seen = []

    def gradients(parameters, rows):
        seen.append(float(parameters[0][0]))
        return [np.array([1.0])]

    rule = AdamW(learning_rate=0.4, falls=True)
    end = rule.minimise([np.zeros(1)], gradients, 1, 1, 4, np.random.default_rng(0))[0][0]
    assert -np.diff([*seen, end]) == pytest.approx([0.4, 0.3, 0.2, 0.1], rel=1e-6)


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_softmax_is_that_of_scipy_also_of_scores_out_of_reach_of_the_exponential(rng, shift):
    import scipy.special

    scores = rng.normal(size=(6, 4)).astype(np.float32)
    moved = (scores + np.float32(shift)).astype(np.float32)
    assert softmax(moved) == pytest.approx(scipy.special.softmax(scores, axis=1), abs=2e-3)
    assert softmax(moved, 3.0).sum(axis=1) == pytest.approx(np.full(6, 3.0), rel=1e-5)


@pytest.mark.parametrize("kind", [HEADS["fisher_mix"], HEADS["proto_hyper"]], ids=lambda head: head.name)
def test_gradients_are_those_of_the_loss(kind, rng, monkeypatch):
    """The closed-form gradients against central differences of the loss they claim to be of."""
    caught = {}

    def stop(self, parameters, gradients, *rest):
        caught["parameters"] = [np.asarray(p, dtype=np.float64) + 0.1 * rng.normal(size=p.shape) for p in parameters]
        caught["gradients"] = gradients
        return list(parameters)

    monkeypatch.setattr(AdamW, "minimise", stop)
    x, y = blobs(rng)
    drawn = []
    import ghofl.heads.fisher_mix as mix
    import ghofl.heads.proto_hyper as hyper

    module = mix if kind.name == "fisher_mix" else hyper
    original = module.draw

    def remembered(*arguments, **options):
        drawn.append(original(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(module, "draw", remembered)
    kind.fit(gaussians_of(recipe_of(), x, y), kind.Options(per_class=10, extra=0))
    gradients, parameters = caught["gradients"], caught["parameters"]
    z, labels = drawn[0].z.astype(np.float64), drawn[0].y
    if kind.name == "fisher_mix":

        def loss(p):
            scores = z @ p[0] + p[1]
            return -np.mean(np.log(softmax(scores))[np.arange(len(labels)), labels])
    else:
        distilled = gradients.__self__

        def loss(p):
            scores = np.asarray(distilled.base, dtype=np.float64) + z @ p[0] @ p[1]
            t, alpha = distilled.temperature, distilled.alpha
            taught = np.asarray(distilled.taught, dtype=np.float64) / (alpha * t)
            distance = np.sum(taught * (np.log(taught + 1e-300) - np.log(softmax(scores / t) + 1e-300)), axis=1)
            entropy = -np.log(softmax(scores))[np.arange(len(labels)), labels]
            return np.mean(alpha * t * t * distance + (1 - alpha) * entropy)

    found = gradients(parameters, slice(0, len(labels)))
    for i, gradient in enumerate(found):
        for index in list(np.ndindex(gradient.shape))[:: max(1, gradient.size // 7)]:
            up, down = [p.copy() for p in parameters], [p.copy() for p in parameters]
            up[i][index] += 1e-4
            down[i][index] -= 1e-4
            assert gradient[index] == pytest.approx((loss(up) - loss(down)) / 2e-4, rel=2e-3, abs=2e-5)
