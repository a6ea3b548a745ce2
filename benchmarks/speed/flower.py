"""Flower's own aggregation of vectors: its strategy, on replies in memory or in the bytes its engine keeps."""

import logging
from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from ghofl_benchmarks.baselines.flower_oracle import identity

logging.getLogger("flwr").setLevel(logging.WARNING)  # it tells of every aggregation
Stored = tuple[str, dict[str, bytes]]


def replies(vectors: Sequence[np.ndarray]) -> list[Message]:
    """One reply per vector, all of as many rows."""
    return _messages(_contents(vectors))


def stored(vectors: Sequence[np.ndarray]) -> list[Stored]:
    """Every reply's content as the engine keeps it: objects by their sha256."""
    return [(c.object_id, {i: o.deflate() for i, o in get_all_nested_objects(c).items()}) for c in _contents(vectors)]


def inflated(kept: Iterable[Stored]) -> list[Message]:
    """The replies that stored objects make up."""
    return _messages(
        [inflate_object_from_contents(name, dict(objects), keep_object_contents=True) for name, objects in kept]
    )


def average(messages: Sequence[Message]) -> np.ndarray:
    """The mean vector by Flower's FedAvg."""
    arrays, _ = FedAvg().aggregate_train(1, messages)
    (vector,) = arrays.to_numpy_ndarrays()
    return vector


def _contents(vectors: Sequence[np.ndarray]) -> list[RecordDict]:
    counted = {"num-examples": 100}
    return [RecordDict({"arrays": ArrayRecord([v]), "metrics": MetricRecord(counted)}) for v in vectors]


def _messages(contents: Iterable) -> list[Message]:
    with identity():
        return [Message(content=c, message_type="train", dst_node_id=i + 1) for i, c in enumerate(contents)]
