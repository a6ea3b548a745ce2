"""The page about secure aggregation says what the code does."""

import re
from pathlib import Path

import pytest

from ghofl.secure import plan

PAGE = Path(__file__).parents[2] / "docs" / "secure-aggregation.md"
ASSUMPTIONS = ((0.1, 0.0), (0.1, 0.05), (0.1, 0.1), (0.2, 0.1), (0.3, 0.1))


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_table_of_neighbours_is_what_plan_gives():
    rows = re.findall(r"^\| ([\d,]+) \| (\d+ / .*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) == 6
    for clients, cells in rows:
        plans = [plan(int(clients.replace(",", "")), 1, dropout, corruption) for dropout, corruption in ASSUMPTIONS]
        assert cells == " | ".join(f"{p.neighbours} / {p.threshold} / {p.window}" for p in plans)


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_table_of_small_cohorts_is_what_plan_gives():
    rows = re.findall(r"^\| (\d+) sites \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert [int(clients) for clients, _ in rows] == list(range(3, 13))
    for clients, cells in rows:
        plans = [plan(int(clients), 1, dropout) for dropout in (0.1, 0.2, 0.3)]
        expected = [plans[0].corrupted, plans[0].threshold, *(f"{p.dropped} ({p.min_survivors})" for p in plans)]
        assert cells == " | ".join(map(str, expected))
