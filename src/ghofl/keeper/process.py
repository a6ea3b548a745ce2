"""A site's keeper: the one process that reads its rows, keys, policy and ledger, and answers letters on a Unix socket.

::

    network ══▶ SuperNode ══▶ ClientApp, a relay ══ Unix socket ══▶ keeper ─▶ answers ─▶ custody
    (code of whoever submits a run; another OS user)                (the site's own installation and OS user)

It listens on no network. The socket's permissions and the site's `allow` say who may connect; the system reports the
other side's credentials. A connection carries one letter and one answer.
"""

import contextlib
import grp
import logging
import os
import pwd
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ghofl import files
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import BusyError, MessageError, PolicyError, SiteError
from ghofl.keeper import unix_socket
from ghofl.keeper.answers import ACTIONS, answer, refusal
from ghofl.names import shorten
from ghofl.wire.letter import Letter

LOCK = ".keeper"  # in the site's folder, locked as long as the keeper lives
SOCKET_MODE = 0o660
AT_ONCE = 16  # connections
LETTER_TIME = 30.0  # seconds that a whole letter may take to arrive, and its whole answer to be read
BURST, PER_MINUTE = 120, 240  # requests that may come at once, and per minute after that
LOOK = 0.25  # seconds between two checks whether to end

log = logging.getLogger(__name__)


class Rate:
    """A limit on requests: a burst of so many at once, and so many per minute after that."""

    def __init__(
        self, burst: int = BURST, per_minute: int = PER_MINUTE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._per_second, self._clock = burst, per_minute / 60, clock
        self._left, self._at, self._lock = float(burst), clock(), threading.Lock()

    def allows(self) -> bool:
        """Whether one more may come now; if so, it is counted."""
        with self._lock:
            now = self._clock()
            self._left = min(float(self._burst), self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class Links:
    """Open connections, at most `most`: a new one takes the place of the one that has kept the keeper waiting longest.

    So nobody keeps others out by connections whose letters do not come, or whose answers are not read. A connection
    whose request is being answered stays.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # in the order in which they began to wait
        self._answered: set[socket.socket] = set()

    def admit(self, link: socket.socket) -> bool:
        """Whether there is room for a new connection, if need be in the place of one that waits."""
        with self._lock:
            if len(self._waiting) + len(self._answered) >= self._most:
                if not self._waiting:
                    return False
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it or writes to it
            self._waiting[link] = None
            return True

    @contextmanager
    def answering(self, link: socket.socket) -> Iterator[None]:
        """While the block runs, the other side of a connection waits for the keeper."""
        with self._lock:
            if link in self._waiting:
                del self._waiting[link]
                self._answered.add(link)
        try:
            yield
        finally:
            with self._lock:
                if link in self._answered:
                    self._answered.remove(link)
                    self._waiting[link] = None

    def leave(self, link: socket.socket) -> None:
        """The connection is over."""
        with self._lock:
            self._waiting.pop(link, None)


class Keeper:
    """A site's keeper, once its folder is locked and its socket is open.

    The site file, its policy and its recipe are read again for every request: changing them needs no restart.
    """

    def __init__(self, path: str | Path, rate: Rate | None = None) -> None:
        self.path, self.rate = Path(path), rate or Rate()
        self.site = Site.load(path)
        if not self.site.socket:
            raise SiteError(
                f'{path} names no socket for its keeper; write socket = "/run/ghofl/{self.site.name}.sock".'
            )
        unix_socket.check_socket_path(self.site.socket)
        self.allowed = allowed_users(self.site.allow)
        self.site.load_policy().peer_keys()
        self._stop, self._links = threading.Event(), Links(AT_ONCE)

    def stop(self) -> None:
        """Answer the requests that have come, then end."""
        self._stop.set()

    def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer letters until told to stop; the socket is gone afterwards, however it ends.

        Raises `BusyError` when another keeper has the folder, and `SiteError` when its ledger is damaged.
        """
        storage = self.site.storage()
        with _only_keeper(Path(self.site.folder)), _open_socket(self.site) as listener:
            with storage.lock():
                History.of(Ledger.load(storage))
            log.info("The keeper of %s answers at %s", self.site.name, self.site.socket)
            ready()
            threads: list[threading.Thread] = []
            listener.settimeout(LOOK)
            while not self._stop.is_set():
                try:
                    link, _ = listener.accept()
                except TimeoutError:
                    continue
                threads = [thread for thread in threads if thread.is_alive()]
                if not self._links.admit(link):
                    log.warning("More than %d requests at once; a connection is closed", AT_ONCE)
                    link.close()
                    continue
                threads.append(threading.Thread(target=self._serve_one, args=(link,), daemon=True))
                threads[-1].start()
            for thread in threads:
                thread.join(LETTER_TIME)

    def _serve_one(self, link: socket.socket) -> None:
        try:
            with link:
                self._converse(link)
        except (OSError, MessageError) as error:
            log.warning("A connection was closed: %s", shorten(error))
        except Exception:
            log.exception("A connection was closed")
        finally:
            self._links.leave(link)

    def _converse(self, link: socket.socket) -> None:
        user = peer_of(link)
        if user not in self.allowed:
            log.warning("User %d is not in `allow` of the site file; the connection gets no answer", user)
            return
        head, payload = unix_socket.receive(link, unix_socket.REQUEST_BYTES, time.monotonic() + LETTER_TIME)
        with self._links.answering(link):
            if self.rate.allows():
                reply = self._answer(head, payload)
            else:
                busy = "this site gets more requests than it answers per minute; ask again later."
                reply = refusal(PolicyError(busy))
        unix_socket.send(link, reply, time.monotonic() + LETTER_TIME)

    def _answer(self, head: bytes, payload: bytes) -> Letter:
        try:
            request = Letter.of(head, payload)
            action = request.fields.get("action")
            if action not in ACTIONS:
                raise PolicyError(f"this site answers only {', '.join(ACTIONS)}.")
            site = Site.load(self.path)
            if (site.name, site.folder) != (self.site.name, self.site.folder):
                raise SiteError(
                    f"{self.path} names another site or folder than when this keeper started; restart the keeper."
                )
            return answer(str(action), request, site, site.storage())
        except Exception as error:
            return refusal(error, self.site.name)


def allowed_users(names: tuple[str, ...]) -> frozenset[int]:
    """The user ids that may ask: the keeper's own, and those of `allow`, by name or number."""
    found = {os.getuid()}
    for name in names:
        try:
            found.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
        except (KeyError, OverflowError):
            raise SiteError(
                f"allow names the user {name[:40]!r}, who does not exist on this machine; write user names or ids, e.g. "
                'allow = ["flower"].'
            ) from None
    return frozenset(found)


def peer_of(link: socket.socket) -> int:
    """The user id of the process at the other end, as reported by the system, so that the process cannot fake it."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise SiteError("this system does not say who is at the other end of a socket; run the keeper on Linux.")
    return struct.unpack("iII", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))[1]


@contextmanager
def _only_keeper(folder: Path) -> Iterator[None]:
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, files.PRIVATE)
    file: BinaryIO
    with os.fdopen(handle, "r+b") as file:
        if not files.try_lock(file):
            raise BusyError(f"another keeper is at work in {folder}; a folder has one. End that one first.")
        yield


@contextmanager
def _open_socket(site: Site) -> Iterator[socket.socket]:
    """The site's socket, open to its owner and group only, and removed at the end."""
    path = Path(site.socket)
    _clear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o777 & ~files.PRIVATE)
        try:
            listener.bind(site.socket)
        finally:
            os.umask(before)
        place = path.lstat()
        try:
            if site.socket_group:
                os.chown(path, -1, _group(site.socket_group))
            path.chmod(SOCKET_MODE)
            listener.listen(AT_ONCE)
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                if (path.lstat().st_dev, path.lstat().st_ino) == (place.st_dev, place.st_ino):
                    path.unlink()


def _clear(path: Path) -> None:
    """Remove the socket that a killed keeper left behind; raise for another file, or a socket in use."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise SiteError(f"{path} exists and is not a socket; give the keeper's socket another path, or remove it.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # as many connections wait there as may
    raise BusyError(f"another process answers at {path}; give this site its own socket.")


def _group(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise SiteError(
            f"socket_group is {name[:40]!r}, which does not exist on this machine; create the group first."
        ) from None


@contextmanager
def stop_on_signals(keeper: Keeper) -> Iterator[None]:
    """While the block runs, SIGTERM and Ctrl-C stop the keeper cleanly."""
    before = {number: signal.signal(number, lambda *_: keeper.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
