"""While tests run, a call of ghofl with values of other kinds or shapes than its signature says is an error."""

import jaxtyping
import numpy as np
import pytest
import shapes
from jaxtyping import Float

from ghofl.features.radius import clip_rows
from ghofl.names import shorten
from ghofl.recipe import Encoder

type_error = pytest.raises(jaxtyping.TypeCheckError)


def test_a_value_of_another_kind_is_refused_with_and_without_axes_in_the_signature():
    with type_error:
        clip_rows([[1, 2]], 1)
    with type_error:
        clip_rows(np.ones(3, int), 1)
    with type_error:
        clip_rows(np.ones((2, 3), int), "1")
    with type_error:
        shorten("seven", "7")
    with type_error:
        Encoder("seven")


def test_axes_of_one_name_have_one_length_within_a_call_and_may_differ_between_calls():
    @shapes.jaxtyped(typechecker=shapes.checked)
    def total(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n"]) -> Float[np.ndarray, "d"]:
        return y @ x

    assert total(np.ones((2, 3)), np.ones(2)).shape == (3,)
    assert total(np.ones((4, 1)), np.ones(4)).shape == (1,)
    with type_error:
        total(np.ones((2, 3)), np.ones(3))
