"""The whole story in one function: rows over clients, every message through bytes, one total, many heads.

Under a recipe with privacy.secure, clients send masked vectors of one secure round instead, and may vanish.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import secure
from ghofl.classifier import Classifier, HeadSpec
from ghofl.custody.cohorts import check_cohort
from ghofl.errors import RecipeError
from ghofl.evaluation import Metrics
from ghofl.features import Clipping, Features
from ghofl.heads import HEADS
from ghofl.heads.spec import BEST, DEFAULT_HEAD, AnyHead
from ghofl.moments import Layout
from ghofl.outbox import Embedded, Outgoing, outgoing
from ghofl.planning.assembly import Assembly, assemble
from ghofl.planning.public import PublicRows
from ghofl.privacy import NoiseStream, entry_bound, round_moments, shifts_of
from ghofl.recipe import Encoder, Privacy, Recipe, RecipeOptions, Schema, Table
from ghofl.recipe.option import takes
from ghofl.shapes import Num
from ghofl.simulation.baselines import (
    Baseline,
    Method,
    heads_of,
    judge_baseline,
    notes_on_baselines,
    parse_methods,
)
from ghofl.simulation.cohort import Cohort, SecureRound
from ghofl.simulation.dataset import Dataset, load, source_of, split_keywords
from ghofl.simulation.needs import need_of, notes_on, total_for, with_statistics
from ghofl.simulation.partition import Parts, count_empty, split
from ghofl.simulation.results import HeadResult, Simulation
from ghofl.statistics import statistics_to_store
from ghofl.wire.envelope import encode
from ghofl.wire.message import Message
from ghofl.wire.total import Aggregator, Total

Progress = Callable[[str, int, int], None]


def simulate(
    data: Any,
    parts: Parts | int = 10,
    recipe: Recipe | RecipeOptions | None = None,
    heads: AnyHead | Sequence[AnyHead] | Mapping[str, Method] = DEFAULT_HEAD,
    progress: Progress | None = None,
    cohort: Cohort | None = None,
    stream: NoiseStream | None = None,
    judge: Callable[[Total, HeadSpec, Dataset], HeadResult] | None = None,
    *,
    alpha: float | None = None,
    seed: int = 0,
    **more: Any,
) -> Simulation:
    """Every client computes its moments and sends one message; the server adds them up, fits and scores heads.

    `data` is whatever `source_of` takes: ``(x, y)``, ``((x_train, y_train), (x_test, y_test))``, a file, or a DataFrame with
    its `label_column`; `classes` name class numbers. `parts` are the rows of each client, or how many clients there are,
    with a Dirichlet skew of `alpha`. `recipe` is by default the smallest that the heads can be built from; its options may be
    given by name, ``epsilon=4.0, unit_length=True``. `heads` are names or values, and may have baselines that are trained in
    rounds on the same clients, such as ``["best", MY_HEAD, "fedavg(rounds=50)"]``.

    Everything that the recipe's [privacy] asks for is done. `cohort` is for recipes with privacy.secure; `stream` is
    the source of noise, by default the operating system's entropy. `judge` fits and scores a head, by default
    `judge_head`.

    Guarantees
    ----------
    A head is fitted to what it would ask for alone, so which heads are beside it changes nothing; where that cannot be
    (noise, rounding, 'best', or a head that takes what others need), `notes` say so.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> x = rng.normal(size=(60, 4)) + 3.0 * np.eye(3, 4)[y]
    >>> result = simulate((x, y), 5, heads="lda", classes=["cat", "dog", "bird"])
    >>> result.total.moments.rows, result.heads["lda"].accuracy > 0.9
    (42, True)
    """
    methods = heads if isinstance(heads, Mapping) else parse_methods(heads)
    source, options = split_keywords(more)
    recipe = _options_of(options, seed) if recipe is None else _check_whole(recipe, options)
    epsilon = recipe.privacy.epsilon if isinstance(recipe, Recipe) else recipe.epsilon
    loaded, table = load(source_of(data, **source, is_private=epsilon is not None), seed)
    parts = split(loaded.y_train, parts, np.random.default_rng(seed), alpha) if isinstance(parts, int) else parts
    if not isinstance(recipe, Recipe):
        asked = (cohort or Cohort()).fill_in(recipe, len(parts))
        recipe = assembly_for(loaded, heads_of(methods).values(), asked, table=table, clients=len(parts)).recipe
    return _simulate(loaded, parts, recipe, methods, seed, progress, cohort, stream, judge or judge_head)


def _options_of(given: Mapping[str, Any], seed: int) -> RecipeOptions:
    return RecipeOptions(**{"seed": seed, **given})


def _check_whole(recipe: Recipe | RecipeOptions, options: Mapping[str, Any]) -> Recipe | RecipeOptions:
    if options:
        raise RecipeError(f"{next(iter(options))} is an option of a recipe, and a recipe is given; put it into that.")
    return recipe


def _simulate(
    data: Dataset, parts: Parts, recipe: Recipe, methods: Mapping[str, Method], seed: int, progress: Progress | None,
    cohort: Cohort | None, stream: NoiseStream | None, judge: Callable[[Total, HeadSpec, Dataset], HeadResult],
) -> Simulation:  # fmt: skip
    report, specs = progress or (lambda *_: None), heads_of(methods)
    sites = _Sites(data, parts, recipe, {need_of(spec, recipe) for spec in specs.values()}, report)
    if recipe.privacy.secure:
        exact, secure_round = sites.secure_total(cohort or Cohort(), stream)
    else:
        exact, secure_round = sites.total(stream), None
    total = exact.release(stream)
    results = {}
    for i, (name, method) in enumerate(methods.items()):
        report("heads", i, len(methods))
        if isinstance(method, Baseline):
            results[name] = judge_baseline(method, data, parts, seed)
        else:
            payload = sites.payload(need_of(method, recipe), secure_round)
            results[name] = replace(judge(total_for(total, method), method, data), payload_bytes=payload)
    report("heads", len(methods), len(methods))
    notes = (*notes_on(total, specs), *notes_on_baselines(methods, recipe.privacy != Privacy()))
    return Simulation(total, len(parts), count_empty(parts), sites.clipping, results, secure_round, notes)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationRequest(RecipeOptions):
    """What `recipe_for` takes: every option of a recipe, the rows (as `simulate` takes them) and the heads."""

    data: Any = field(kw_only=False)
    heads: AnyHead | Iterable[AnyHead] = field(kw_only=False)
    classes: Iterable[str] | None = None
    label_column: str = ""
    schema: Schema | str | Path | None = None
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None


@takes(SimulationRequest, RecipeError)
def recipe_for(asked: SimulationRequest) -> Recipe:
    """The smallest recipe that these heads can be built from; `keep` sends plain class covariances beside a lift.

    The head 'best' alone gets the best proposal within the default budget. The grid is fitted to the training rows, or
    to `public` ones where they are given; `PublicRows` teach a centre and a projection besides. Under an epsilon
    it is never fitted to training rows: without public ones it follows from the unit length of rows, or from the radius.
    """
    source = source_of(
        asked.data, asked.classes, asked.label_column, asked.schema, is_private=asked.epsilon is not None
    )
    specs = heads_of(parse_methods(asked.heads)).values()
    data, table = load(source, asked.seed)
    return assembly_for(data, specs, asked, asked.public, table).recipe


def assembly_for(
    data: Dataset,
    specs: Iterable[HeadSpec],
    options: RecipeOptions,
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None,
    table: Table | None = None,
    clients: int | None = None,
) -> Assembly:
    """The recipe of a simulation: these options, with the statistics that the heads need where they do not say.

    The head 'best' alone asks for the strongest there is: in a given space, or else the best proposal within the default
    budget. Beside other heads it takes the statistics that they need. So many `clients` say how many rows of a table one has.
    """
    specs = list(specs)
    if table is not None and clients is not None:
        table = replace(table, site_rows=max(1, len(data.y_train) // max(1, clients)))
    if options.budget is None and options.statistics is None:
        options = _wanting_the_best(options) if all(s.name == BEST for s in specs) else _serving(options, specs)
    encoder = Encoder(dim=data.x_train.shape[1]) if table is None else table.encoder
    return assemble(options, data.classes, encoder, public=public, protected=data.x_train, table=table)


def _wanting_the_best(options: RecipeOptions) -> RecipeOptions:
    if options.lift is not None:
        return replace(options, statistics=("B",), keep=options.keep or options.sketch is None)
    if options.sketch is not None:
        return replace(options, statistics=("B",))
    return replace(options, statistics=("S",)) if options.project is not None else options


def _serving(options: RecipeOptions, specs: Sequence[HeadSpec]) -> RecipeOptions:
    return replace(options, statistics=_statistics(specs, beside_sketch=options.sketch is not None or options.keep))


def all_heads(preset: str = "default", lift: bool = False, sketch: bool = False) -> dict[str, HeadSpec]:
    """Every head, without those that need a sketch when there is none, or a matrix per class of lifted features."""
    specs = {name: HeadSpec.parse(name, preset) for name in HEADS}
    return {
        name: spec
        for name, spec in specs.items()
        if not (lift and all("S" in need for need in spec.needs)) and not ("Z" in spec.needs[0] and not sketch)
    }


def _statistics(specs: Sequence[HeadSpec], beside_sketch: bool = False) -> tuple[str, ...]:
    first = {"B"} if beside_sketch else set()
    first |= {s for spec in specs if len(spec.needs) == 1 for s in spec.needs[0] if s != "Z"}
    for spec in specs:  # heads with a choice use what others need already
        if not any(set(need) <= first or "S" in first for need in spec.needs):
            first |= set(spec.needs[0]) - {"Z"}
    return statistics_to_store(tuple(sorted(first)))


def _size(own: Recipe, message: Message, features: Features, whole: int) -> int:
    """How many bytes a message of `whole` bytes would have with only the statistics of another recipe."""
    layout = Layout.of(own)
    if layout == message.moments.layout:
        return whole
    part = round_moments(message.moments.restrict(layout, features.sketch), shifts_of(own))
    header = {"kind": "message", "recipe": message.fingerprint, "id": message.id, "site": message.site}
    return len(encode(part, header | {"clipped": message.clipped}))


def judge_head(total: Total, spec: HeadSpec, data: Dataset) -> HeadResult:
    """Fit a head to a total and score it on the test rows; `payload_bytes`, not known here, is 0."""
    started = time.perf_counter()
    classifier = Classifier.fit(total, spec)
    fitted = time.perf_counter()
    probabilities = classifier.predict_proba(data.x_test)
    scored = time.perf_counter()
    metrics = Metrics.of(probabilities, data.y_test)
    per_sample = 1000.0 * (scored - fitted) / max(1, len(data.y_test))
    return HeadResult(metrics, 0, fitted - started, per_sample)
