"""The whole story in one readable function: rows over clients, every message through bytes, one total, many heads."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Int64, Num

from ghofl.aggregation import Aggregator, Total
from ghofl.classifier import Classifier, HeadSpec, is_possible
from ghofl.errors import EmbeddingsError, HeadError
from ghofl.evaluation import Confusion
from ghofl.features import Clipping, Features, calibrated
from ghofl.heads import HEADS
from ghofl.message import Message
from ghofl.moments import Layout, Moments, MomentsBuilder
from ghofl.partition import Parts, empty
from ghofl.recipe import Encoder, Grid, Lift, Projection, Recipe, Sketch, Transform, stored

Progress = Callable[[str, int, int], None]
SITE_BLOCK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test rows of one experiment, with labels as class numbers."""

    x_train: Num[np.ndarray, "n dim"] = field(repr=False)
    y_train: Int64[np.ndarray, " n"] = field(repr=False)
    x_test: Num[np.ndarray, "m test_dim"] = field(repr=False)
    y_test: Int64[np.ndarray, " m"] = field(repr=False)
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.x_train.shape[1] != self.x_test.shape[1]:
            raise EmbeddingsError(
                f"training rows have {self.x_train.shape[1]} numbers and test rows {self.x_test.shape[1]}; "
                "encode both with one encoder."
            )


@dataclass(frozen=True, slots=True)
class HeadResult:
    """How one head did: accuracy on the test rows, mean bytes a client sends for it, and its time."""

    accuracy: float
    payload_bytes: int
    fit_seconds: float
    ms_per_sample: float


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """What a simulation found."""

    total: Total
    clients: int
    empty_clients: int
    clipping: Clipping
    heads: dict[str, HeadResult]

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
            "heads": {
                name: {
                    "accuracy": result.accuracy,
                    "payload_bytes": result.payload_bytes,
                    "fit_seconds": result.fit_seconds,
                    "ms_per_sample": result.ms_per_sample,
                }
                for name, result in self.heads.items()
            },
        }


def simulate(
    data: Dataset, parts: Parts, recipe: Recipe, specs: Mapping[str, HeadSpec], progress: Progress | None = None
) -> Simulation:
    """Every client computes its moments and sends one message; the server adds them up, fits and scores heads.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60, dtype=np.int64) % 3
    >>> x = rng.normal(size=(60, 4)) + 3.0 * np.eye(3, 4)[y]
    >>> data = Dataset(x, y, x, y, ("a", "b", "c"))
    >>> specs = HeadSpec.parse_list("lda")
    >>> recipe = recipe_for(data, specs.values())
    >>> result = simulate(data, [np.arange(30), np.arange(30, 60)], recipe, specs)
    >>> result.total.moments.rows, result.heads["lda"].accuracy > 0.9
    (60, True)
    """
    report = progress or (lambda *_: None)
    features, aggregator, clipping = Features.of(recipe), Aggregator(recipe), Clipping()
    payloads: dict[tuple[str, ...], list[int]] = {need_of(spec, recipe): [] for spec in specs.values()}
    for client, rows in enumerate(parts):
        report("clients", client, len(parts))
        moments, clipped = site_moments(features, data.x_train[rows], data.y_train[rows])
        clipping += clipped
        sent = Message.of(moments, recipe, site=f"client-{client:05d}").to_bytes()
        if len(rows):
            _measure(payloads, moments, features, len(sent))
        aggregator.add(Message.from_bytes(sent, recipe))
    report("clients", len(parts), len(parts))
    total = aggregator.total()
    results = {}
    for i, (name, spec) in enumerate(specs.items()):
        report("heads", i, len(specs))
        sizes = payloads[need_of(spec, recipe)]
        results[name] = _judge(total, spec, data, round(sum(sizes) / max(1, len(sizes))))
    report("heads", len(specs), len(specs))
    return Simulation(total, len(parts), empty(parts), clipping, results)


def site_moments(
    features: Features, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], progress: Progress | None = None
) -> tuple[Moments, Clipping]:
    """What a site does: its embeddings and class numbers become moments, a block of rows at a time."""
    report = progress or (lambda *_: None)
    layout = Layout.of(features.recipe)
    builder, clipping = MomentsBuilder(layout, features.sketch if layout.sketch else None), Clipping()
    for start in range(0, len(x), SITE_BLOCK):
        q, clipped = features.rows(x[start : start + SITE_BLOCK])
        builder.add(q, y[start : start + SITE_BLOCK])
        clipping += clipped
        report("rows", min(start + SITE_BLOCK, len(x)), len(x))
    return builder.moments(), clipping


def recipe_for(
    data: Dataset,
    specs: Iterable[HeadSpec],
    *,
    power: float = 1.0,
    bits: int = Grid().bits,
    scale: float | None = None,
    project: int | None = None,
    lift: int | None = None,
    sketch: int | None = None,
    seed: int = 0,
) -> Recipe:
    """The smallest recipe that these heads can be built from, with its grid fitted to the training rows."""
    recipe = Recipe(
        classes=data.classes,
        encoder=Encoder(dim=data.x_train.shape[1]),
        statistics=_statistics(list(specs)),
        transform=Transform(power=power),
        grid=Grid(bits=bits, scale=Grid().scale if scale is None else scale),
        projection=None if project is None else Projection(dim=project, seed=seed),
        lift=None if lift is None else Lift(dim=lift, seed=seed),
        sketch=None if sketch is None else Sketch(dim=sketch, seed=seed),
    )
    return calibrated(recipe, data.x_train, fit_scale=scale is None)


def all_heads(preset: str = "default", lift: bool = False, sketch: bool = False) -> dict[str, HeadSpec]:
    """Every head, without those that need a sketch when there is none, or a matrix a class of lifted features."""
    specs = {name: HeadSpec.parse(name, preset) for name in HEADS}
    return {
        name: spec
        for name, spec in specs.items()
        if not (lift and "S" in spec.needs[0]) and not ("Z" in spec.needs[0] and not sketch)
    }


def need_of(spec: HeadSpec, recipe: Recipe) -> tuple[str, ...]:
    """The statistics a client would send for this head alone."""
    layout = Layout.of(recipe)
    if not is_possible(spec, layout, recipe):
        raise HeadError(f"head {spec.name!r} needs {' and '.join(spec.needs[0])}, which this recipe does not ask for.")
    return next(need for need in spec.needs if all(layout.has(s) for s in need))


def _statistics(specs: Sequence[HeadSpec]) -> tuple[str, ...]:
    first = {s for spec in specs if len(spec.needs) == 1 for s in spec.needs[0] if s != "Z"}
    for spec in specs:  # heads with a choice take what is there already
        if not any(set(need) <= first or "S" in first for need in spec.needs):
            first |= set(spec.needs[0]) - {"Z"}
    return stored(tuple(sorted(first)))


def _measure(payloads: Mapping[tuple[str, ...], list[int]], moments: Moments, features: Features, whole: int) -> None:
    """Note, for every set of statistics, how many bytes a message with only those would have."""
    recipe = features.recipe
    for need, sizes in payloads.items():
        sketch = recipe.sketch if "Z" in need else None
        own = replace(recipe, statistics=stored(tuple(s for s in need if s != "Z")), sketch=sketch)
        if Layout.of(own) == moments.layout:
            sizes.append(whole)
        else:
            part = moments.restricted(Layout.of(own), features.sketch)
            sizes.append(len(Message.of(part, own, site="client-00000").to_bytes()))


def _judge(total: Total, spec: HeadSpec, data: Dataset, payload: int) -> HeadResult:
    started = time.perf_counter()
    classifier = Classifier.fit(total, spec)
    fitted = time.perf_counter()
    predicted = classifier.predict(data.x_test)
    scored = time.perf_counter()
    accuracy = Confusion.of(data.y_test, predicted, len(data.classes)).accuracy
    per_sample = 1000.0 * (scored - fitted) / max(1, len(data.y_test))
    return HeadResult(accuracy, payload, fitted - started, per_sample)
