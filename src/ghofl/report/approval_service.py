"""The approval page behind HTTP, on this machine only, until somebody with the code has decided.

::

    GET  /                       asks for the code that was printed in the terminal
    POST / code                  shows what would leave, and two buttons
    POST / code and decision     decides, once

The code is in the body of every request that shows or decides something, and nowhere else. An address would be in the
browser's history and, while a browser starts, in the machine's list of processes; browsers send a cookie to every port of
a host, so another program on this machine could ask for it.
"""

import asyncio
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

from ghofl.custody.history import Permit
from ghofl.custody.inspection import Decision, Inspection, decide
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import MissingExtraError
from ghofl.report.approval import Question, code_page, failure_page, outcome_page, question_page

try:
    from fastapi import Request
    from fastapi.responses import HTMLResponse
except ImportError:
    raise MissingExtraError("the page needs fastapi and uvicorn: pip install 'ghofl[serve]'") from None

from ghofl.web.arrival import WholeRequests
from ghofl.web.server import listen, server_of

HOST = "127.0.0.1"  # not localhost, which may be ::1, where another program may listen on the same port
CODE_BYTES = 16
BODY, AT_ONCE = 2**10, 8  # bytes of a body, and requests
LOOK = 0.02  # seconds between looks whether a decision was recorded
FIELDS, DECISIONS = {"code", "decision"}, {"approve": True, "decline": False}
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",  # under no-referrer, browsers send no origin with a form
    "x-content-type-options": "nosniff",
}


def decide_in_browser(
    found: Inspection, site: Site, cohort: Sequence[str], rounds: int, port: int, tell: Callable[[str, str], None],
    decision: Decision,
) -> Inspection:  # fmt: skip
    """What was found after somebody has approved or declined it in a browser; `tell` is called with address and code.

    Guarantees
    ----------
    Only this machine can connect. Whoever does not give the code sees nothing about the site and decides nothing. What is
    recorded is what `decide` records. Ctrl-C ends it without a decision, also while a chosen one waits for the site's folder;
    once a line is being written, it comes too late, and what was decided is returned.
    """
    permit, storage = Permit.of(site.name, found.recipe, found.parcel.data, cohort, rounds), site.storage()
    with storage.lock():
        question = Question(found, site.load_policy(), Ledger.load(storage), permit)
    with listen(HOST, port) as listening:
        place = f"{HOST}:{listening.getsockname()[1]}"
        app = Approval(question, lambda choice: decide(found, site, choice, cohort, rounds, decision), place)
        server = server_of(WholeRequests(app, BODY, AT_ONCE))
        app.end, ended = lambda: setattr(server, "should_exit", True), server.handle_exit

        def stop(number: int, frame: Any) -> None:
            app.is_stopped = decision.stopped()
            ended(number, frame)

        server.handle_exit = stop  # type: ignore[method-assign]
        tell(f"http://{place}/", app.code)
        server.run(sockets=[listening])
    app.is_over.wait()  # Ctrl-C came after the decision, and its line may still be on its way to the disk
    assert app.outcome is not None
    if isinstance(app.outcome, Exception):
        raise app.outcome
    return app.outcome


class Approval:
    """The app of one question, at one place such as 127.0.0.1:8000.

    `outcome` is there once it was decided: what was found then, or the error because of which nothing was recorded.
    """

    def __init__(self, question: Question, choose: Callable[[bool], Inspection], place: str) -> None:
        self.question, self.place, self._choose = question, place, choose
        self.code = secrets.token_urlsafe(CODE_BYTES)
        self.outcome: Inspection | Exception | None = None
        self.is_over, self.is_stopped = threading.Event(), False
        self.end: Callable[[], None] = lambda: None
        self._choosing: threading.Thread | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status, text = await self._answer(Request(scope, receive))
        await HTMLResponse(text, status, HEADERS)(scope, receive, send)
        if self.outcome is not None:
            self.end()

    async def _answer(self, request: Request) -> tuple[int, str]:
        """The status and the page of an answer."""
        if request.headers.get("host") != self.place:  # a name that somebody made point here
            return 421, failure_page(f"This page is at http://{self.place}/ and has no other name; open that.")
        if request.url.path != "/":
            return 404, failure_page(f"The only page here is http://{self.place}/; open that.")
        if request.method in ("GET", "HEAD"):
            return 200, code_page()
        fields = fields_of(await request.body())
        if request.method != "POST" or request.headers.get("origin") != f"http://{self.place}" or fields is None:
            return 403, failure_page(f"This did not come from the form on http://{self.place}/; use that.")
        if not secrets.compare_digest(fields["code"].strip().encode(), self.code.encode()):
            return 403, code_page(wrong=True)
        if "decision" not in fields:
            return 200, question_page(self.question, self.code)
        return await self._decide(DECISIONS[fields["decision"]])

    async def _decide(self, choice: bool) -> tuple[int, str]:
        """The page of the first decision; it may wait for the site's folder, in a thread that ends with the program."""
        if self._choosing is None:
            self._choosing = threading.Thread(target=self._run, args=(choice,), daemon=True)
            self._choosing.start()
        while not (self.is_over.is_set() or self.is_stopped):
            await asyncio.sleep(LOOK)
        if isinstance(self.outcome, Inspection):
            return 200, outcome_page(self.outcome)
        why = "It was stopped, and nothing was recorded." if self.outcome is None else self.outcome
        return 409, failure_page(f"{why} The command has ended; close this page.")

    def _run(self, choice: bool) -> None:
        try:
            self.outcome = self._choose(choice)
        except Exception as error:  # the main thread raises it
            self.outcome = error
        except KeyboardInterrupt:  # it was stopped before anything was written
            return
        self.is_over.set()


def fields_of(body: bytes) -> dict[str, str] | None:
    """The fields of a form; None where they are not those of this page, each once."""
    try:
        pairs = parse_qsl(body.decode("ascii"), True, True, max_num_fields=len(FIELDS), errors="strict")
    except ValueError:
        return None
    fields = dict(pairs)
    is_known = len(pairs) == len(fields) and set(fields) <= FIELDS and "code" in fields
    return fields if is_known and fields.get("decision", "approve") in DECISIONS else None
