"""Nothing that a test waits for keeps the others from running."""

import ast
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

import deadlines
from deadlines import Process, beside, join, run, until

ROOT = Path(__file__).parents[1]
HANGS = """
import subprocess, sys, threading, time
import pytest

def test_that_waits_for_a_process_even_while_it_leaves_it():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        threading.Thread(target=time.sleep, args=(30,), name="another thread", daemon=True).start()
        process.wait()

@pytest.fixture
def late():
    yield
    time.sleep(1000)

def test_whose_end_hangs(late):
    pass

def test_after_them():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(), ("-n", "2", "--dist", "loadfile")], ids=["alone", "beside others"])
def test_a_test_that_hangs_is_ended_with_a_trace_and_the_run_goes_on(tmp_path, processes):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text().replace("SECONDS = 300", "SECONDS = 1"))
    shutil.copy(deadlines.__file__, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnknownMarkWarning", *processes)
    done = run(sys.executable, *words, cwd=tmp_path, code=1)
    assert "1 failed, 2 passed, 1 error" in done.stdout
    assert "another thread:" in done.stdout
    assert "process.wait()" in done.stdout
    assert "time.sleep(1000)" in done.stdout


@pytest.mark.slow
def test_a_run_ends_when_a_test_has_ended_its_process(tmp_path):
    """With another process in its place, pytest-xdist waits for ever where files are not split; `make test` gives it none."""
    assert "--max-worker-restart 0" in (ROOT / "Makefile").read_text()
    shutil.copy(ROOT / "conftest.py", tmp_path)
    shutil.copy(deadlines.__file__, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for name in range(12):
        ends = "\ndef test_ends():\n    import os\n    os._exit(3)\n" if name == 8 else ""
        several = (
            f"@pytest.mark.parametrize('n', range({1 if name < 8 else 4}))\ndef test_passes(n):\n    time.sleep(0.02)\n"
        )
        (tmp_path / f"test_{name:02}.py").write_text(f"import time\nimport pytest\n{several}{ends}")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    done = run(sys.executable, *words, "--max-worker-restart", "0", cwd=tmp_path, code=1)
    assert "crashed and worker restarting disabled" in done.stdout
    assert "crashed while running 'test_08.py::test_ends'" in done.stdout


STAYS = "import subprocess, sys, time; print('begun', flush=True); "
GRANDCHILD = STAYS + "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']); "


@pytest.mark.parametrize("code", [STAYS + "time.sleep(1000)", GRANDCHILD], ids=["itself", "what it started"])
def test_a_process_that_does_not_end_is_killed_with_all_it_started_and_what_it_said_is_shown(code):
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    with pytest.raises(AssertionError, match=r"(?s)did not end within 1 s; .* it had said:\nbegun"):
        run(sys.executable, "-c", code, seconds=1)
    assert not deadlines.descendants(deadlines.os.getpid(), started)


def test_a_process_that_ends_in_another_way_than_expected_is_shown_with_what_it_said(tmp_path):
    with pytest.raises(AssertionError, match=r"(?s)did not end with 0; its code is 3, .*one\ntwo"):
        run("sh", "-c", "echo one; echo two >&2; exit 3")
    with (
        Process("sh", "-c", "echo one; exit 3", log=tmp_path / "log") as process,
        pytest.raises(AssertionError, match=r"(?s)ended before 'two'.*one"),
    ):
        process.says("two", seconds=20)


def test_claims_and_threads_have_a_deadline_too():
    with pytest.raises(AssertionError, match=r"waited for 0.1 s in vain: pigs that fly"):
        until(lambda: False, "pigs that fly", seconds=0.1)
    is_over = threading.Event()
    with (
        pytest.raises(AssertionError, match=r"(?s)did not end within 0.1 s:.*in wait"),
        beside(is_over.wait, seconds=0.1),
    ):
        pass
    is_over.set()
    with beside(is_over.wait) as thread:
        join(thread)


WAITS = {"join", "wait", "communicate", "recv", "accept"}  # without an argument, for ever
STARTS = {"run", "Popen", "call", "check_call", "check_output", "Thread"}


def test_tests_start_processes_and_threads_and_wait_for_them_through_one_module_only():
    found = []
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/tests/*.py")]:
        if path.name == "deadlines.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = getattr(node.func.value, "id", "")
                starts = of in ("subprocess", "threading") and node.func.attr in STARTS
                if starts or (node.func.attr in WAITS and not node.args + node.keywords):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.func.attr}")
    assert not found, "\n".join(found)
