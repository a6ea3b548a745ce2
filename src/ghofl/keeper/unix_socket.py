"""Letters between an app that came over a network and a site's keeper, on a Unix socket: one request, one answer.

A request has its action among its fields.
"""

import contextlib
import os
import socket
import time

from ghofl.errors import MessageError, SiteError
from ghofl.wire.letter import START, Letter, sizes_of

FIELD_BYTES = 8 * 2**20  # room for the list of ids that a server has counted, or the signatures of a round
REQUEST_BYTES = 64 * 2**20  # of a request's payload: room for a round with thousands of sites
ANSWER_BYTES = 2**33  # of an answer's payload, which the site itself made
PATH_BYTES = 107  # the longest path of a Unix socket that systems allow
PATIENCE = 60.0  # seconds that a request waits for a keeper that is restarting
ANSWER_TIME = 6 * 3600.0  # seconds that an answer may take, as a site may have to embed all its samples


def check_socket_path(path: str) -> str:
    """The path, if the system allows it for a socket; otherwise raises `SiteError`."""
    size = len(os.fsencode(path))
    if not path or "\0" in path or size > PATH_BYTES:
        raise SiteError(
            f"the path of a socket is {path[:60]!r}… with {size} bytes, and systems take {PATH_BYTES}; "
            'write a shorter one, e.g. socket = "/run/ghofl/north.sock".'
            if size > PATH_BYTES
            else f'{path!r} is not the path of a socket; write e.g. socket = "/run/ghofl/north.sock".'
        )
    return path


def ask(path: str, action: str, request: Letter, patience: float = PATIENCE) -> Letter:
    """A keeper's answer to a request.

    If the keeper is down, takes no connection, or ends in the middle of an answer, the request is repeated for `patience`
    seconds: a site gives the same answer to the same request, so asking twice does no harm.
    """
    check_socket_path(path)
    if len(request.payload) > REQUEST_BYTES:
        raise MessageError(f"a request of {len(request.payload):,} bytes came, and a keeper reads {REQUEST_BYTES:,}.")
    deadline = time.monotonic() + patience
    while True:
        try:
            return _ask_once(path, action, request)
        except (FileNotFoundError, ConnectionError, BlockingIOError) as error:
            if time.monotonic() >= deadline:
                raise MessageError(
                    f"no keeper answers at {path} ({type(error).__name__}); start it with 'ghofl keeper SITE.toml'."
                ) from None
            time.sleep(0.2)


def _ask_once(path: str, action: str, request: Letter) -> Letter:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(ANSWER_TIME)  # else a keeper that does not take its connections is waited for without end
        link.connect(path)
        deadline = time.monotonic() + ANSWER_TIME
        with contextlib.suppress(BrokenPipeError):  # a keeper that refuses may answer before it has read all
            send(link, Letter({**request.fields, "action": action}, request.payload), deadline)
        return Letter.of(*receive(link, ANSWER_BYTES, deadline))


def send(link: socket.socket, letter: Letter, deadline: float | None = None) -> None:
    """Write a letter to a socket; the whole of it until `deadline` on the clock of `time.monotonic`, or `TimeoutError`."""
    for part in (letter.head, letter.content):
        _hurry(link, deadline)
        link.sendall(part)  # its time limit is for the whole part


def receive(link: socket.socket, most: int, deadline: float | None = None) -> tuple[bytes, bytes]:
    """The head and payload of a letter from a socket; raises `MessageError` for anything else before reading it.

    `ConnectionError` is raised when the other side has gone, and `TimeoutError` when the whole letter is not there at the
    `deadline`, however many bytes of it came.
    """
    start = read(link, START, deadline)
    size, length = sizes_of(start)
    if size > FIELD_BYTES or length > most:
        raise MessageError(f"a letter of {size:,} and {length:,} bytes came; {FIELD_BYTES:,} and {most:,} are allowed.")
    return start + read(link, size, deadline), read(link, length, deadline)


def read(link: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Exactly `size` bytes from a socket."""
    out = bytearray()
    while len(out) < size:
        _hurry(link, deadline)
        piece = link.recv(min(size - len(out), 2**20))
        if not piece:
            raise ConnectionResetError("the other side of a socket closed it in the middle of a letter")
        out += piece
    return bytes(out)


def _hurry(link: socket.socket, deadline: float | None) -> None:
    """Let the next operation on a socket wait until the deadline at most."""
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("a letter took longer than it may")
        link.settimeout(left)
