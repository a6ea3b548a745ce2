"""Letters through Flower: records out, records in, and an `Engine` over its grid."""

import time
from collections.abc import Iterator, Mapping, Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ghofl.flower.answers import Letter
from ghofl.flower.federation import Answer, Node

FIELDS, PAYLOAD, BYTES = "ghofl", "ghofl.payload", "bytes"
STYPE = "ghofl.bytes"
BATCH_BYTES = 32 * 2**20  # about how much is pulled or pushed at once
MAX_BATCH = 256
SOON, LATER = 0.1, 1.0  # seconds between two looks for answers, at first and in the end


def to_records(letter: Letter) -> RecordDict:
    """A letter as Flower carries it: bytes travel as an array, which Flower sends in chunks."""
    records = RecordDict({FIELDS: ConfigRecord(dict(letter.fields))})
    if letter.payload:
        array = Array(dtype="uint8", shape=(len(letter.payload),), stype=STYPE, data=letter.payload)
        records[PAYLOAD] = ArrayRecord({BYTES: array})
    return records


def from_records(records: RecordDict) -> Letter:
    """The letter in Flower's records, which may come from anyone; what is not of ours is an empty letter."""
    fields, payload = records.get(FIELDS), records.get(PAYLOAD)
    if not isinstance(fields, ConfigRecord):
        return Letter()
    array = payload.get(BYTES) if isinstance(payload, ArrayRecord) else None
    return Letter(dict(fields), bytes(array.data) if array is not None else b"")


class GridEngine:
    """Flower's grid as an engine: queries are pushed, and answers pulled as they come.

    Large answers are pulled one at a time, so that the server never holds many of them.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Sequence[Node]:
        """Who is connected now, with the name and key of their registration."""
        return [Node(node.node_id, node.name, node.public_key) for node in self._grid.get_nodes()]

    def ask(self, action: str, letters: Mapping[int, Letter], seconds: float, size: int) -> Iterator[Answer]:
        """Ask nodes and give their answers as they come, one for every node."""
        deadline = time.monotonic() + seconds
        at_once = max(1, min(MAX_BATCH, BATCH_BYTES // max(1, size)))
        pending = {}
        for node, letter in letters.items():
            if message_id := self._push(action, node, letter, seconds):
                pending[message_id] = node
            else:
                yield Answer(node, error="the engine did not take its query")
        pause = SOON
        while pending and time.monotonic() < deadline:
            came = False
            for answer in self._pulled(pending, at_once):
                came = True
                yield answer
            pause = SOON if came else min(LATER, 1.5 * pause)
            if not came:
                time.sleep(pause)
        for node in pending.values():
            yield Answer(node, error=f"no answer within {seconds:g} seconds")

    def _push(self, action: str, node: int, letter: Letter, seconds: float) -> str:
        """The id of the query, empty when the grid did not take it."""
        message = Message(to_records(letter), dst_node_id=node, message_type=f"query.{action}", ttl=seconds)
        return next(iter(self._grid.push_messages([message])), "") or ""

    def _pulled(self, pending: dict[str, int], at_once: int) -> Iterator[Answer]:
        """One look at everything that is awaited, `at_once` answers at a time."""
        ids = list(pending)
        for start in range(0, len(ids), at_once):
            for reply in self._grid.pull_messages(ids[start : start + at_once]):
                node = pending.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if reply.has_error():
                    yield Answer(node, error=_why(reply))
                else:
                    yield Answer(node, from_records(reply.content))


def _why(reply: Message) -> str:
    reason = " ".join((reply.error.reason or "no reason was given").split())
    return f"its node failed or is gone: {reason[:300]}"
