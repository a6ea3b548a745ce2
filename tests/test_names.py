"""Names of sites and classes: what can be shown, and what can be a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl import Encoder, Layout, Message, Moments, Recipe
from ghofl.custody.site import Site
from ghofl.errors import MessageError, RecipeError, SiteError
from ghofl.names import is_hex, is_name, is_site_name, shorten
from ghofl.secure import Participant, PlanError

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


@pytest.mark.parametrize("name", ["north", "Zürich", "Ω-1", "病院", "больница", "site 3 (old)", "[bold]x", "a|b", "🏥"])
def test_names_of_all_scripts_are_welcome(name):
    assert is_site_name(name)
    assert Recipe(("cat", name), Encoder(dim=2)).classes[1] == name


def test_a_site_name_is_not_long_and_has_no_blanks_around_it():
    assert is_site_name("a" * 64)
    assert not is_site_name("a" * 65)
    assert not is_site_name(" north")
    assert is_site_name("")
    assert not is_site_name(None)


@pytest.mark.parametrize("name", ["a/b", "../north", "/etc/passwd", "a\\b", "..", ".", "[bold]x[/x]"])
def test_a_site_whose_name_is_a_path_is_refused_by_every_door(name):
    recipe = Recipe(("cat", name), Encoder(dim=2))
    assert recipe.classes[1] == name, "a class may be called as it is"
    assert not is_site_name(name)
    with pytest.raises(SiteError, match="without /"):
        Site(name, embeddings="x.npz")
    with pytest.raises(MessageError, match="without /"):
        Message.of(Moments.zeros(Layout.of(recipe)), recipe, name)
    with pytest.raises(PlanError, match="without /"):
        Participant(name, bytes(32))


@given(st.text(max_size=200), st.integers(0, 100))
def test_what_a_stranger_wrote_is_shown_in_printable_characters(text, length):
    assert shorten(text, length).isprintable()


def test_ids_are_hexadecimal_digits_in_lower_case():
    assert is_hex("0" * 32, 32)
    for wrong in ("0" * 31, "0" * 31 + "\n", "A" * 32, "../" + "0" * 29, 3, None):
        assert not is_hex(wrong, 32)
