"""The app at a site: it relays letters to the site's keeper or, without one, calls `answers` itself.

With ``keeper="/run/ghofl/north.sock"`` in the node's configuration it reads no file of the site, needs no secret and
decides nothing: whoever submits a run ships this code, so nothing that protects the site may depend on it.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from ghofl.custody.configuration import check_alone
from ghofl.custody.site import Site
from ghofl.custody.storage import Storage
from ghofl.errors import PolicyError, SiteError
from ghofl.flower.engine import STYPE, from_records, logging_with_flower, to_records
from ghofl.keeper import unix_socket
from ghofl.keeper.answers import ACTIONS, answer, refusal
from ghofl.simulation.site import SimulatedSite
from ghofl.wire.letter import Letter

SIMULATION = "GHOFL_SIMULATION"  # set to 1 in the environment of a simulation, whose nodes have no configuration


class ContextStorage:
    """Bytes in Flower's context of a run: gone with the run, so only simulated sites use it."""

    is_lasting = False

    def __init__(self, context: Context) -> None:
        self._records = context.state

    def lock(self) -> AbstractContextManager[None]:
        """Nobody else has this context."""
        return nullcontext()

    def get(self, name: str) -> bytes | None:
        """The bytes under a name, or None."""
        record = self._records.get(name)
        return bytes(record["bytes"].data) if isinstance(record, ArrayRecord) else None

    def put(self, name: str, content: bytes) -> None:
        """Store bytes under a name."""
        self._records[name] = ArrayRecord({"bytes": Array("uint8", (len(content),), STYPE, content)})

    def append(self, name: str, content: bytes) -> None:
        """Add bytes to the end of those under a name."""
        self.put(name, (self.get(name) or b"") + content)

    def forget(self, prefix: str) -> None:
        """Forget every name below a prefix."""
        for name in self.names(prefix):
            del self._records[name]

    def names(self, prefix: str) -> list[str]:
        """Every name below a prefix."""
        return [name for name in self._records if name.startswith(prefix + "/")]


def make_app() -> ClientApp:
    """A client app that answers every query."""
    app = ClientApp()
    for action in ACTIONS:
        app.query(action)(_handler(action))
    return app


def _handler(action: str) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        with logging_with_flower():
            try:
                return Message(to_records(_answer(action, message, context)), reply_to=message)
            except Exception as error:  # Flower would send the text of any other error to the server
                return Message(to_records(refusal(error)), reply_to=message)

    return handle


def _answer(action: str, message: Message, context: Context) -> Letter:
    query = from_records(message.content)
    if (socket := keeper_of(context.node_config)) is not None:
        return unix_socket.ask(socket, action, query)
    storage: Storage
    if is_simulated(context.node_config):
        site, storage = SimulatedSite.of_config(context.node_config, context.run_config), ContextStorage(context)
    else:
        site = Site.of_config(context.node_config)
        storage = site.storage()
    return answer(action, query, site, storage)


def keeper_of(node: Mapping[str, Any]) -> str | None:
    """The socket of the site's keeper, if the node's configuration names one; then it must say nothing else about it."""
    if "keeper" not in node:
        return None
    check_alone("keeper", node)
    path = node["keeper"]
    if not isinstance(path, str):
        raise SiteError(f'keeper is {path!r} in --node-config; write keeper="/run/ghofl/north.sock".')
    return unix_socket.check_socket_path(path)


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether a node simulates one of many sites, with rows from a file that the run's submitter names.

    Only its own machine can say so: by ``simulate=true`` in its --node-config, or by GHOFL_SIMULATION=1 in the
    environment of the simulation engine, whose nodes have a partition number and no other configuration. A node with a
    site is never simulated.
    """
    has_site, wish = bool({"site", "name"} & set(node)), node.get("simulate", False)
    if not isinstance(wish, bool):
        raise SiteError(f"simulate is {wish!r} in --node-config; write simulate=true, or leave it out.")
    if has_site and wish:
        raise SiteError(f"--node-config has simulate=true and a site ({', '.join(sorted(node))}); give one of the two.")
    if has_site:
        return False
    if wish or ("partition-id" in node and os.environ.get(SIMULATION) == "1"):
        check_alone("simulate", node)
        return True
    if "partition-id" in node:
        raise PolicyError(
            "this node has no site and was not started for simulations. For a site, give --node-config "
            f"'site=\"site.toml\"'. For a simulation, set {SIMULATION}=1 in the environment of its SuperLink before it "
            "starts, or simulate=true in --node-config."
        )
    return False


app = make_app()
