"""The whole method on digits: skewed clients, the same total for any split, exact unlearning."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ghofl.errors import MissingExtraError
from ghofl.evaluation.confusion import interval_text
from ghofl.features import Features
from ghofl.heads.best import best_head
from ghofl.moments import Layout
from ghofl.outbox import Embedded, outgoing
from ghofl.recipe import Recipe
from ghofl.simulation import partition
from ghofl.simulation.baselines import bytes_per_round
from ghofl.simulation.dataset import Dataset
from ghofl.simulation.federation import Federation, Simulation
from ghofl.simulation.needs import all_heads
from ghofl.simulation.simulate import recipe_for
from ghofl.wire.message import Message
from ghofl.wire.total import Total

ALPHA = 0.1
CLIENTS = 10
LEFT: Any = {"title_justify": "left", "caption_justify": "left"}
HASH = 32


def run(console: Console) -> Simulation:
    """Print the demo, and return what it simulated, for a page about it."""
    data = digits()
    parts = _parts(data, CLIENTS)
    specs = all_heads(sketch=True)
    recipe = recipe_for(data, specs.values(), sketch=16)
    console.print(
        f"\nghofl: {len(data.y_train):,} digits over {CLIENTS} clients, classes skewed by "
        f"Dirichlet({ALPHA}). Each client sends one message.\n",
        highlight=False,
    )
    with console.status("clients compute moments, the server builds heads …"):
        result = Federation(data, parts, recipe, specs).run()
    console.print(_heads_table(result, data, best_head(Layout.of(recipe), recipe).spec))
    with console.status("the same rows over 1, 10 and 100 clients …"):
        totals = {k: Total.of(_messages(data, recipe, _parts(data, k)), recipe) for k in (1, 10, 100)}
    console.print(_invariance_table(totals))
    _unlearning(data, recipe, console)
    return result


def digits() -> Dataset:
    """Scikit-learn's 1,797 handwritten digits as 64-pixel rows, a fifth of them for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError("the demo's digits come from scikit-learn: pip install 'ghofl[demo]'") from None
    x, y = load_digits(return_X_y=True)
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    return Dataset(x[train], y[train], x[test], y[test], tuple(map(str, range(10))))


def _parts(data: Dataset, clients: int) -> partition.Parts:
    return partition.dirichlet_by_class(data.y_train, clients, ALPHA, np.random.default_rng(clients))


def _messages(data: Dataset, recipe: Recipe, parts: partition.Parts) -> list[Message]:
    features = Features.of(recipe)
    rows = (Embedded(data.x_train[part], data.y_train[part]) for part in parts)
    left = (outgoing(recipe, own, f"client-{i}", features=features) for i, own in enumerate(rows))
    return [each.message for each in left if each.message is not None]


def _heads_table(result: Simulation, data: Dataset, best: str) -> Table:
    table = Table(title="One message per client, one classifier", **LEFT)
    table.add_column("head", no_wrap=True)
    table.add_column("accuracy %, and\n95 % interval", justify="right", no_wrap=True)
    table.add_column("from 50 %", min_width=10, no_wrap=True)
    table.add_column("sent per client", justify="right")
    table.add_column("as rounds\nof FedAvg", justify="right")
    of_round = bytes_per_round(data.x_train.shape[1], len(data.classes))
    for name, head in result.heads.items():
        bar = "█" * round(10 * max(0.0, head.accuracy - 0.5) / 0.5)
        rounds = head.payload_bytes / of_round
        accuracy = f"{100 * head.accuracy:.1f} ({interval_text(head.metrics.confusion.accuracy_interval)})"
        shown = f"{name} (best)" if name == best else name
        table.add_row(shown, accuracy, Text(bar, style="green"), f"{head.payload_bytes:,} B", f"{rounds:.1f}")
    table.caption = (
        f"'best' is {best} here, the head that is built unless you name another.\n"
        f"FedAvg of a linear head of the same pixels sends {of_round:,} B per client in each of many rounds."
    )
    return table


def _invariance_table(totals: dict[int, Total]) -> Table:
    hashes = {total.moments.sha256 for total in totals.values()}
    assert len(hashes) == 1, "the same rows gave different totals"
    table = Table(title="However the rows are split, the total is the same", **LEFT)
    table.add_column("clients", justify="right")
    table.add_column(f"sha256 of the total (first {HASH} digits)")
    for clients, total in totals.items():
        table.add_row(str(clients), total.moments.sha256[:HASH])
    return table


def _unlearning(data: Dataset, recipe: Recipe, console: Console) -> None:
    messages = _messages(data, recipe, _parts(data, CLIENTS))
    everyone, without = Total.of(messages, recipe), Total.of(messages[:3] + messages[4:], recipe)
    after = everyone - messages[3]
    assert after == without, "unlearning was not exact"
    table = Table(title="A client leaves: subtracting its message is exact unlearning", **LEFT)
    table.add_column("total")
    table.add_column("rows", justify="right")
    table.add_column(f"sha256 (first {HASH} digits)")
    for name, total in (
        ("all ten clients", everyone),
        ("minus client-3", after),
        ("made without client-3", without),
    ):
        table.add_row(name, f"{total.moments.rows:,}", total.moments.sha256[:HASH])
    console.print(table)
