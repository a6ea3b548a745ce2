"""TOML from outside: what would take much time or memory is refused before it is parsed, by every reader."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl import Recipe
from ghofl.custody.policy import Policy, load_peers
from ghofl.custody.site import Site
from ghofl.errors import GhoflError, RecipeError
from ghofl.recipe import Schema, toml

MANY = "a." * 100 + "a"
HOSTILE = {
    "a dotted key": f"{MANY} = 1",
    "a dotted key in quotes": '"a".' * 100 + "a = 1",
    "a dotted key after a text": f'x = """\n""""" # "\n{MANY} = 1',
    "a dotted key after a literal": f"x = '''\n''' # '\n{MANY} = 1",
    "a dotted key after a literal of four quotes": f"x = ['''y'''', '''z''']\n{MANY} = 1",
    "a dotted key after a text of four quotes": f'x = ["""y"""", """z"""]\n{MANY} = 1',
    "an inline table after a literal of four quotes": f"x = ['''y'''', {{{MANY} = 1}}]",
    "a header": f"[{MANY}]",
    "a header of a list": f"x = 1\n  [[ {MANY} ]]",
    "a header that does not end": f"[{MANY}",
    "an inline table": f"x = [1,\n2, {{y = 1.5, {MANY} = 1}}]",
    "deep lists": "x = " + "[" * 100 + "]" * 100,
    "lists that do not end": "x = " + "[" * 100,
    "deep tables": "x = " + "{a=" * 100 + "1" + "}" * 100,
    "many keys": "a=[]\n" * 600_000,
    "many tables": "[a]\n" * 600_000,
}
READERS = {
    "a recipe": Recipe.load,
    "a recipe's text": lambda path: Recipe.from_toml(Path(path).read_text()),
    "a schema": Schema.load,
    "a site": Site.load,
    "a policy": Policy.load,
    "peers": load_peers,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_be_slow_is_refused_before_it_is_parsed(case, monkeypatch):
    monkeypatch.setattr(tomllib, "loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(toml.NotTomlError, match=r"more than 16 parts|nested too deeply|at most 500,000"):
        toml.parse(HOSTILE[case])


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_toml_looks_first(reader, tmp_path, monkeypatch):
    (tmp_path / "x.toml").write_text(HOSTILE["a dotted key"])
    monkeypatch.setattr(tomllib, "loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(GhoflError, match="more than 16 parts"):
        READERS[reader](tmp_path / "x.toml")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text", ["x = 0x" + "f" * 5000, "x = " + "9" * 5000, "x = [", "x = 2026-99-99", 'x = "\\ud800"']
)
def test_every_reader_of_toml_refuses_in_its_own_words(reader, text, tmp_path):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(GhoflError):
        READERS[reader](tmp_path / "x.toml")


def test_one_module_parses_toml():
    found = [path.name for path in Path(toml.__file__).parents[1].rglob("*.py") if "import tomllib" in path.read_text()]
    assert found == ["toml.py"]


def test_a_text_or_file_that_is_too_large_is_not_read_whole(tmp_path):
    with pytest.raises(toml.NotTomlError, match="has 11 characters, and at most 10 are read"):
        toml.parse("x = 1234567", 10)
    (tmp_path / "x.toml").write_text("x = 1234567")
    with pytest.raises(toml.NotTomlError, match="more than the 10 bytes"):
        toml.read(tmp_path / "x.toml", 10)


def test_a_matrix_of_one_row_per_line_and_a_schema_of_many_columns_are_read():
    rows = ",\n".join("[" + ", ".join(["0.25", "-1.5e-3"] * 50) + "]" for _ in range(20))
    text = f"m = [\n{rows}\n]\n" + '[[columns]]\nname = "a.b.c # ="\nlow = 0.5\n' * 1000 + "[x.y]\nz.w = 1\n"
    assert toml.parse(text) == tomllib.loads(text)


@given(st.text(alphabet="a.=[]{}\"'#\n\\, 1", max_size=60))
def test_what_is_let_through_is_what_the_parser_says(text):
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(toml.NotTomlError):
            toml.parse(text)
    else:
        assert toml.parse(text) == expected


@given(st.integers(16, 40), st.lists(st.sampled_from(["a", "'b'", '"c"', "1", '""']), min_size=1), st.data())
def test_a_key_that_the_parser_would_take_is_not_longer_than_allowed(parts, names, data):
    before = data.draw(
        st.sampled_from(["", "x = 1 # '\n", 'x = """a"""""\n', "x = '''a'''''\n", "x = [1.5, 2.5]\n", "[z]\n"])
    )
    key = " . ".join((names * (parts + 1))[: parts + 1])
    for text in (f"{key} = 1", f"[{key}]", f"y = {{{key} = 1.5}}"):
        with pytest.raises(toml.NotTomlError, match="more than 16 parts"):
            toml.parse(before + text)


def test_an_error_about_a_large_value_is_short():
    with pytest.raises(RecipeError) as refused:
        Recipe.from_toml("classes = 3\nencoder = " + str([1.5] * 10_000))
    assert len(str(refused.value)) < 300
