"""What cells of small files are, literally: as readers give them, and as the text that a schema sees."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from deadlines import run
from ghofl.encoders.from_schema import columns_of
from ghofl.encoders.from_table import TableEncoder
from ghofl.errors import DatasetError
from ghofl.recipe import Column, Table
from ghofl.recipe.table import MISSING_WORDS
from ghofl.rows.embeddings import open_rows
from ghofl.rows.reader import number_of
from ghofl.rows.tables import read_table, table_blocks

TEXT = {".csv": ",", ".tsv": "\t"}

# Cells as texts, that every kind of table gives back as they are.
KEPT = {
    "leading zeros": ["007", "0", "00.50", "-01"],
    "spaces around": [" a", "b ", " ", "c d"],
    "quotes": ['say "hi"', "'single'", '"', "it''s"],
    "delimiters": ["a,b", "a;b", "a\tb", "a|b"],
    "lines": ["two\nlines", "two\r\nlines", "\n", "x"],
    "words for missing": ["NA", "n/a", "-", "null"],
    "nothing": ["", "a", "", ""],
    "numbers": ["1e3", "3,14", "1,234", "+5"],
    "beyond ASCII": ["é", "日本", "\u00a0", "🙂"],
}


def write(path, columns):
    """Columns of texts as a file of its suffix."""
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix in TEXT:
        quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in [list(columns), *rows]]
        content = "".join(TEXT[path.suffix].join(row) + "\n" for row in quoted)
        path.write_bytes(content.encode())
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        feather.write_feather(pa.table(columns), path)
    return path


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("case", KEPT)
def test_a_text_is_the_same_text_in_every_kind_of_table(case, suffix, size, tmp_path):
    path = write(tmp_path / f"t{suffix}", {"first": KEPT[case], "b": list("wxyz")})
    assert read_table(path) == {"first": KEPT[case], "b": list("wxyz")}
    blocks = list(table_blocks(path, size))
    assert [cell for block in blocks for cell in block["first"]] == KEPT[case]
    assert max(len(block["first"]) for block in blocks) == min(size, 4)
    assert columns_of(path)["first"] == [cell.strip() for cell in KEPT[case]], "a schema sees no spaces around"


# Files of text, and the cells that each line becomes.
FILES = {
    "plain": (".csv", "a,b\n1,x\n", {"a": ["1"], "b": ["x"]}),
    "no end of line": (".csv", "a,b\n1,x", {"a": ["1"], "b": ["x"]}),
    "ends of lines of Windows": (".csv", "a,b\r\n1,x\r\n", {"a": ["1"], "b": ["x"]}),
    "a mark of the order of bytes": (".csv", "\ufeffa,b\n1,x\n", {"a": ["1"], "b": ["x"]}),
    "empty cells": (".csv", 'a,b\n,\n"",x\n', {"a": ["", ""], "b": ["", "x"]}),
    "a quoted delimiter": (".csv", 'a,b\n"1,5",x\n', {"a": ["1,5"], "b": ["x"]}),
    "a quote within a cell": (".csv", 'a,b\n5" pipe,"5"" pipe"\n', {"a": ['5" pipe'], "b": ['5" pipe']}),
    "semicolons": (".csv", "a;b\n1,5;x\n", {"a": ["1,5"], "b": ["x"]}),
    "semicolons, and a comma in a name": (".csv", "a;size, cm;b\n1;2;3\n", {"a": ["1"], "size, cm": ["2"], "b": ["3"]}),
    "commas, and semicolons in cells": (".csv", "a,b\n1;2;3,x;y\n", {"a": ["1;2;3"], "b": ["x;y"]}),
    "commas, and semicolons in a quoted name": (".csv", '"a;b;c",b\n1,2\n', {"a;b;c": ["1"], "b": ["2"]}),
    "one column": (".csv", "a\n1\n", {"a": ["1"]}),
    "tabs": (".tsv", "a\tb;c\n1,5\tx;y\n", {"a": ["1,5"], "b;c": ["x;y"]}),
    "no rows": (".csv", "a,b\n", {"a": [], "b": []}),
    "JSON as it is": (
        ".jsonl",
        '{"a": 7, "b": "007", "c": null, "d": 1.50, "e": true}\n\n{"e": false, "d": 2, "c": "", "b": "n/a", "a": -0.0}\n',
        {"a": [7, -0.0], "b": ["007", "n/a"], "c": [None, ""], "d": [1.5, 2], "e": [True, False]},
    ),
    "JSON without a line": (".jsonl", "\n", {}),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_of_text_has_these_cells(case, tmp_path):
    suffix, content, cells = FILES[case]
    (tmp_path / f"t{suffix}").write_bytes(content.encode())
    assert read_table(tmp_path / f"t{suffix}") == cells


def test_files_of_text_need_no_library(tmp_path):
    """Neither pyarrow nor pandas nor narwhals: a bare install reads CSV, TSV and JSON lines through a schema."""
    for suffix in (".csv", ".tsv", ".jsonl"):
        write(tmp_path / f"t{suffix}", {"n": ["1", "2,5"], "label": ["a", "b"]})
    code = (
        "import sys; sys.modules |= dict.fromkeys(['pyarrow', 'pandas', 'polars', 'narwhals', 'datasets']);"
        "from ghofl.encoders.from_schema import table_rows; from ghofl.recipe import Column, Table;"
        "table = Table((Column('n', 'number', low=0, high=5),), label='label');"
        "print([table_rows(path, table).x.tolist() for path in sys.argv[1:]])"
    )
    files = [str(tmp_path / f"t{suffix}") for suffix in (".csv", ".tsv", ".jsonl")]
    assert json.loads(run(sys.executable, "-c", code, *files).stdout) == [[[float(np.float32(-0.6))], [0.0]]] * 3


def test_values_with_types_reach_the_schema_as_the_text_that_people_write(tmp_path):
    columns = {
        "whole": pa.array([7, None, -3], pa.int64()),
        "real": pa.array([1.0, None, 0.1], pa.float64()),
        "short": pa.array([0.1, float("nan"), 2.0], pa.float32()),
        "yes": pa.array([True, None, False]),
        "text": pa.array(["007", None, " n/a "]),
        "row": pa.array([[1.0], [2.0], [3.0]]),
    }
    texts = {
        "whole": ["7", "", "-3"],
        "real": ["1", "", "0.1"],
        "short": ["0.10000000149011612", "", "2"],
        "yes": ["True", "", "False"],
        "text": ["007", "", "n/a"],
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    feather.write_feather(pa.table(columns), tmp_path / "t.feather")
    for suffix in ("parquet", "feather"):
        assert columns_of(tmp_path / f"t.{suffix}") == texts, "lists are no cells"
    lines = [{name: values[i].as_py() for name, values in columns.items() if name != "row"} for i in range(3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert columns_of(tmp_path / "t.jsonl") == texts


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors"])
def test_arrays_are_read_a_block_at_a_time_as_they_are(suffix, tmp_path):
    from safetensors.numpy import save_file

    x, path = np.arange(10, dtype=np.float32).reshape(5, 2), tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, x)
        np.save(tmp_path / "a.labels.npy", np.arange(5))
    else:
        (np.savez if suffix == ".npz" else lambda path, **arrays: save_file(arrays, path))(path, x=x, y=np.arange(5))
    with open_rows(path, 2, labelled=True) as file:
        assert [(some.tolist(), y.tolist()) for some, y, _ in file.blocks] == [
            ([[0, 1], [2, 3]], [0, 1]), ([[4, 5], [6, 7]], [2, 3]), ([[8, 9]], [4]),
        ]  # fmt: skip


NUMBERS = {
    "7": 7.0, "007": 7.0, "-1.50": -1.5, "+2": 2.0, "1e3": 1000.0, ".5": 0.5, "3,14": 3.14, "-0,5": -0.5, "0,125": 0.125,
    "1234,567": 1234.567, "1,2345": 1.2345, "2,5e-1": 0.25,
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_a_text_is_this_number(text):
    assert number_of(text) == NUMBERS[text]


@pytest.mark.parametrize(
    "text", ["1,234", "12,345", "1,234,567", "1,234.5", "1.234,5", "1_000", "inf", "nan", "", "a", ",5", "1,", "0x10"]
)
def test_a_text_that_may_mean_two_numbers_or_none_is_not_one(text):
    """1,234 is a thousand and more to some and less than two to others."""
    with pytest.raises(ValueError, match=r"."):
        number_of(text)


@pytest.mark.parametrize("word", MISSING_WORDS)
def test_a_word_for_missing_is_missing_in_every_kind_of_column(word, tmp_path):
    table = Table(
        (
            Column("n", "number", low=0, high=10, missing="indicator"),
            Column("c", "category", levels=("a", "b"), missing="indicator"),
            Column("q", "yes/no", missing="indicator"),
        )
    )
    path = write(tmp_path / "t.csv", {"n": [word, "5"], "c": [word, "a"], "q": [word, "yes"]})
    assert TableEncoder(table).embed(columns_of(path)).x.tolist() == [[0, 1, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1, 0]]


def test_a_word_for_missing_that_is_a_level_is_that_level():
    table = Table((Column("c", "category", levels=("-", "a"), missing="indicator"),))
    assert TableEncoder(table).embed({"c": ["-", "n/a"]}).x.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_table_of_columns_with_one_name_is_refused(tmp_path):
    pa_table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["x", "x"])
    parquet.write_table(pa_table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("x,x\na,b\n")
    for suffix in ("parquet", "csv"):
        with pytest.raises(DatasetError, match="names a column twice"):
            read_table(tmp_path / f"t.{suffix}")
