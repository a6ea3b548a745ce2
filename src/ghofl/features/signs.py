"""The public matrices of signs, and products with them that are exact."""

import hashlib

import numpy as np

from ghofl.errors import EmbeddingsError
from ghofl.shapes import Int, Num
from ghofl.statistics.triangles import EXACT_IN_FLOAT32, EXACT_IN_FLOAT64


def rademacher(seed: int, rows: int, columns: int, purpose: str) -> Int[np.ndarray, "rows columns"]:
    """A public matrix of signs ±1 that is the same on every platform.

    The bits are the output of SHAKE-256 over the ASCII text ``ghofl rademacher 1|{purpose}|{seed}|{rows}|{columns}``,
    read byte by byte, lowest bit first, and laid out row by row; a 0 bit is +1 and a 1 bit is −1.

    >>> rademacher(0, 2, 4, "projection").tolist()
    [[1, 1, 1, 1], [1, 1, 1, -1]]
    """
    text = f"ghofl rademacher 1|{purpose}|{seed}|{rows}|{columns}".encode("ascii")
    count = rows * columns
    stream = hashlib.shake_256(text).digest(-(-count // 8))
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=count, bitorder="little")
    return (1 - 2 * bits.astype(np.int8)).reshape(rows, columns)


def exact_product(q: Int[np.ndarray, "n dim"], matrix: Int[np.ndarray, "dim k"], bound: int) -> Num[np.ndarray, "n k"]:
    """`q @ matrix`, exact, as whole floats: `bound` limits Σ|q_i R_ij| and decides between float32, float64 and an error."""
    if bound <= EXACT_IN_FLOAT32:
        return q.astype(np.float32) @ matrix.astype(np.float32)
    if bound <= EXACT_IN_FLOAT64:
        return q.astype(np.float64) @ matrix.astype(np.float64)
    raise EmbeddingsError(
        f"a projected entry could reach {bound}, and exact products stop at 2^53; use fewer grid bits."
    )
