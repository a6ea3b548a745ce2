"""Processes under other OS users: what runs them, and folders that they can reach."""

import functools
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from deadlines import Process, run

KEEPER, NODE, STRANGER, GROUP = 64101, 64102, 64103, 64110
SOURCE = Path(__file__).parents[1] / "src"


@functools.cache
def interpreter():
    """A Python that every user may run, with what this one has installed; nothing where there is none."""
    names = [sys.executable, shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")]
    for name in names:
        if name and os.geteuid() == 0:
            probe = "import numpy, ghofl, cryptography, os; print(os.getuid())"
            done = run_as(NODE, name, "-c", probe, check=False)
            if done is not None and done.stdout.strip() == str(NODE):
                return name
    return None


def environment(**more):
    packages = [str(SOURCE), *(path for path in sys.path if path.endswith("site-packages"))]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(packages), "HOME": "/nonexistent", **threads, **more}


def run_as(user, *command, groups=(), check=True):
    """Run a command as another user and return how it ended; nothing where it cannot even start."""
    try:
        return run(*command, code=0 if check else None, **_as(user, groups))
    except OSError:
        return None


def start_as(user, *command, groups=(), log=None, **more):
    """Start a process as another user."""
    return Process(*command, log=log, **_as(user, groups, **more))


def _as(user, groups, **more):
    return {"user": user, "group": user, "extra_groups": list(groups), "env": environment(**more), "cwd": "/"}


@contextmanager
def shared_folder():
    """A folder that all users may pass through; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="ghofl-", dir="/tmp"))
    try:
        path.chmod(0o711)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def give(path, user, mode=0o600):
    """Make a file or folder one user's own."""
    os.chown(path, user, user)
    path.chmod(mode)


WHY_NOT = "needs root, to run processes as other users, and a Python that they may run"
