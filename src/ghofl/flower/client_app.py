"""The app at a site: every query of the server becomes a call of `answers`."""

from collections.abc import Callable

from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from ghofl.flower.answers import ACTIONS, answer, refusal
from ghofl.flower.engine import STYPE, from_records, to_records
from ghofl.flower.site import SimulatedSite, Site


class ContextMemory:
    """Bytes in Flower's context of a run: gone with the run, so only simulated sites use it."""

    is_lasting = False

    def __init__(self, context: Context) -> None:
        self._records = context.state

    def get(self, name: str) -> bytes | None:
        """What was put there, or nothing."""
        record = self._records.get(name)
        return bytes(record["bytes"].data) if isinstance(record, ArrayRecord) else None

    def put(self, name: str, content: bytes) -> None:
        """Remember."""
        self._records[name] = ArrayRecord({"bytes": Array("uint8", (len(content),), STYPE, content)})

    def forget(self, prefix: str) -> None:
        """Forget every name below a prefix."""
        for name in [name for name in self._records if name.startswith(prefix + "/")]:
            del self._records[name]


def make_app() -> ClientApp:
    """A client app that answers every query."""
    app = ClientApp()
    for action in ACTIONS:
        app.query(action)(_handler(action))
    return app


def _handler(action: str) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        try:
            if "partition-id" in context.node_config and not {"site", "name"} & set(context.node_config):
                site, memory = SimulatedSite.of_config(context.node_config, context.run_config), ContextMemory(context)
            else:
                site = Site.of_config(context.node_config)
                memory = site.memory()
        except Exception as error:
            return Message(to_records(refusal(error)), reply_to=message)
        return Message(to_records(answer(action, from_records(message.content), site, memory)), reply_to=message)

    return handle


app = make_app()
