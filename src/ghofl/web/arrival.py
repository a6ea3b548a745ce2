"""Requests that reach an app whole: how large they may be, how many at once, and which one gives way."""

import asyncio
from typing import Any

from fastapi.responses import JSONResponse

BODIES = 8  # the largest bodies that may be arriving at once


class WholeRequests:
    """An app that gets requests whole: bodies of at most so many bytes, whatever headers say, and so many at once.

    The bodies that are arriving have at most `BODIES` times the largest body together: beyond that, the one that began
    first is given up, so that slow ones keep nobody out.
    """

    def __init__(self, app: Any, most: int, at_once: int) -> None:
        self.app, self.most, self.at_once = app, most, at_once
        self.arriving: dict[asyncio.Timeout, int] = {}
        self.busy = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            async with asyncio.timeout(None) as patience:
                body = await self._arrive(scope, receive, patience)
        except TimeoutError:
            return await _refuse(503, "other requests are waiting for this one's body; send it again.")(
                scope, receive, send
            )
        if body is None:
            return await _refuse(413, self._too_large)(scope, receive, send)
        if scope["method"] != "POST":
            return await self.app(scope, _once(body, receive), send)
        if self.busy >= self.at_once:
            return await _refuse(503, f"{self.at_once} requests are being answered; try again.")(scope, receive, send)
        return await self._answer(scope, _once(body, receive), send)

    async def _arrive(self, scope: Any, receive: Any, patience: asyncio.Timeout) -> bytes | None:
        """The body of a request, or None where it is too large."""
        declared = dict(scope.get("headers", ())).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self.most:
            return None
        body, is_more = bytearray(), True
        try:
            while is_more:
                message = await receive()
                body += message.get("body", b"")
                is_more = message.get("more_body", False)
                if len(body) > self.most or message["type"] != "http.request":  # or the other side has gone
                    return None
                self._count(patience, len(body))
        finally:
            self.arriving.pop(patience, None)
        return bytes(body)

    def _count(self, patience: asyncio.Timeout, size: int) -> None:
        self.arriving[patience] = size
        if sum(self.arriving.values()) > BODIES * self.most:
            oldest = next(iter(self.arriving))
            del self.arriving[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, which counts until its answer is computed, not until the answer is read."""
        self.busy += 1
        is_counted = True

        async def send_on(message: Any) -> None:
            nonlocal is_counted
            self.busy, is_counted = self.busy - is_counted, False
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        finally:
            self.busy -= is_counted

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self.most:,} bytes; send less at once."


def _once(body: bytes, receive: Any) -> Any:
    """What an app receives: the whole body, and after it what comes from the connection."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Any:
        return messages.pop() if messages else await receive()

    return next_message


def _refuse(status: int, detail: str) -> JSONResponse:
    """An answer after which the connection ends, as the rest of its body is of no use."""
    headers = {"connection": "close"} | ({"retry-after": "1"} if status == 503 else {})
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)
