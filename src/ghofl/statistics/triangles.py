"""Upper triangles of symmetric integer matrices, and the exact products that fill them."""

from collections.abc import Iterator
from functools import cache, lru_cache

import numpy as np

from ghofl.compute.arrays import evict
from ghofl.compute.threads import parallel_for
from ghofl.shapes import Bool, Float, Int, Int64, Integer, Num

EXACT_IN_FLOAT32 = 2**24
EXACT_IN_FLOAT64 = 2**53
PANEL = 128  # columns that are looked at together
WIDE = 4096  # dimensions from which products of twice as many are quicker
SMALL = 128  # up to so many dimensions one look at all places is quicker than a look at every row
PIECE = 128  # rows that are looked at together
LONGEST = 2048  # rows of a product, where a quarter of the columns is not more
KINDS = (np.float32, np.float64, np.int64)


def triangle_size(dim: int) -> int:
    """The number of entries of the upper triangle of a dim × dim matrix."""
    return dim * (dim + 1) // 2


@lru_cache(maxsize=64)
def diagonal(dim: int) -> Int64[np.ndarray, " dim"]:
    """Where the diagonal lies in a packed upper triangle."""
    i = np.arange(dim, dtype=np.int64)
    places = i * dim - i * (i - 1) // 2
    places.setflags(write=False)
    return places


def unpack_triangle(
    packed: Num[np.ndarray, "*many triangle"], dim: int, dtype: np.dtype | None = None
) -> Num[np.ndarray, "*many dim dim"]:
    """The full symmetric matrix of a packed upper triangle, or of many, in numbers of their own type or another."""
    if dim <= SMALL:
        return packed.astype(dtype or packed.dtype, copy=False).take(_places(dim), axis=-1)
    full = np.empty((*packed.shape[:-1], dim, dim), dtype or packed.dtype)
    for one, entries in zip(full.reshape(-1, dim, dim), packed.reshape(-1, packed.shape[-1]), strict=True):
        _fill_upper(one, entries)
        for left in range(0, dim, PANEL):  # mirrored by blocks, which stay in the cache
            block = one[left : left + PANEL, left : left + PANEL]
            block[...] = np.triu(block) + np.triu(block, 1).T
            one[left + PANEL :, left : left + PANEL] = one[left : left + PANEL, left + PANEL :].T
    return full


def _fill_upper(rows: np.ndarray, packed: np.ndarray) -> None:
    """Write rows of a packed triangle, of which the first is the longest, each from the diagonal on."""
    start = 0
    for top in range(0, len(rows), PANEL):
        some = rows[top : top + PANEL, top:]
        count = some.size - triangle_size(len(some) - 1)
        some[_upper(*some.shape)] = packed[start : start + count]
        start += count


def _upper(rows: int, width: int) -> Bool[np.ndarray, "rows width"]:
    """Which entries of a panel lie in the upper triangle; one look-up with it is quicker than a slice per row.

    >>> _upper(2, 3).astype(int)
    array([[1, 1, 1], [0, 1, 1]])
    """
    return _wide_upper(1 << max(0, width - 1).bit_length())[:rows, :width]


@lru_cache(maxsize=8)
def _wide_upper(width: int) -> Bool[np.ndarray, "rows width"]:
    mask = ~np.tri(2 * PANEL, width, -1, dtype=bool)
    mask.setflags(write=False)
    return mask


@cache
def _places(dim: int) -> Int64[np.ndarray, "dim dim"]:
    """Where every entry of a small symmetric matrix lies in its packed upper triangle."""
    i, j = np.indices((dim, dim))
    return diagonal(dim)[np.minimum(i, j)] + np.abs(i - j)


def times(packed: Integer[np.ndarray, " triangle"], columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
    """The symmetric matrix of a packed upper triangle times columns, in their precision.

    >>> times(np.array([1, 2, 3]), np.array([[1.0], [10.0]]))
    array([[21.], [32.]])
    """
    return unpack_triangle(packed, len(columns), columns.dtype) @ columns


def pack_triangle(full: Num[np.ndarray, "dim dim"]) -> Num[np.ndarray, " triangle"]:
    """The upper triangle of a symmetric matrix, row by row."""
    return full[~np.tri(len(full), k=-1, dtype=bool)]


def add_products(rows: Integer[np.ndarray, "n dim"], packed: Int64[np.ndarray, " triangle"]) -> None:
    """Add Σ x xᵀ over integer rows to a packed upper triangle, exactly.

    Partial sums of x_i x_j never exceed the largest Σ x_j² (Cauchy–Schwarz), so a block of rows whose column sums of
    squares stay under 2^24 is multiplied in float32, under 2^53 in float64, otherwise in int64: exact in each case.
    Panels of columns are multiplied on threads of our own.
    """
    dim, starts = rows.shape[1], diagonal(rows.shape[1]).tolist()
    panel = PANEL if dim < WIDE else 2 * PANEL
    for block, dtype in _exact_blocks(rows):
        x = block.astype(dtype)

        def add(left: int, x: np.ndarray = x) -> None:
            right = min(left + panel, dim)
            product = x[:, left:right].T @ x[:, left:]
            entries = product[_upper(*product.shape)]
            out = packed[starts[left] : starts[left] + len(entries)]
            np.add(out, entries, out=out, casting="unsafe", dtype=np.int64)

        parallel_for(add, range(0, dim, panel))


def _exact_blocks(rows: np.ndarray) -> Iterator[tuple[np.ndarray, type]]:
    """Blocks of rows with the fastest number that multiplies them exactly: as long as it does, up to a few thousand."""
    longest, start, kind, squares = max(LONGEST, rows.shape[1] // 4), 0, 0, np.zeros(rows.shape[1])
    for here in range(0, len(rows), PIECE):
        x = rows[here : here + PIECE].astype(np.float64)
        more = np.einsum("ij,ij->j", x, x)  # exact below 2^53, and never below 2^53 where it would not be
        wanted = max(kind, _kind(more))
        if here - start >= longest or (here > start and (wanted, _kind(squares + more)) != (kind, kind)):
            yield rows[start:here], KINDS[kind]
            start, squares, wanted = here, np.zeros_like(squares), _kind(more)
        kind, squares = wanted, squares + more
    if len(rows):
        yield rows[start:], KINDS[kind]


def _kind(squares: np.ndarray) -> int:
    largest = float(squares.max(initial=0.0))
    # int64 is for a sketch of many dimensions at 16 bits: slow, and as exact as the rest.
    return 0 if largest <= EXACT_IN_FLOAT32 else 1 if largest < EXACT_IN_FLOAT64 else 2


def is_leading(sketch: Int[np.ndarray, "dim sketch"]) -> bool:
    """Whether a sketch matrix picks the leading features, as a kept one does: an identity above zeros."""
    k = sketch.shape[1]
    return int(np.count_nonzero(sketch)) == k <= len(sketch) and bool((sketch[range(k), range(k)] == 1).all())


def apply(x: Num[np.ndarray, "n dim"], sketch: Int[np.ndarray, "dim sketch"]) -> Num[np.ndarray, "n sketch"]:
    """`x @ sketch`, without the product where the sketch picks leading features."""
    return x[:, : sketch.shape[1]] if is_leading(sketch) else x @ sketch


def sketch_triangle(
    by_class: Int64[np.ndarray, "classes triangle"], dim: int, sketch: Int[np.ndarray, "dim sketch"] | None
) -> Int64[np.ndarray, "classes sketched"]:
    """Rᵀ M R for the packed symmetric matrix M of each class, packed again and exact."""
    assert sketch is not None, "whoever derives class moments of a sketch has its matrix"
    if is_leading(sketch):
        starts = diagonal(dim)[: sketch.shape[1]].tolist()
        return by_class[:, np.concatenate([np.arange(at, at + len(starts) - i) for i, at in enumerate(starts)])]
    out = np.zeros((len(by_class), triangle_size(sketch.shape[1])), dtype=np.int64)
    columns, longest = sketch.astype(np.float64), float(np.abs(sketch).max(initial=0)) ** 2

    def work(c: int) -> None:
        entries = by_class[c]
        reach = 2.0 * float(np.abs(entries).sum(dtype=np.float64)) * longest  # over both halves
        if not reach:
            return
        if reach < EXACT_IN_FLOAT64:
            half = columns.T @ _half_times(entries, columns)
            out[c] = pack_triangle((half + half.T).astype(np.int64))
        else:
            r = sketch.astype(np.int64)
            out[c] = pack_triangle(r.T @ unpack_triangle(entries, dim) @ r)
        evict(entries)

    parallel_for(work, range(len(by_class)))
    return out


def _half_times(packed: Int64[np.ndarray, " triangle"], columns: Float[np.ndarray, "dim k"]) -> np.ndarray:
    """U times columns for the upper triangle U with half the diagonal, so that U + Uᵀ is the matrix: half of the work."""
    dim, starts = len(columns), diagonal(len(columns)).tolist()
    out = np.empty_like(columns)
    for left in range(0, dim, PANEL):
        rows = np.zeros((min(PANEL, dim - left), dim - left))
        _fill_upper(rows, packed[starts[left] :])
        rows.reshape(-1)[:: rows.shape[1] + 1] *= 0.5
        out[left : left + PANEL] = rows @ columns[left:]
    return out
