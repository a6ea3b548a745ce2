"""Letters between an app that came over a network and a site's keeper, on a Unix socket: one question, one answer.

::

    b"GHOFLK1\n"   4 bytes: length of the head   8 bytes: length of the payload   head, JSON   payload

The head of a question is {"action": …, "fields": …}, that of an answer {"fields": …}. Bytes among the fields are written
as {"hex": …}. Nothing else is understood, and nothing is ever unpickled or run.
"""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from ghofl.errors import MessageError, SiteError
from ghofl.site.letter import Letter

MAGIC = b"GHOFLK1\n"
SIZES = struct.Struct(">IQ")
HEAD_BYTES = 8 * 2**20  # room for the list of ids that a server has counted, or the signatures of a round
QUESTION_BYTES = 64 * 2**20  # of a question's payload: room for a round with thousands of sites
ANSWER_BYTES = 2**33  # of an answer's payload, which the site itself made
MOST_FIELDS, DEEPEST = 32, 1
PATH_BYTES = 107  # the longest path of a Unix socket that systems allow
PATIENCE = 60.0  # seconds that a question waits for a keeper that is restarting
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


def ask(path: str, action: str, query: Letter, patience: float = PATIENCE) -> Letter:
    """A keeper's answer to a question.

    If the keeper is down, or ends in the middle of an answer, the question is repeated for `patience` seconds: a site
    gives the same answer to the same question, so asking twice does no harm.
    """
    check_socket_path(path)
    deadline = time.monotonic() + patience
    while True:
        try:
            return _ask_once(path, action, query)
        except (FileNotFoundError, ConnectionError) as error:
            if time.monotonic() >= deadline:
                raise MessageError(
                    f"no keeper answers at {path} ({type(error).__name__}); start it with 'ghofl keeper SITE.toml'."
                ) from None
            time.sleep(0.2)


def _ask_once(path: str, action: str, query: Letter) -> Letter:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(path)
        link.settimeout(ANSWER_TIME)
        with contextlib.suppress(BrokenPipeError):  # a keeper that refuses may answer before it has read all
            send(link, {"action": action, "fields": query.fields}, query.content)
        head, payload = receive(link, ANSWER_BYTES)
    return Letter(fields_of(head), payload)


def send(link: socket.socket, head: Mapping[str, Any], payload: bytes, deadline: float | None = None) -> None:
    """Write a letter to a socket; the whole of it until `deadline` on the clock of `time.monotonic`, or `TimeoutError`."""
    text = json.dumps({key: _written(value) for key, value in head.items()}).encode()
    for part in (MAGIC + SIZES.pack(len(text), len(payload)) + text, payload):
        _hurry(link, deadline)
        link.sendall(part)  # its time limit is for the whole part


def receive(link: socket.socket, most: int, deadline: float | None = None) -> tuple[dict[str, Any], bytes]:
    """The head and payload of a letter from a socket; raises `MessageError` for anything else before reading it.

    `ConnectionError` is raised when the other side has gone, and `TimeoutError` when the whole letter is not there at the
    `deadline`, however many bytes of it came.
    """
    start = read(link, len(MAGIC) + SIZES.size, deadline)
    size, length = SIZES.unpack(start[len(MAGIC) :])
    if start[: len(MAGIC)] != MAGIC:
        raise MessageError("what came is not a letter, and this socket takes nothing else.")
    if size > HEAD_BYTES or length > most:
        raise MessageError(f"a letter of {size:,} and {length:,} bytes came; {HEAD_BYTES:,} and {most:,} are allowed.")
    try:
        head = json.loads(read(link, size, deadline))
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise MessageError("the head of a letter is not a JSON object.")
    return head, read(link, length, deadline)


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


def fields_of(head: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a letter's head, which may come from anyone."""
    fields = head.get("fields")
    if not isinstance(fields, dict) or len(fields) > MOST_FIELDS:
        raise MessageError(f"a letter has up to {MOST_FIELDS} fields; something else came.")
    return {key: _read(value) for key, value in fields.items()}


def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    return [_written(item) for item in value] if isinstance(value, list | tuple) else value


def _read(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list) and depth < DEEPEST:
        return [_read(item, depth + 1) for item in value]
    if isinstance(value, dict) and set(value) == {"hex"} and isinstance(value["hex"], str):
        with contextlib.suppress(ValueError):
            return bytes.fromhex(value["hex"])
    elif isinstance(value, str | int | float | bool):
        return value
    raise MessageError("a field of a letter is neither a text, a number, bytes, nor a list of those.")
