"""Head-only training in rounds by Flower's own strategies, clients in this process: what `Rounds` is held against.

The strategy's loop, sampling, weighting and aggregation are Flower's; a client's epoch is ours, and FedProx's μ comes
from the strategy's message. Only the network between them is replaced, by a grid that calls the client.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx
from flwr.supercore.task_identity import TaskIdentity

from ghofl_benchmarks.baselines.local import State
from ghofl_benchmarks.baselines.rounds import MU

Train = Callable[[int, int, State, float], tuple[State, int]]


class InProcess(Grid):
    """A grid whose nodes are calls: (client, round, model, μ) to the trained model and its number of rows."""

    def __init__(self, clients: int, train: Train) -> None:
        self._clients, self._train, self.models = clients, train, list[State]()

    def set_run(self, run: object) -> None:
        """There is no run to be told of."""

    @property
    def run(self) -> object:
        """There is none."""
        raise NotImplementedError("nothing here has a run.")

    def create_message(self, content: RecordDict, message_type: str, dst_node_id: int, *_: object) -> Message:
        """A message to a client."""
        return Message(content=content, message_type=message_type, dst_node_id=dst_node_id)

    def get_node_ids(self) -> Iterable[int]:
        """One number per client, from 1."""
        return range(1, self._clients + 1)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Strategies send and receive in one go."""
        raise NotImplementedError("use send_and_receive.")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Strategies send and receive in one go."""
        raise NotImplementedError("use send_and_receive.")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Every client's answer, in the order of clients."""
        return [self._answer(message) for message in sorted(messages, key=lambda m: m.metadata.dst_node_id)]

    def _answer(self, message: Message) -> Message:
        config = message.content["config"]
        arrays = message.content["arrays"].to_torch_state_dict()
        client, number = message.metadata.dst_node_id - 1, int(config["server-round"]) - 1
        model, rows = self._train(client, number, dict(arrays), float(config.get("proximal-mu", 0.0)))
        content = {"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": rows})}
        # A reply's metadata is made by the engine; strategies read contents only.
        return Message(content=RecordDict(content), message_type="train", dst_node_id=client + 1)


@contextmanager
def identity() -> Iterator[None]:
    """Messages are stamped with the task they come from, which an engine sets; here it is number 1 throughout."""
    before = {name: getattr(TaskIdentity, f"_{name}") for name in ("task_id", "run_id", "node_id")}
    for name in before:
        setattr(TaskIdentity, name, 1)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def play(method: str, initial: State, clients: int, rounds: int, train: Train) -> list[State]:
    """The common model after every round of Flower's FedAvg or FedProx."""
    kept: list[State] = []
    options = {"fraction_evaluate": 0.0, "min_train_nodes": clients, "min_available_nodes": clients}
    strategy = FedProx(**options, proximal_mu=MU) if method == "fedprox" else FedAvg(**options)

    def keep(number: int, arrays: ArrayRecord) -> None:
        if number:
            kept.append({name: value.clone() for name, value in arrays.to_torch_state_dict().items()})

    with identity():
        strategy.start(InProcess(clients, train), ArrayRecord(initial), num_rounds=rounds, evaluate_fn=keep)
    return kept
