import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import integer_rows, split_datasets
from ghofl import Layout, Moments, MomentsBuilder
from ghofl.errors import EmbeddingsError, LayoutError, MissingStatisticError, MomentsOverflowError
from ghofl.moments import INT64_MAX
from ghofl.statistics.triangles import add_products, triangle_size, unpack_triangle


def plain_moments(x, y, layout, sketch):
    """The definition, entry by entry, in Python integers."""
    c, d = layout.classes, layout.dim
    blocks = {"N": np.zeros(c, object), "A": np.zeros((c, d), object), "D": np.zeros((c, d), object)}
    s = np.zeros((c, d, d), object)
    z = np.zeros((c, layout.sketch, layout.sketch), object)
    for row, label in zip(x.astype(object), y, strict=True):
        blocks["N"][label] += 1
        blocks["A"][label] += row
        blocks["D"][label] += row * row
        s[label] += np.outer(row, row)
        if layout.sketch:
            z[label] += np.outer(row @ sketch.astype(object), row @ sketch.astype(object))
    upper = np.triu_indices(d)
    blocks["B"] = s.sum(axis=0)[upper]
    blocks["S"] = s[:, *upper]
    blocks["Z"] = z[:, *np.triu_indices(layout.sketch)]
    return {name: blocks[name].astype(np.int64) for name in layout.shapes}


@given(split_datasets())
def test_moments_are_their_definition(dataset):
    layout, sketch, x, y, _ = dataset
    moments = Moments.of(x, y, layout, sketch)
    for name, expected in plain_moments(x, y, layout, sketch).items():
        assert np.array_equal(moments.blocks[name], expected.reshape(layout.shapes[name])), name


@given(split_datasets())
def test_moments_of_a_union_are_the_sum_of_moments_in_any_order(dataset):
    layout, sketch, x, y, parts = dataset
    pieces = [Moments.of(x[p], y[p], layout, sketch) for p in parts]
    whole = Moments.of(x, y, layout, sketch)
    forward = sum(pieces, start=Moments.zeros(layout))
    backward = sum(reversed(pieces), start=Moments.zeros(layout))
    assert forward == backward == whole
    assert forward.sha256 == backward.sha256 == whole.sha256


@given(split_datasets())
def test_subtracting_a_part_leaves_the_rest(dataset):
    layout, sketch, x, y, parts = dataset
    whole = Moments.of(x, y, layout, sketch)
    first = Moments.of(x[parts[0]], y[parts[0]], layout, sketch)
    rest = np.concatenate(parts[1:])
    assert whole - first == Moments.of(x[rest], y[rest], layout, sketch)
    assert whole - first + first == whole


@given(split_datasets())
def test_a_builder_fed_in_pieces_gives_the_same_moments(dataset):
    layout, sketch, x, y, parts = dataset
    builder = MomentsBuilder(layout, sketch)
    for p in parts:
        builder.add(x[p], y[p])
    assert builder.moments() == Moments.of(x, y, layout, sketch)


@given(split_datasets())
def test_coarser_statistics_follow_from_finer_ones(dataset):
    layout, _, x, y, _ = dataset
    full = Layout(layout.classes, layout.dim, ("S",), bound=layout.bound)
    s = Moments.of(x, y, full)
    for statistics in ((), ("D",), ("B",), ("D", "B")):
        coarse = Layout(layout.classes, layout.dim, statistics, bound=layout.bound)
        assert s.restrict(coarse) == Moments.of(x, y, coarse)


@given(split_datasets(), st.integers(0, 99))
def test_a_sketch_sent_beside_b_is_the_sketch_of_s(dataset, seed):
    layout, _, x, y, _ = dataset
    sketch = np.random.default_rng(seed).choice([-1, 1], size=(layout.dim, 1))
    with_sketch = Layout(layout.classes, layout.dim, ("B",), sketch=1, bound=layout.bound)
    sent = Moments.of(x, y, with_sketch, sketch)
    s = Moments.of(x, y, Layout(layout.classes, layout.dim, ("S",), bound=layout.bound))
    assert sent.of_sketch(sketch) == s.of_sketch(sketch)
    assert s.restrict(with_sketch, sketch) == sent
    z = (x @ sketch).astype(np.int64)
    assert sent.of_sketch(sketch) == Moments.of(
        z, y, Layout(layout.classes, 1, ("S",), bound=layout.bound * layout.dim)
    )


@pytest.mark.parametrize("bound", [1, 39, 127, 4095, 32767])
@pytest.mark.parametrize("rows", [1, 700, 3000])
def test_products_are_exact_in_every_float(bound, rows, rng):
    """Adversarial: all entries at the bound, where sums are largest; and random ones."""
    for x in (np.full((rows, 5), bound), rng.integers(-bound, bound + 1, size=(rows, 5))):
        out = np.zeros(triangle_size(5), dtype=np.int64)
        add_products(x.astype(np.int32), out)
        assert np.array_equal(unpack_triangle(out, 5), x.T.astype(object) @ x.astype(object))


def test_products_of_a_wide_sketch_at_sixteen_bits_are_exact(rng):
    """Entries so large that even one row's products leave 2^53."""
    x = rng.integers(-(2**31) + 1, 2**31, size=(2, 3))
    out = np.zeros(triangle_size(3), dtype=np.int64)
    add_products(x, out)
    assert np.array_equal(unpack_triangle(out, 3), x.T.astype(object) @ x.astype(object))


def test_a_dimension_beyond_one_panel_is_multiplied_out_whole(rng):
    x = rng.integers(-9, 10, size=(50, 300))
    out = np.zeros(triangle_size(300), dtype=np.int64)
    add_products(x, out)
    assert np.array_equal(unpack_triangle(out, 300), x.T @ x)


def test_the_hash_is_the_documented_one():
    """A fixed value: it names a total across platforms and releases."""
    moments = Moments.of(np.array([[1, -2], [3, 4]]), np.array([0, 1]), Layout(2, 2, ("D", "B")))
    assert moments.sha256 == "0d2ab4a6c23ec24b93636d8a07f686de1e49943958b2f41ca415dc3c03cc4913"


def test_adding_other_layouts_is_refused():
    with pytest.raises(LayoutError, match=r"cannot add .*N,A,B.* and .*N,A,S"):
        Moments.zeros(Layout(2, 2, ("B",))) + Moments.zeros(Layout(2, 2, ("S",)))
    with pytest.raises(LayoutError, match="cannot subtract"):
        Moments.zeros(Layout(2, 2)) - Moments.zeros(Layout(2, 3))


def test_a_sum_that_would_overflow_is_refused_before_it_happens():
    half = Moments.zeros(Layout(2, 2))
    half.blocks["B"][1] = INT64_MAX // 2 + 1
    with pytest.raises(MomentsOverflowError, match="an entry of B could reach 9223372036854775808"):
        half + half
    assert half.blocks["B"][1] == INT64_MAX // 2 + 1
    low = Moments.zeros(Layout(2, 2))
    low.blocks["A"][0, 0] = -INT64_MAX
    with pytest.raises(MomentsOverflowError, match="cannot subtract"):
        half - (low + half)


def test_rows_that_could_overflow_are_refused_before_they_are_added():
    layout = Layout(2, 4, ("B",), sketch=2, bound=2**30)
    builder = MomentsBuilder(layout, np.ones((4, 2), dtype=np.int8))
    with pytest.raises(MomentsOverflowError, match="use fewer grid bits"):
        builder.add(np.ones((3, 4), dtype=np.int64), np.zeros(3, dtype=np.int64))
    assert builder.moments() == Moments.zeros(layout)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((1, 3), int), np.zeros(1, int), "have 3 entries, and the layout has dim=2"),
        (np.zeros((1, 2), int), np.array([2]), "label 2 is not a class number"),
        (np.zeros((1, 2), int), np.array([-1]), "label -1 is not a class number"),
        (np.array([[0, 128]]), np.zeros(1, int), "a feature of 128 is beyond the layout's bound of 127"),
        (np.array([[0, -128]]), np.zeros(1, int), "a feature of 128 is beyond"),
    ],
)
def test_rows_that_do_not_fit_the_layout_are_refused(x, y, says):
    builder = MomentsBuilder(Layout(2, 2))
    with pytest.raises(EmbeddingsError, match=says):
        builder.add(x, y)
    assert builder.moments() == Moments.zeros(Layout(2, 2))


def test_a_builder_gives_its_moments_once():
    builder = MomentsBuilder(Layout(2, 2))
    builder.moments()
    with pytest.raises(LayoutError, match="start another"):
        builder.add(np.zeros((1, 2), int), np.zeros(1, int))


def test_a_sketch_layout_needs_its_matrix():
    with pytest.raises(LayoutError, match="2 × 1; got none"):
        MomentsBuilder(Layout(2, 2, ("B",), sketch=1))


@pytest.mark.parametrize("statistic", ["D", "B", "S", "Z"])
def test_a_missing_statistic_names_the_recipe_that_has_it(statistic):
    with pytest.raises(MissingStatisticError, match=r"statistics = \['|\[sketch\] section"):
        Moments.zeros(Layout(2, 2, ())).check_has(statistic)


def test_restricting_to_what_is_not_there_is_refused():
    with pytest.raises(MissingStatisticError):
        Moments.zeros(Layout(2, 2, ("B",))).restrict(Layout(2, 2, ("D",)))
    with pytest.raises(LayoutError, match="do not hold"):
        Moments.zeros(Layout(2, 2, ("S",))).restrict(Layout(3, 2, ("B",)))
    with pytest.raises(LayoutError, match="needs its sketch matrix"):
        Moments.zeros(Layout(2, 2, ("S",))).restrict(Layout(2, 2, ("B",), sketch=1))


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "layout",
    [Layout(3, 3000, ("B",), bound=39), Layout(4, 1400, ("S",), bound=39), Layout(40, 400, ("S",), bound=39)],
    ids=["one large matrix", "few matrices", "many matrices"],
)
def test_a_builder_needs_no_more_than_half_again_the_memory_of_its_statistics(layout, rng):
    statistics = 8 * layout.entries
    first = MomentsBuilder(layout)  # brings what is imported or kept at the first use
    first.add(*integer_rows(rng, layout, 300))
    first.moments()
    del first
    tracemalloc.start()
    builder = MomentsBuilder(layout)
    for _ in range(10):
        x, y = integer_rows(rng, layout, 300)
        x = x.astype(np.int16)
        before = x.nbytes + y.nbytes
        builder.add(x, y)
        del x, y
    builder.moments()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * statistics + 16 * 2**20 + 5 * before


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, bool, object])
def test_rows_that_are_not_integers_are_refused(kind):
    """Float rows used to be cut to integers in silence: LDA on the digits fell from 96 to 47 %."""
    layout, x, y = Layout(2, 2), np.array([[1, 2], [3, 4]]), np.array([0, 1])
    says = rf"feature rows are {np.dtype(kind)}, .* make them with Features.of\(recipe\).rows\(embeddings\)"
    with pytest.raises(EmbeddingsError, match=says):
        Moments.of(x.astype(kind), y, layout)
    builder = MomentsBuilder(layout)
    with pytest.raises(EmbeddingsError, match=says):
        builder.add(x.astype(kind), y)
    assert builder.moments() == Moments.zeros(layout)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("kind", [np.float64, bool, object, str])
def test_labels_that_are_not_integers_are_refused(kind):
    with pytest.raises(EmbeddingsError, match="labels are .* class numbers: integers from 0 to 1"):
        Moments.of(np.array([[1, 2], [3, 4]]), np.array([0, 1]).astype(kind), Layout(2, 2))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64])
def test_integers_of_every_width_have_the_same_moments(kind):
    layout, x, y = Layout(2, 2), np.array([[1, 2], [3, 4]]), np.array([0, 1])
    assert Moments.of(x.astype(kind), y.astype(kind), layout) == Moments.of(x, y, layout)
