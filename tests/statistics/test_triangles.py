import numpy as np
import pytest

from ghofl.statistics.triangles import packed, times


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-14)])
def test_a_packed_triangle_times_columns_is_the_symmetric_product(rng, dtype, tolerance):
    x = rng.integers(-50, 50, size=(40, 17))
    columns = rng.normal(size=(17, 3)).astype(dtype)
    found = times(packed(x.T @ x), columns)
    assert found.dtype == dtype
    assert found == pytest.approx((x.T @ x) @ columns.astype(np.float64), rel=tolerance, abs=tolerance * 1e5)
