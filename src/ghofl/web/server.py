"""The server that every app here runs in."""

import socket
from typing import Any

from ghofl.errors import BusyError, MissingExtraError

try:
    import uvicorn
except ImportError:
    raise MissingExtraError("a service needs fastapi and uvicorn: pip install 'ghofl[serve]'") from None

from ghofl.web.connections import connections

CONNECTIONS = 128  # open at once, most of them idle
DEADLINE = 30.0  # seconds for a request to arrive, and for its answer to be read
FAREWELL = 5  # seconds that answers under way may take when the server ends


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address, on a free port where that is 0; raises `BusyError` where it cannot."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise BusyError(f"cannot listen on {host}:{port} ({error.strerror}); choose another `port`.") from None


def server_of(app: Any) -> uvicorn.Server:
    """A server of an app, for ``run(sockets=[…])``; Ctrl-C ends it, and so does setting its `should_exit`."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            http=connections(DEADLINE, CONNECTIONS),
            ws="none",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=FAREWELL,
        )
    )
