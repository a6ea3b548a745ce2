"""What 3, 4, 5, 7 and 9 sites tolerate, as the pages say it: the table is what `secure.plan` plans for."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from ghofl import secure
from ghofl.secure import simulate_round

PAGE = Path(__file__).parents[2] / "docs" / "how-to-secure-files.md"
SITES = (3, 4, 5, 7, 9)
START, END = "<!-- tolerance: written from secure.plan by tests/secure/test_tolerance.py -->\n", "<!-- /tolerance -->"


def most_tolerant(sites, corrupted):
    """The plan with the most dropouts that so many corrupted sites leave room for; nothing where none is safe."""
    try:
        return secure.plan(sites, 1, dropout=0.99, corruption=corrupted / sites)
    except secure.PlanError:
        return None


def table():
    lines = [
        "| sites | may collude with the server | may vanish | in the sum at least | shares that rebuild a secret |"
    ]
    lines.append("|---|---|---|---|---|")
    for sites, corrupted in itertools.product(SITES, range(9)):
        plan = most_tolerant(sites, corrupted)
        if plan is not None and plan.corrupted == corrupted <= sites - 2:
            lines.append(f"| {sites} | {corrupted} | {plan.dropped} | {plan.min_survivors} | {plan.threshold} |")
    return "\n".join(lines) + "\n"


if not PAGE.exists():
    pytest.skip("the pages are not beside the tests", allow_module_level=True)


def test_the_table_in_the_page_is_what_the_plans_say():
    text = PAGE.read_text(encoding="utf-8")
    assert text.split(START)[1].split(END)[0] == table()


@pytest.mark.parametrize("sites", SITES)
def test_as_many_may_vanish_as_the_table_says_and_one_more_gives_nothing(sites):
    for corrupted in (0, 1):
        agreed = most_tolerant(sites, corrupted)
        assert agreed is not None
        vectors = {f"s{i}": np.array([i, -i, 1]) for i in range(sites)}
        bounded = secure.plan(sites, 9, dropout=0.99, corruption=corrupted / sites)
        gone = {f"s{i}": "mask" for i in range(agreed.dropped)}
        outcome = simulate_round(vectors, bound=9, drops=gone, agreed=bounded)
        assert outcome.total.tolist() == sum(v for n, v in vectors.items() if n not in gone).tolist()
        with pytest.raises(secure.SecureError):
            simulate_round(vectors, bound=9, drops={**gone, f"s{sites - 1}": "mask"}, agreed=bounded)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    PAGE.write_text(before + START + table() + END + rest.split(END)[1], encoding="utf-8")
