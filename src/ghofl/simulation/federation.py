"""One simulated federation: every client's rows become one message, through bytes, and the total becomes many heads.

Under a recipe with privacy.secure, clients send masked vectors of one secure round instead, and may vanish.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl import secure
from ghofl.classifier import HeadSpec
from ghofl.custody.cohorts import check_cohort
from ghofl.features import Clipping, Features
from ghofl.moments import Layout
from ghofl.notebook import Printable, abbreviate
from ghofl.outbox import Embedded, Outgoing, outgoing
from ghofl.privacy import NoiseStream, entry_bound, round_moments, shifts_of
from ghofl.recipe import Privacy, Recipe
from ghofl.simulation.baselines import Baseline, Method, judge_baseline, notes_on_baselines
from ghofl.simulation.cohort import Cohort, SecureRound
from ghofl.simulation.dataset import Dataset
from ghofl.simulation.needs import need_of, notes_on, total_for, with_statistics
from ghofl.simulation.partition import Parts, count_empty
from ghofl.simulation.results import HeadResult, Judge, judge_head
from ghofl.wire.envelope import encode
from ghofl.wire.message import Message
from ghofl.wire.total import Aggregator, Total

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Rows over clients, the recipe that they follow, and the heads and baselines to compare."""

    data: Dataset
    parts: Parts = field(repr=False)
    recipe: Recipe
    methods: Mapping[str, Method]
    cohort: Cohort = field(default_factory=Cohort)
    seed: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)  # how it was asked for, as plain values
    notes: tuple[str, ...] = ()  # what was chosen for the recipe, and why

    def run(
        self, progress: Progress | None = None, stream: NoiseStream | None = None, judge: Judge = judge_head
    ) -> "Simulation":
        """Every client sends one message; the server adds them up, and `judge` fits and scores each head."""
        recipe, report = self.recipe, progress or (lambda *_: None)
        specs = {name: method for name, method in self.methods.items() if isinstance(method, HeadSpec)}
        sites = _Sites(self.data, self.parts, recipe, {need_of(spec, recipe) for spec in specs.values()}, report)
        if recipe.privacy.secure:
            exact, secure_round = sites.secure_total(self.cohort, stream)
        else:
            exact, secure_round = sites.total(stream), None
        total = exact.release(stream)
        results = {}
        for i, (name, method) in enumerate(self.methods.items()):
            report("heads", i, len(self.methods))
            if isinstance(method, Baseline):
                results[name] = judge_baseline(method, self.data, self.parts, self.seed)
            else:
                payload = sites.payload(need_of(method, recipe), secure_round)
                results[name] = replace(judge(total_for(total, method), method, self.data), payload_bytes=payload)
        report("heads", len(self.methods), len(self.methods))
        notes = (*notes_on(total, specs), *notes_on_baselines(self.methods, recipe.privacy != Privacy()))
        return Simulation(self, total, sites.clipping, results, secure_round, notes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation(Printable):
    """The results of a simulation."""

    federation: Federation
    total: Total
    clipping: Clipping
    heads: dict[str, HeadResult]
    secure_round: SecureRound | None = None
    notes: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.federation.parts)

    @property
    def empty_clients(self) -> int:
        """How many of them have no rows."""
        return count_empty(self.federation.parts)

    def _facts(self) -> dict[str, object]:
        best = max(self.heads, key=lambda name: self.heads[name].accuracy, default="")
        return {
            "clients": self.clients,
            "rows": f"{self.total.moments.rows:,}",
            "heads": abbreviate(list(self.heads)),
            **({"best": f"{best}, accuracy {100 * self.heads[best].accuracy:.2f} %"} if best else {}),
            "total": f"{self.total.moments.sha256[:12]}…",
        }

    def to_dict(self) -> dict[str, Any]:
        """The results as plain values."""
        return {
            "total_sha256": self.total.moments.sha256,
            "clients": self.clients,
            "empty_clients": self.empty_clients,
            "rows": self.total.moments.rows,
            "clipped_share": self.clipping.share,
            "recipe": self.total.recipe.fingerprint,
            "grid": {"bits": self.total.recipe.grid.bits, "scale": self.total.recipe.grid.scale},
            "guarantee": None if self.total.guarantee is None else self.total.guarantee.to_dict(),
            "small_classes": None if self.total.small_classes is None else self.total.small_classes.revealed,
            "secure": None if self.secure_round is None else self.secure_round.to_dict(),
            "notes": list(self.notes),
            "heads": {
                name: {
                    **result.metrics.to_dict(),
                    "payload_bytes": result.payload_bytes,
                    "rounds": result.rounds,
                    "fit_seconds": result.fit_seconds,
                    "ms_per_sample": result.ms_per_sample,
                }
                for name, result in self.heads.items()
            },
        }

    def to_rows(self) -> dict[str, dict[str, Any]]:
        """A dictionary for each head, with one number per measure; thresholds are left out."""
        told, out = self.to_dict(), {}
        run = {key: told[key] for key in ("rows", "empty_clients", "clipped_share", "recipe", "total_sha256")}
        for name, measures in told["heads"].items():
            low, high = measures["accuracy_interval"]
            plain = {key: value for key, value in measures.items() if not isinstance(value, list)}
            out[name] = {
                "head": str(self.federation.methods[name]),
                **plain,
                "accuracy_low": low,
                "accuracy_high": high,
                **run,
            }
        return out


class _Sites:
    """The clients of a simulation, and how many bytes they send for each set of statistics."""

    def __init__(
        self, data: Dataset, parts: Parts, recipe: Recipe, needs: set[tuple[str, ...]], report: Progress
    ) -> None:
        self._data, self._parts, self._recipe, self._report = data, parts, recipe, report
        self._features = Features.of(recipe)
        self._sizes: dict[tuple[str, ...], list[int]] = {need: [] for need in needs}
        self._alone = {need: with_statistics(recipe, need) for need in self._sizes}
        self.clipping = Clipping()

    def total(self, stream: NoiseStream | None) -> Total:
        """The total of messages, each of which went through bytes."""
        aggregator = Aggregator(self._recipe)
        for left in self._outgoing(stream):
            message = left.message
            assert message is not None, "a plain recipe gives messages"
            sent = message.to_bytes()
            if left.counted.moments.rows:
                for need, own in self._alone.items():
                    self._sizes[need].append(_size(own, message, self._features, len(sent)))
            aggregator.add(Message.from_bytes(sent, self._recipe, is_own=True))
        return aggregator.total()

    def secure_total(self, cohort: Cohort, stream: NoiseStream | None) -> tuple[Total, SecureRound]:
        """The total of one secure round, in which the cohort's clients vanish."""
        recipe = self._recipe
        vectors = {  # the noise of a client is in its vector before it is masked
            client_name(client): left.vector(stream) for client, left in enumerate(self._outgoing(stream))
        }
        bound = entry_bound(recipe)
        agreed = cohort.plan(len(vectors), bound)
        check_cohort(recipe, agreed)
        outcome = secure.simulate_round(vectors, bound, cohort.draw_drops(list(vectors)), agreed)
        sent, received = (
            float(np.mean([counts[name] for name in outcome.survivors])) for counts in (outcome.sent, outcome.received)
        )
        return (
            Total.of_round(outcome.total, recipe, outcome.survivors),
            SecureRound(agreed, outcome.survivors, sent, received),
        )

    def payload(self, need: tuple[str, ...], secure_round: SecureRound | None) -> int:
        """Mean bytes that a client sends when only these statistics are asked for."""
        if secure_round is None:
            sizes = self._sizes[need]
            return round(sum(sizes) / max(1, len(sizes)))
        fewer = Layout.of(self._recipe).entries - Layout.of(self._alone[need]).entries
        return round(secure_round.sent_bytes - fewer * secure_round.plan.ring.width)

    def _outgoing(self, stream: NoiseStream | None) -> Iterator[Outgoing]:
        for client, rows in enumerate(self._parts):
            self._report("clients", client, len(self._parts))
            embedded = Embedded(self._data.x_train[rows], self._data.y_train[rows])
            left = outgoing(self._recipe, embedded, client_name(client), stream=stream, features=self._features)
            self.clipping += left.counted.clipping
            yield left
        self._report("clients", len(self._parts), len(self._parts))


def client_name(client: int) -> str:
    """The name of a client by its number."""
    return f"client-{client:05d}"


def _size(own: Recipe, message: Message, features: Features, whole: int) -> int:
    """How many bytes a message of `whole` bytes would have with only the statistics of another recipe."""
    layout = Layout.of(own)
    if layout == message.moments.layout:
        return whole
    part = round_moments(message.moments.restrict(layout, features.sketch), shifts_of(own))
    header = {"kind": "message", "recipe": message.fingerprint, "id": message.id, "site": message.site}
    return len(encode(part, header | {"clipped": message.clipped}))
