"""Shared by all tests: hypothesis settings, small federations, and folders."""

import atexit
import functools
import gc
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import typer.testing
from hypothesis import HealthCheck, settings

for profile, examples in (("ghofl", 60), ("quick", 20)):
    settings.register_profile(
        profile, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow], derandomize=True
    )
settings.load_profile("ghofl")

STATE = Path(tempfile.mkdtemp(prefix="ghofl-state-"))
atexit.register(shutil.rmtree, STATE, ignore_errors=True)
# What a power cut leaves no test sees, and sites in tests write tens of thousands of files that would each wait for the
# disk. That they ask for it, and when, are tests of its own.
os.fsync = lambda _: None
# A shell's background jobs ignore Ctrl-C, and so would all that tests start from one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The command line is the same for every test that runs a command; making it takes as long as many commands do.
typer.testing._get_command = functools.cache(typer.testing._get_command)
# Collecting makes more than a million objects that stay until the end. Looking for garbage among them again and again
# takes nearly as long as making them, so that waits until they are there, and then leaves them alone.
gc.disable()
atexit.register(gc.unfreeze)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # when tests that were not asked for are gone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes begin with the files that take longest, so that none is left alone with one at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {path: [] for path in dict.fromkeys(item.path for item in items)}
        for item in items:
            slow[item.path].append(item.get_closest_marker("slow") is not None)
        items.sort(key=lambda item: (not all(slow[item.path]), not any(slow[item.path])))


@pytest.fixture(autouse=True)
def own_state(request: pytest.FixtureRequest) -> None:
    """Every test counts releases for itself: equal totals of two tests are not copies of one."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    os.environ["XDG_STATE_HOME"] = str(STATE / name)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Without the type checker of tests, which would refuse values before the library sees them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of one run of the tests share, for what takes long to make."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
