"""Names of sites and classes: what can be shown, and what looks alike."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl import Encoder, Recipe
from ghofl.errors import RecipeError
from ghofl.names import is_hex, is_name, is_site_name, look_alike, shown, skeleton

HOSTILE = {
    "escape": "a\x1b[31m",
    "new line": "north\nsouth",
    "tab": "a\tb",
    "bell": "a\x07",
    "delete": "a\x7f",
    "right to left": "north\u202etxt",
    "isolate": "a\u2066b",
    "zero-width space": "a\u200bb",
    "zero-width joiner": "a\u200db",
    "byte-order mark": "\ufeffnorth",
    "soft hyphen": "nor\u00adth",
    "grapheme joiner": "a\u034fb",
    "variation selector": "a\ufe0f",
    "hangul filler": "a\u3164",
    "braille blank": "a\u2800",
    "surrogate": "\ud800",
    "line separator": "a\u2028b",
    "no-break space": "a\u00a0b",
    "private use": "\ue000",
    "not in normal form": "Zu\u0308rich",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_that_do_not_show_what_they_are_are_refused(name):
    assert not is_name(name)
    assert not is_site_name(name)
    with pytest.raises(RecipeError, match="names are printable") as caught:
        Recipe(("cat", name), Encoder(dim=2))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["north", "Zürich", "Ω-1", "病院", "больница", "site 3 (old)", "[bold]x[/x]", "a|b", "🏥"]
)
def test_names_of_all_scripts_are_welcome(name):
    assert is_site_name(name)
    assert Recipe(("cat", name), Encoder(dim=2)).classes[1] == name


def test_a_site_name_is_not_long_and_has_no_blanks_around_it():
    assert is_site_name("a" * 64)
    assert not is_site_name("a" * 65)
    assert not is_site_name(" north")
    assert is_site_name("")
    assert not is_site_name(None)


@pytest.mark.parametrize(
    ("one", "other"),
    [("north", "n\u043erth"), ("site-1", "site-l"), ("site-O", "site-0"), ("modern", "rnodern"), ("paypal", "𝔭𝒶𝕪𝕡𝕒𝕝")],
)
def test_names_that_look_alike_have_one_skeleton(one, other):
    assert skeleton(one) == skeleton(other)
    assert look_alike(["x", one, "y", other]) == (one, other)


def test_numbered_names_do_not_look_alike():
    assert look_alike(f"client-{i:05d}" for i in range(5000)) is None
    assert look_alike(["north", "north"]) is None, "the same name twice is for the roster to refuse"


def test_class_names_may_look_alike():
    assert Recipe(("0", "O", "l", "1"), Encoder(dim=2)).classes == ("0", "O", "l", "1")


@pytest.mark.slow
@given(st.text(max_size=20))
def test_a_skeleton_is_its_own_skeleton(text):
    once = skeleton(text)
    assert skeleton(once) == once == unicodedata.normalize("NFD", once)


@given(st.text(max_size=200), st.integers(0, 100))
def test_what_a_stranger_wrote_is_shown_in_printable_characters(text, length):
    assert shown(text, length).isprintable()


def test_ids_are_hexadecimal_digits_in_lower_case():
    assert is_hex("0" * 32, 32)
    for wrong in ("0" * 31, "0" * 31 + "\n", "A" * 32, "../" + "0" * 29, 3, None):
        assert not is_hex(wrong, 32)


@pytest.mark.slow
def test_two_classes_of_one_name_are_found_in_linear_time():
    many = [str(i) for i in range(100_000)]
    with pytest.raises(RecipeError, match="more than once"):
        Recipe((*many[:-1], "0"), Encoder(dim=2))
