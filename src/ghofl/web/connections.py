"""HTTP connections that keep nobody else out: uvicorn's own protocol, with a deadline and a place for every newcomer.

::

    waiting    for the whole request, header and body, or for the other side to read the answer: one deadline
    working    the request is here and the answer is being computed: no deadline, as the other side waits

There are at most `most` connections. A new one takes the place of the one that has been waiting longest.
"""

import asyncio
from typing import Any

from ghofl.errors import MissingExtraError

try:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise MissingExtraError("a service needs fastapi and uvicorn: pip install 'ghofl[serve]'") from None

HEADER_BYTES = 2**16
MOST_CHUNKS = 10_000  # of one body: each costs as much as a kilobyte, even if it holds one byte
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"


def connections(seconds: float, most: int) -> type[H11Protocol]:
    """The protocol for uvicorn's `http` setting: at most `most` connections, which wait `seconds` at most.

    Guarantees
    ----------
    However slowly bytes come, a request is there `seconds` after its connection, or after the answer before it, or it is
    given up. However many connections wait, a new one is accepted. A body comes in `MOST_CHUNKS` chunks at most.
    """
    waiting: dict[TimedConnection, None] = {}  # oldest first

    class Bounded(TimedConnection):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.waiting, self.seconds, self.most = waiting, seconds, most
            self.conn = ChunkCounter(h11.SERVER, HEADER_BYTES)

    return Bounded


class ChunkCounter(h11.Connection):
    """The parser of one connection, which takes so many chunks per request."""

    _chunks = 0

    def next_event(self) -> Any:
        """The next event; too many chunks are a mistake of the other side, as is anything that is not HTTP."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = 0
        self._chunks += isinstance(event, h11.Data) and event.chunk_start
        if self._chunks > MOST_CHUNKS:
            raise h11.RemoteProtocolError(f"a body came in more than {MOST_CHUNKS:,} chunks")
        return event


class TimedConnection(H11Protocol):
    """One connection; see `connections`."""

    waiting: dict["TimedConnection", None]
    seconds: float
    most: int
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Take a place, if need be that of the connection that has waited longest."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            next(iter(self.waiting), self).give_up()
        if not transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place."""
        self._work()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Stop waiting once the whole request is there."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self._work()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def shutdown(self) -> None:
        """The server ends: a request that is not there yet is given up, and any other is answered."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.give_up()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Wait until the other side reads."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """The other side has read."""
        super().resume_writing()
        if not self.cycle.response_complete:
            self._work()

    def give_up(self) -> None:
        """Close the connection; where the body of a request is missing, say so."""
        self._work()
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            text = b'{"detail":"the request did not arrive in time; send it again, or less at once."}'
            self.transport.write(LATE % (len(text), text))
            self.transport.close()
        else:
            self.transport.abort()

    def _wait(self) -> None:
        self._work()
        self.waiting[self] = None
        self._timer = self.loop.call_later(self.seconds, self.give_up)

    def _work(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
