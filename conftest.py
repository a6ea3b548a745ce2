"""For the tests of the package, of its examples in docstrings and of the benchmarks: real data, and an end to what hangs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadlines import in_time

DATA = Path(os.environ.get("GHOFL_DATA") or Path(__file__).parents[1] / "shared" / "data").absolute()
SECONDS = 300  # for each of a test's preparation, the test itself and its end


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Where a file or folder of the real data is, by its name; the test is skipped if it is not there."""

    def path_of(name: str) -> Path:
        path = DATA / name
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            return path
        return pytest.skip(f"no {name} in {DATA}; set GHOFL_DATA to a folder that has it")

    return path_of


def pytest_itemcollected(item: pytest.Item) -> None:
    """What reads real data can be chosen or left out, ``-m real_data``."""
    if "real_data" in getattr(item, "fixturenames", ()):
        item.add_marker("real_data")


def _ends(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("seconds")
    with in_time(marker.args[0] if marker else SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _ends(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _ends(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from _ends(item))
