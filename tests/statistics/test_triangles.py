import numpy as np
import pytest

from ghofl.statistics.triangles import (
    EXACT_IN_FLOAT64,
    pack_triangle,
    sketch_triangle,
    times,
    triangle_size,
    unpack_triangle,
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-14)])
def test_a_packed_triangle_times_columns_is_the_symmetric_product(rng, dtype, tolerance):
    x = rng.integers(-50, 50, size=(40, 17))
    columns = rng.normal(size=(17, 3)).astype(dtype)
    found = times(pack_triangle(x.T @ x), columns)
    assert found.dtype == dtype
    assert found == pytest.approx((x.T @ x) @ columns.astype(np.float64), rel=tolerance, abs=tolerance * 1e5)


@pytest.mark.parametrize("dim", [1, 2, 7, 127, 128, 129, 300])
def test_unpacking_a_triangle_gives_the_symmetric_matrix_that_was_packed(rng, dim):
    half = rng.integers(-(2**40), 2**40, size=(dim, dim))
    full = half + half.T
    assert np.array_equal(unpack_triangle(pack_triangle(full), dim), full)
    assert unpack_triangle(pack_triangle(full).astype(np.float32), dim).dtype == np.float32


@pytest.mark.parametrize("dim", [2, 5, 127, 128, 129, 300])
@pytest.mark.parametrize("largest", [1, 9])
def test_sketched_second_moments_are_those_of_whole_numbers_to_the_bit(rng, dim, largest):
    sketch = rng.integers(-largest, largest + 1, size=(dim, 3))
    reach = EXACT_IN_FLOAT64 // (2 * triangle_size(dim) * largest**2)  # up to where float64 is exact, and beyond
    classes = [np.zeros(triangle_size(dim), dtype=np.int64)]
    classes += [rng.integers(-some, some + 1, size=triangle_size(dim)) for some in (1, reach, 20 * reach)]
    found = sketch_triangle(np.stack(classes), dim, sketch)
    wide = sketch.astype(object)
    expected = [wide.T @ unpack_triangle(one, dim).astype(object) @ wide for one in classes]
    assert found.dtype == np.int64
    assert np.array_equal(found, np.stack([pack_triangle(one.astype(np.int64)) for one in expected]))


def test_a_sketch_of_leading_features_is_the_leading_block(rng):
    full = rng.integers(-99, 99, size=(2, 9, 9))
    full += full.swapaxes(1, 2)
    found = sketch_triangle(np.stack([pack_triangle(one) for one in full]), 9, np.eye(9, 4, dtype=np.int8))
    assert np.array_equal(found, np.stack([pack_triangle(one[:4, :4]) for one in full]))


@pytest.mark.parametrize("dim", [7, 200])
def test_many_triangles_are_unpacked_like_each_of_them(rng, dim):
    many = rng.integers(-99, 99, size=(2, 3, triangle_size(dim)))
    expected = np.stack([[unpack_triangle(one, dim) for one in some] for some in many])
    assert np.array_equal(unpack_triangle(many, dim), expected)
    assert unpack_triangle(many, dim, np.dtype(np.float32)).dtype == np.float32
