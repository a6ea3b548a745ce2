import numpy as np
import pytest

from ghofl.statistics.triangles import packed, times, unpacked


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-14)])
def test_a_packed_triangle_times_columns_is_the_symmetric_product(rng, dtype, tolerance):
    x = rng.integers(-50, 50, size=(40, 17))
    columns = rng.normal(size=(17, 3)).astype(dtype)
    found = times(packed(x.T @ x), columns)
    assert found.dtype == dtype
    assert found == pytest.approx((x.T @ x) @ columns.astype(np.float64), rel=tolerance, abs=tolerance * 1e5)


@pytest.mark.parametrize("dim", [1, 2, 7, 127, 128, 129, 300])
def test_unpacking_a_triangle_gives_the_symmetric_matrix_that_was_packed(rng, dim):
    half = rng.integers(-(2**40), 2**40, size=(dim, dim))
    full = half + half.T
    assert np.array_equal(unpacked(packed(full), dim), full)
    assert unpacked(packed(full).astype(np.float32), dim).dtype == np.float32
