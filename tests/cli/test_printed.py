"""What is printed reaches a pipe at once: whoever reads it acts on it while the program goes on."""

import os
import sys
from pathlib import Path

import pytest

from deadlines import Process
from ghofl.evaluation.predictions import open_table
from sites import make_sites
from users import shared_folder

PLAIN = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
STAYS = "\nimport time\ntime.sleep(1000)"


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--json", "-")], ids=["sentence", "JSON"])
def test_a_keeper_says_where_it_answers_while_it_does(words):
    with shared_folder() as folder:
        (path,) = make_sites(folder, 1)
        path.write_text(path.read_text() + 'socket = "k.sock"\n')
        with Process(sys.executable, "-m", "ghofl", "keeper", path, *words, env=PLAIN) as keeper:
            keeper.until(lambda: "k.sock" in keeper.out, "the keeper says where it answers")
            keeper.says("The keeper of site-0 answers")


PRINTED = """
from rich.table import Table
from ghofl.cli import console
console.print_anything()
table = Table()
table.add_row("a row")
console.show({"a": "figure"}, None, "-")
console.show({}, table, None)
console.say({}, "a sentence", None)
print("a line of a library")
console.tell("Warning", "a warning")
"""
OF_A_SERVER = """
import logging
import flwr.common.logger
from ghofl.flower.server.asking import Progress
Progress("counted", 3).add("north", "12 rows")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "texts"),
    [
        (PRINTED, ['"a": "figure"', "a row", "a sentence", "a line of a library", "Warning: a warning"]),
        (OF_A_SERVER, [r"1 of 3 sites counted: north \(12 rows\)"]),
    ],
    ids=["commands", "a server on Flower"],
)
def test_what_a_program_prints_is_there_before_it_goes_on(code, texts):
    if "flwr" in code:
        pytest.importorskip("flwr")
    with Process(sys.executable, "-c", code + STAYS, env=PLAIN) as process:
        for text in texts:
            process.says(text)


def test_predictions_reach_a_pipe_a_block_at_a_time(monkeypatch):
    reads, writes = os.pipe()
    with open(reads) as end, open(writes, "w") as begin:
        monkeypatch.setattr(sys, "stdout", begin)
        with open_table(Path("-")) as write:
            for label in ("cat", "dog"):
                write({"row": [0], "label": [label]})
                assert os.read(end.fileno(), 1000).decode().splitlines()[-1] == f"0,{label}"
