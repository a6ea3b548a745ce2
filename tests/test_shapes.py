"""While tests run, a call of ghofl with values of other kinds or shapes than its signature says is an error."""

import dataclasses

import jaxtyping
import numpy as np
import pytest
import shapes
from jaxtyping import Float, Int64

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


def test_a_result_has_the_axes_of_the_arguments():
    @shapes.jaxtyped(typechecker=shapes.checked)
    def first(x: Float[np.ndarray, "n d"], count: int) -> Float[np.ndarray, "n"]:
        return x[:count, 0]

    assert first(np.ones((2, 3)), 2).shape == (2,)
    with type_error:
        first(np.ones((2, 3)), 1)


@pytest.mark.parametrize(
    "annotation",
    [
        Int64[np.ndarray, "n"],
        Int64[np.ndarray, "n"] | None,
        dict[str, list[Int64[np.ndarray, "n"]]],
        'Int64[np.ndarray, "n"]',
        'tuple["Rows", ...]',
    ],
    ids=str,
)
def test_axes_are_found_wherever_they_are_in_a_signature(annotation):
    def function(x: annotation): ...

    function.__globals__["Rows"] = Int64[np.ndarray, "n"]
    assert shapes.names_axes(function)


def test_a_result_and_a_field_are_checked_as_well():
    @shapes.jaxtyped(typechecker=shapes.checked)
    def number(text: str) -> int:
        return text

    @shapes.jaxtyped(typechecker=shapes.checked)
    @dataclasses.dataclass(frozen=True)
    class Pair:
        left: int
        right: float = 0

    with type_error:
        number("7")
    assert Pair(1, 2).right == 2
    with type_error:
        Pair("1")


@pytest.mark.usefixtures("as_users_run_it")
def test_nothing_is_checked_as_users_run_it():
    @shapes.jaxtyped(typechecker=shapes.checked)
    def same(text: str) -> str:
        return text

    assert same(7) == 7
