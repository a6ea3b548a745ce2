"""Shapes in signatures: ``Float[np.ndarray, "n dim"]`` says what an array holds and how long its axes are.

Where jaxtyping is already imported, as by its plugin for pytest, these names are its own and every call is checked.
Otherwise they only inform readers and type checkers: importing jaxtyping would take longer than most commands.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, get_args

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Float32
    from typing import Annotated as Float64
    from typing import Annotated as Int
    from typing import Annotated as Int16
    from typing import Annotated as Int64
    from typing import Annotated as Integer
    from typing import Annotated as Num
    from typing import Annotated as Shaped
    from typing import Annotated as UInt
    from typing import Annotated as UInt8
    from typing import Annotated as UInt64
elif "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Float32, Float64, Int, Int16, Int64, Integer, Num, Shaped, UInt, UInt8, UInt64
else:
    Bool = Float = Float32 = Float64 = Int = Int16 = Int64 = Integer = Num = Shaped = UInt = UInt8 = UInt64 = Annotated

__all__ = [
    "Bool", "Float", "Float32", "Float64", "Int", "Int16", "Int64", "Integer", "Num", "Shaped", "UInt", "UInt8", "UInt64",
    "axes_of",
]  # fmt: skip


def axes_of(annotation: Any) -> list[str]:
    """The names of an array's axes; those of an optional array are the array's.

    >>> axes_of(Float[Any, "classes dim"])
    ['classes', 'dim']
    """
    if type(None) in get_args(annotation):
        annotation = get_args(annotation)[0]
    return (annotation.dim_str if hasattr(annotation, "dim_str") else get_args(annotation)[1]).split()
