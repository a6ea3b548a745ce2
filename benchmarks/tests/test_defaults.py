"""The page of defaults says what the code does and what the stored files measured."""

import json
import re

from ghofl_benchmarks import defaults, report


def test_the_page_in_the_documentation_is_the_one_of_the_stored_files():
    assert defaults.PAGE.read_text(encoding="utf-8") == defaults.page(), "run python -m ghofl_benchmarks page"


def test_every_line_names_a_file_that_is_there_or_says_that_nothing_was_measured(tmp_path):
    for name in set(re.findall(r"`(\w+)\.json`", defaults.page())):
        assert (report.RESULTS / f"{name}.json").is_file()
    assert defaults.page(tmp_path).count("not measured") == len(defaults.lines())


def test_a_figure_on_the_page_is_the_stored_one(tmp_path):
    row = {"inside": "cats", "outside": "dogs", "relative_mahalanobis": 0.901, "mahalanobis": 0.802}
    (tmp_path / "novelty.json").write_text(json.dumps([row]))
    assert "cats against dogs 0.901 (plain Mahalanobis 0.802)" in defaults.page(tmp_path)
