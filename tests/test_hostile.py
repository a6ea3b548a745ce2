"""Changed files and letters are refused with the library's own error, or are what they were."""

import hostile
import pytest


@pytest.mark.parametrize("kind", hostile.CASES)
def test_nothing_that_was_changed_is_taken_for_something_else(kind):
    outcome = hostile.run(kind, 400)
    assert outcome["refused"] > 200
    assert outcome.total() == 400
