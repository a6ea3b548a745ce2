"""Letters through Flower: to and from its records, and an `Engine` over its grid."""

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from ghofl import files
from ghofl.errors import MessageError
from ghofl.files import FileBytes
from ghofl.flower.server.asking import Answer, Node
from ghofl.wire.letter import Letter, fields_of

LETTER = "ghofl.letter"
STYPE = "ghofl.bytes"
BATCH_BYTES = 32 * 2**20  # about how much is pulled or pushed at once
MAX_BATCH = 256
FIELD_BYTES = 128 * 2**10  # of a node's answer, which may say much about earlier sums
SMALL_PIECE = 2**18  # bytes: on average, the pieces of a payload may not be smaller
LARGE = 2**20  # bytes from which a payload is put into a file
PIECE = 4 * 2**20  # bytes of a payload per array: Flower holds an array three times while it assembles it
SOON, LATER = 0.1, 1.0  # seconds between two looks for answers, at first and later


def to_records(letter: Letter) -> RecordDict:
    """A letter as Flower carries it: its head and the pieces of its payload as arrays, which Flower sends in chunks."""
    content = letter.content
    pieces = [letter.head, *(content[start : start + PIECE] for start in range(0, len(content), PIECE))]
    return RecordDict({LETTER: ArrayRecord({f"{i:06d}": _array(piece) for i, piece in enumerate(pieces)})})


def from_records(records: RecordDict, spool: Path | None = None, limit: int | None = None) -> Letter:
    """The letter in Flower's records, which may come from anyone; records of another app give an empty letter.

    A large payload is written to a file in the folder `spool`, if one is given. With a `limit`, `MessageError` is
    raised for a payload of more bytes, for one in too many pieces, and for more fields than an answer has, before
    anything is assembled or written.
    """
    arrays = records.get(LETTER)
    if not isinstance(arrays, ArrayRecord) or not arrays:
        return Letter()
    head, *pieces = [array.data for _, array in sorted(arrays.items())]
    if limit is not None:
        _check_answer(head, pieces, limit)
    size = sum(map(len, pieces))
    fields = fields_of(head, size)
    if spool is None or size < LARGE:
        return Letter(fields, b"".join(pieces))
    path = spool / secrets.token_hex(16)
    with files.open_to_replace(path, files.PRIVATE) as file:
        for piece in pieces:
            file.write(piece)
    return Letter(fields, FileBytes(path))


def _check_answer(head: bytes, pieces: Sequence[bytes], limit: int) -> None:
    most, came = 16 + limit // min(PIECE, SMALL_PIECE), sum(map(len, pieces))
    if len(head) > FIELD_BYTES:
        raise MessageError(f"an answer with over {FIELD_BYTES:,} bytes in its fields came; the node runs another app.")
    if len(pieces) > most:
        raise MessageError(f"a payload in {len(pieces):,} pieces came, and this query allows {most:,}.")
    if came > limit:
        raise MessageError(f"a payload of over {limit:,} bytes came, which is more than this query allows.")


def _array(content: bytes) -> Array:
    return Array(dtype="uint8", shape=(len(content),), stype=STYPE, data=content)


class GridEngine:
    """Flower's grid as an engine: queries are pushed, and answers pulled as they come.

    Large answers are pulled one at a time and put into files in the folder `spool`, so that the server never holds
    many of them in memory.
    """

    def __init__(self, grid: Grid, spool: Path | None = None) -> None:
        self._grid, self._spool = grid, spool

    def nodes(self) -> Sequence[Node]:
        """Who is connected now, with the name and key of their registration."""
        return [Node(node.node_id, node.name, node.public_key) for node in self._grid.get_nodes()]

    def ask(self, action: str, letters: Mapping[int, Letter], seconds: float, size: int) -> Iterator[Answer]:
        """Ask nodes and yield their answers as they come, one per node; `size` is the most bytes of a payload."""
        deadline = time.monotonic() + seconds
        at_once = max(1, min(MAX_BATCH, BATCH_BYTES // max(1, size)))
        pending = {}
        for node, letter in letters.items():
            if message_id := self._push(action, node, letter, seconds):
                pending[message_id] = node
            else:
                yield Answer(node, error="the engine did not accept its query")
        pause = SOON
        while pending and time.monotonic() < deadline:
            came = False
            for answer in self._pull(pending, at_once, size):
                came = True
                yield answer
            pause = SOON if came else min(LATER, 1.5 * pause)
            if not came:
                time.sleep(pause)
        for node in pending.values():
            yield Answer(node, error=f"no answer within {seconds:g} seconds")

    def _push(self, action: str, node: int, letter: Letter, seconds: float) -> str:
        """The id of the query, empty when the grid did not accept it."""
        message = Message(to_records(letter), dst_node_id=node, message_type=f"query.{action}", ttl=seconds)
        return next(iter(self._grid.push_messages([message])), "") or ""

    def _pull(self, pending: dict[str, int], at_once: int, size: int) -> Iterator[Answer]:
        """The answers that have come, pulled `at_once` at a time."""
        ids = list(pending)
        for start in range(0, len(ids), at_once):
            replies = list(self._grid.pull_messages(ids[start : start + at_once]))
            while replies:  # taken off the list, so that nothing else keeps an answer in memory
                answer = self._answer(pending, replies.pop(), size)
                if answer is not None:
                    yield answer

    def _answer(self, pending: dict[str, int], reply: Message, size: int) -> Answer | None:
        node = pending.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            return None
        if reply.has_error():
            return Answer(node, error=_why(reply))
        try:
            return Answer(node, from_records(reply.content, self._spool, size))
        except MessageError as error:
            return Answer(node, error=str(error))


@contextmanager
def logging_with_flower() -> Iterator[None]:
    """Let what other rooms log, each under its own name, appear where Flower's own lines do; afterwards all is as before."""
    ours, theirs = logging.getLogger("ghofl"), logging.getLogger("flwr")
    level, added = ours.level, [handler for handler in theirs.handlers if handler not in ours.handlers]
    ours.setLevel(theirs.level)
    for handler in added:
        ours.addHandler(handler)
    try:
        yield
    finally:
        ours.setLevel(level)
        for handler in added:
            ours.removeHandler(handler)


def _why(reply: Message) -> str:
    reason = "".join(c if c.isprintable() else " " for c in reply.error.reason or "no reason was given")
    return f"its node failed or is gone: {' '.join(reason.split())[:300]}"
