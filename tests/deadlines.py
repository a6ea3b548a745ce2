"""What tests wait for: processes, threads, and claims that come true. Every wait ends, and says what there was to see."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from _pytest.outcomes import OutcomeException

SECONDS = 120
AGAIN = 5  # seconds until a block that is told to end is told again


class Process:
    """A process in a group of its own, which is killed when the block is left.

    What it says is kept as it comes, or goes to the end of the file `log`. Options are those of `subprocess.Popen`.
    """

    def __init__(self, *command, log=None, **options):
        self.command, self.log, self._said, self._readers = list(map(str, command)), log, {}, []
        with open(log or os.devnull, "ab") as file:
            to = subprocess.PIPE if log is None else file
            options = {"stdin": subprocess.DEVNULL, "stdout": to, "stderr": to} | options
            self._popen = subprocess.Popen(self.command, start_new_session=True, **options)
        self.pid = self._popen.pid
        for name in ("stdout", "stderr"):
            if (stream := getattr(self._popen, name)) is not None:
                self._said[name] = bytearray()
                self._readers.append(threading.Thread(target=_keep, args=(stream, self._said[name]), daemon=True))
                self._readers[-1].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def out(self):
        """What it has said so far on standard output."""
        return bytes(self._said.get("stdout", b"")).decode(errors="replace")

    @property
    def err(self):
        """What it has said so far on standard error."""
        return bytes(self._said.get("stderr", b"")).decode(errors="replace")

    def poll(self):
        """The code with which it ended, or nothing while it runs."""
        return self._popen.poll()

    def until(self, claim, what, seconds=SECONDS):
        """Wait until something is so while the process runs."""
        until(lambda: claim() or self.poll() is not None, what, seconds, self._story)
        if not claim():
            raise AssertionError(self._story(f"ended before {what}"))

    def says(self, pattern, seconds=SECONDS):
        """Wait until its output has a match of a pattern, and return the match."""
        self.until(lambda: re.search(pattern, self.out + self.err), repr(pattern), seconds)
        return re.search(pattern, self.out + self.err)

    def finish(self, seconds=SECONDS):
        """Wait until it has ended and nobody can say more in its name; returns its code."""
        deadline = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(0.0, deadline - time.monotonic()))
        if self.poll() is None or any(reader.is_alive() for reader in self._readers):
            story = self._story(f"did not end within {seconds:g} s")
            self.end()
            raise AssertionError(story)
        return self.poll()

    def send(self, number):
        """Send it a signal."""
        self._popen.send_signal(number)

    def end(self):
        """Kill it with all that it started, also what left its group, and reap it."""
        alone = [] if self.poll() is not None else [self.pid]
        for pid in [*(descendants(self.pid) if alone else []), *alone]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)
        for reader in self._readers:
            reader.join(10)

    def _story(self, why=""):
        log = "" if self.log is None else Path(self.log).read_text(errors="replace")[-4000:]
        words = " ".join(self.command)[:500]
        return f"{words} {why}; its code is {self.poll()}, and it had said:\n{self.out[-4000:]}{self.err[-4000:]}{log}"


def _keep(stream, said):
    with stream:
        while piece := stream.read1():
            said += piece


def run(*command, seconds=SECONDS, code=0, **options):
    """Run a command to its end, which has to come with this code, or with any if that is None."""
    with Process(*command, **options) as process:
        found = process.finish(seconds)
        if code is not None and found != code:
            raise AssertionError(process._story(f"did not end with {code}"))
    return subprocess.CompletedProcess(process.command, found, process.out, process.err)


def until(claim, what, seconds=SECONDS, story=lambda why: why):
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(story(f"was waited for {seconds:g} s in vain: {what}"))
        time.sleep(0.01)


@contextlib.contextmanager
def beside(target, *arguments, stop=lambda: None, seconds=60):
    """A thread that runs beside the block; when that is left, the thread is told to stop, and has to."""
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop()
        join(thread, seconds)


def join(other, seconds=60):
    """Wait until a thread, or a process of `multiprocessing`, has ended; such a process has to end well."""
    other.join(seconds)
    if other.is_alive():
        if isinstance(other, threading.Thread):
            raise AssertionError(f"{other.name} did not end within {seconds:g} s:\n{traces({other.ident})}")
        other.kill()
        raise AssertionError(f"{other.name} did not end within {seconds:g} s")
    assert not getattr(other, "exitcode", 0), f"{other.name} ended with {other.exitcode}"


class HungError(OutcomeException):
    """A test took too long. Neither the code under test nor hypothesis takes this for an error that may come and go."""


@contextlib.contextmanager
def in_time(seconds):
    """Whatever the block waits for, it ends with a trace of all threads.

    What it started is killed, which ends most waits, and it is told again and again: leaving ``with Popen(…)`` waits too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    started = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0

    def tell(*_):
        told = traces(set(sys._current_frames()) - {threading.get_ident()})
        for pid in descendants(os.getpid(), started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        raise HungError(f"not over after {seconds:g} s. Its other threads were at:\n{told}")

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def traces(threads):
    """Where threads are now, the last calls of each."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = ((names.get(at, at), frame) for at, frame in sys._current_frames().items() if at in threads)
    return "\n".join(f"{name}:\n{''.join(traceback.format_stack(frame)[-12:])}" for name, frame in frames)


def descendants(root, since=0.0):
    """Process ids below one, from /proc; of those that began at a time or later, in seconds since the system did."""
    children, tick = {}, os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append((int(path.name), int(fields[19]) / tick))
    out, ahead = [], [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        out += [pid for pid, began in below if began >= since - 0.02]
        ahead += [pid for pid, _ in below]
    return out
