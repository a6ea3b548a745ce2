"""Rules combine, are written to files and ONNX as they are, and come back only whole."""

import numpy as np
import pytest

from exported_heads import session_of
from ghofl.errors import HeadError
from ghofl.heads.rules import (
    Averaged,
    Cosine,
    Diagonal,
    Factored,
    Linear,
    LowRank,
    Mapped,
    Quadratic,
    Standardised,
    Summed,
    read_rule,
)
from ghofl.heads.rules.quadratic import MANY, SEVERAL, WIDE

CLASSES, DIM = 3, 5


def rules(rng, classes=CLASSES, dim=DIM):
    """One rule of every kind, by its name."""

    def some(*shape):
        return rng.normal(size=shape)

    linear = Linear(some(classes, dim), some(classes))
    quadratic = Quadratic(some(classes, dim), np.triu(some(classes, dim, dim)), some(classes))
    columns = np.eye(dim, dtype=np.int8)[:, [3, 0]]
    inside = Quadratic(some(classes, 2), np.triu(some(classes, 2, 2)), some(classes), np.asarray(7.0))
    return {
        "linear": linear,
        "averaged": Averaged(linear, Linear(some(classes, dim), some(classes)), some(classes) ** 2),
        "factored": Factored(some(dim, 2), some(2, classes)),
        "cosine": Cosine(some(classes, dim), np.zeros(classes)),
        "diagonal": Diagonal(-(some(classes, dim) ** 2), some(classes, dim), some(classes)),
        "quadratic": quadratic,
        "student": Quadratic(quadratic.means, quadratic.whiteners, quadratic.offsets, np.asarray(3.0)),
        "low rank": LowRank(some(classes, dim), some(classes, dim) ** 2, some(classes, dim, 2), some(classes)),
        "of columns": Mapped(columns, inside),
        "in a space": Mapped(some(dim, 2), inside, some(2)),
        "summed": Summed((("", linear), ("", Mapped(columns, inside))), np.array([1.0, 0.65])),
        "standardised": Standardised((("a", linear), ("z", Mapped(columns, inside)))),
        "with spreads": Standardised((("a", linear), ("b", quadratic)), np.array([2.0, 5.0])),
        "nested": Mapped(some(dim, dim), Summed((("one", Summed((("", linear), ("x", quadratic)))), ("two", linear))), some(dim)),
    }  # fmt: skip


KINDS = sorted(rules(np.random.default_rng(0)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_read_from_its_form_and_arrays_and_nothing_more_or_less(kind, rng):
    rule, x = rules(rng)[kind], rng.normal(size=(40, DIM))
    again = read_rule(rule.form, rule.arrays(), CLASSES, DIM)
    assert again == rule
    assert again.scores(x).tobytes() == rule.scores(x).tobytes()
    for name in rule.arrays():
        less = {key: array for key, array in rule.arrays().items() if key != name}
        if name.split(":")[-1] in ("dof", "shares", "spreads"):  # without them it is another rule
            assert read_rule(rule.form, less, CLASSES, DIM) != rule
            continue
        with pytest.raises(HeadError, match="such a head has|looks through"):
            read_rule(rule.form, less, CLASSES, DIM)
    with pytest.raises(HeadError, match=r"it holds .*'more'.*, and such a head has"):
        read_rule(rule.form, {**rule.arrays(), "more": np.zeros(1)}, CLASSES, DIM)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_rule_writes_as_onnx_gives_its_scores(kind, rng):
    pytest.importorskip("onnxruntime")
    graphs = pytest.importorskip("ghofl.export.graph")
    rule, x, graph = rules(rng)[kind], rng.normal(size=(40, DIM)), graphs.Graph()
    graph.name(rule.write(graph, "x"), "scores")
    shapes = [graphs.helper.make_tensor_value_info(n, graphs.TensorProto.DOUBLE, ["n", None]) for n in ("x", "scores")]
    session = session_of(graph.model(shapes[:1], shapes[1:], {}))
    assert session.run(None, {"x": x})[0] == pytest.approx(rule.scores(x), rel=1e-9, abs=1e-9)


def test_a_sum_has_the_weighted_scores_of_its_rules_and_what_was_there_before(rng):
    x, base = rng.normal(size=(40, DIM)), rng.normal(size=(40, CLASSES))
    rule = rules(rng)["summed"]
    (_, linear), (_, of_columns) = rule.parts
    expected = linear.scores(x) + 0.65 * of_columns.rule.scores(x[:, [3, 0]])
    assert rule.scores(x) == pytest.approx(expected)
    assert rule.scores(x, base) == pytest.approx(base + expected)
    nested = Mapped(np.eye(DIM), rule, np.zeros(DIM))
    assert nested.scores(x, base) == pytest.approx(base + expected)


def test_the_highest_sum_is_that_of_float64_although_far_classes_are_rounded(rng):
    """A class that is far below by its covariance may be the highest by what is added to it."""
    classes = SEVERAL + 1
    whiteners = np.triu(rng.normal(size=(classes, WIDE, WIDE))) / 4
    quadratic = Quadratic(rng.normal(size=(classes, WIDE)), whiteners, np.zeros(classes))
    x = rng.normal(size=(2 * MANY, WIDE))
    exact = np.concatenate([quadratic.scores(x[i : i + 32]) for i in range(0, len(x), 32)])  # too few rows to round
    far = Linear(np.zeros((classes, WIDE)), exact.mean(axis=0).max() - exact.mean(axis=0))
    for weight in (1.0, 0.5):
        rule = Summed((("", far), ("", quadratic)), np.array([weight, weight]))
        expected = weight * (far.bias + exact)
        assert np.array_equal(rule.scores(x).argmax(axis=1), expected.argmax(axis=1))
        assert rule.scores(x).max(axis=1) == pytest.approx(expected.max(axis=1), rel=1e-12)


def test_a_rule_is_linear_where_all_of_it_is(rng):
    found = rules(rng)
    assert {kind for kind, rule in found.items() if rule.is_linear} == {"linear", "factored", "cosine"}
    linear = found["linear"]
    assert Standardised((("a", linear), ("b", linear))).is_linear
    assert Mapped(np.eye(DIM), Summed((("a", linear), ("", found["factored"]))), np.zeros(DIM)).is_linear


DEEP: list = ["mapped", "sketch", "linear"]
for _ in range(20):
    DEEP = ["summed", ["", DEEP]]

LINES = Linear(np.ones((CLASSES, DIM)), np.ones(CLASSES))
AVERAGED = Averaged(LINES, LINES, np.ones(CLASSES)).arrays()


@pytest.mark.parametrize(
    ("form", "arrays"),
    [
        (None, {}), (3, {}), ("svm", {}), ([], {}), (["summed"], {}), (["mapped", "sketch"], {}), ({"linear": 1}, {}),
        (["mapped", "__class__", "linear"], {}), (["summed", ["a:b", "linear"]], {}), (["summed", "linear"], {}),
        (["summed", [3, "linear"]], {}), (["summed", *[["", "linear"]] * 2], {}), (["summed", *[["", "linear"]] * 65], {}),
        (["standardised", ["x" * 41, "linear"]], {}), (DEEP, {}), (["mapped", ["sketch"], "linear"], {}),
        (["mapped", "sketch", "linear"], {}), (["mapped", "sketch", "linear"], {"sketch": np.ones((DIM, DIM))}),
        (["mapped", "sketch", "linear"], {"sketch": np.ones(DIM, dtype=np.int8)}),
        (["mapped", "basis", "linear"], {"basis": np.ones((DIM, DIM))}),
        (["mapped", "basis", "linear"], {"basis": np.ones((DIM, DIM)), "shift": np.ones(2)}),
        (["summed", ["", "linear"]], {"shares": np.array([-1.0])}), (["summed", ["", "linear"]], {"shares": np.ones(2)}),
        (["standardised", ["", "linear"]], {"spreads": np.array([np.inf])}),
        (["standardised", ["", "linear"]], {"spreads": np.array([1])}),
        (["standardised", ["", "linear"]], {"shares": np.array([1.0])}), ("quadratic", {}), ("cosine", {}),
        ("averaged", {}), ("averaged", AVERAGED | {"widths": np.array([1.0, 0.0, 1.0])}),
        ("averaged", AVERAGED | {"regression_weights": np.ones((CLASSES, DIM + 1))}),
        ("linear", {"dof": np.asarray(1.0)}), ("linear", {"bias": np.ones(CLASSES, dtype=np.int64)}),
    ],
)  # fmt: skip
def test_a_form_that_is_not_one_and_arrays_that_do_not_fit_are_refused(form, arrays):
    linear = {"weights": np.ones((CLASSES, DIM)), "bias": np.ones(CLASSES)}
    with pytest.raises(HeadError):
        read_rule(form, linear | arrays, CLASSES, DIM)


def test_an_average_is_a_distribution_and_loses_little_where_one_side_is_wrong(rng):
    """The logarithm of each probability is at most log 2 under that of the better part, however sure the other is."""
    sure = Linear(1e3 * rng.normal(size=(CLASSES, DIM)), np.zeros(CLASSES))
    rule = Averaged(sure, Linear(rng.normal(size=(CLASSES, DIM)), np.full(CLASSES, 1 / 3)), np.full(CLASSES, 0.02))
    x = rng.normal(size=(200, DIM))
    scores = rule.scores(x)
    assert np.exp(scores).sum(axis=1) == pytest.approx(np.ones(200))
    flat = Averaged(Linear(np.zeros((CLASSES, DIM)), np.zeros(CLASSES)), rule.regression, rule.widths)
    shares = 2 * np.exp(flat.scores(x)) - 1 / CLASSES
    assert (scores >= np.log(shares / 2) - 1e-9).all()
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_without_tails_has_none_in_any_part_of_it(kind, rng):
    def tails(rule):
        own = [] if getattr(rule, "dof", None) is None else [rule.dof]
        return [*own, *(dof for part in rule.inner for dof in tails(part))]

    rule = rules(rng)[kind]
    assert tails(rule.without_tails()) == []
    assert tails(rule) == [] or kind in ("student", "of columns", "in a space", "summed", "standardised")
