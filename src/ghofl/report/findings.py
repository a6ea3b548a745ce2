"""The content of a report as plain values, gathered from totals, messages, heads and labelled rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import GhoflError
from ghofl.evaluation import Confusion, Metrics
from ghofl.features import Features
from ghofl.gaussians import Fisher, Gaussians
from ghofl.shapes import Int64, Num
from ghofl.simulation.baselines import heads_of
from ghofl.simulation.federation import Simulation, client_name
from ghofl.simulation.needs import total_for
from ghofl.wire.message import Message
from ghofl.wire.total import Total

BINS = 10
BLOCK = 4096
MOST_IN_VIEW = 60  # classes whose ellipses can still be distinguished
AROUND = np.sqrt(2.279)  # 68 % of a 2-D Gaussian lie within this many deviations


@dataclass(frozen=True, slots=True)
class SiteLine:
    """One site, as the roster has it; None for what a secure round or a release hides."""

    name: str
    rows: int | None = None
    bytes: int | None = None
    clipped: float | None = None
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HeadLine:
    """One head: the bytes a site sends for it, and its measures on labelled rows, as shares between 0 and 1."""

    name: str
    accuracy: float | None = None
    payload_bytes: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the accuracy on more rows of this kind."""
        found = self.metrics.get("accuracy_interval")
        return None if found is None else (found[0], found[1])


@dataclass(frozen=True, slots=True)
class Judgement:
    """One head on labelled rows: counts of (true, predicted), and per bin of confidence its mean, accuracy and rows."""

    head: str
    counts: tuple[tuple[int, ...], ...] = field(repr=False)
    calibration: tuple[tuple[float, float, int], ...]

    @property
    def accuracy(self) -> float:
        """The share of rows whose class was predicted."""
        return Confusion(np.array(self.counts)).accuracy


@dataclass(frozen=True, slots=True)
class View:
    """The classes in their two strongest Fisher directions: a mean and an outline per class, and the share they show."""

    names: tuple[str, ...]
    means: tuple[tuple[float, float], ...]
    outlines: tuple[tuple[tuple[float, float], ...], ...] = field(repr=False)
    share: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a report shows."""

    title: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    sites: tuple[SiteLine, ...]
    recipe_toml: str
    fingerprint: str
    guarantee: str
    heads: tuple[HeadLine, ...] = ()
    judged: Judgement | None = None
    view: View | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_total(cls, total: Total, title: str, messages: Iterable[Message] = ()) -> "Findings":
        """The findings of a total; with the messages in it, also who holds which classes."""
        by_id = {m.id: m for m in messages}
        sites = []
        for entry in total.roster:
            message = by_id.get(entry.id)
            size = None if message is None else len(message.to_bytes())
            held = () if message is None else tuple(int(n) for n in message.moments.counts)
            sites.append(SiteLine(entry.name, entry.rows, size, entry.clipped, held))
        view, notes = _view(total)
        counts = tuple(int(n) for n in total.moments.counts)
        return cls(
            title, total.recipe.classes, counts, tuple(sites), total.recipe.to_toml(), total.recipe.fingerprint,
            promise_of(total), view=view, notes=notes,
        )  # fmt: skip

    @classmethod
    def of_simulation(cls, result: Simulation, title: str) -> "Findings":
        """The findings of a simulation: heads by bytes and accuracy, the best one class by class, and who holds what."""
        data, numbers = result.federation.data, len(result.federation.data.classes)
        sites = tuple(
            SiteLine(
                client_name(i), len(part), counts=tuple(np.bincount(data.y_train[part], minlength=numbers).tolist())
            )
            for i, part in enumerate(result.federation.parts)
        )
        lines = tuple(
            HeadLine(name, found.accuracy, found.payload_bytes, found.metrics.to_dict())
            for name, found in result.heads.items()
        )
        specs = heads_of(result.federation.methods)
        best = max(specs, key=lambda name: result.heads[name].accuracy)
        judged = cls.of_total(result.total, title).judge_heads(
            [Classifier.fit(total_for(result.total, specs[best]), specs[best], warn=lambda _: None)],
            data.x_test,
            data.y_test,
        )
        assert judged.judged is not None
        return replace(judged, sites=sites, heads=lines, judged=replace(judged.judged, head=best))

    def judge_heads(
        self, classifiers: Sequence[Classifier], x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]
    ) -> "Findings":
        """The findings with heads judged on labelled rows, the best one class by class."""
        best, lines = self.judged, []
        for classifier in classifiers:
            parts = [classifier.predict_proba(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]
            probabilities = np.concatenate(parts)
            found, measures = judge(classifier.head, probabilities, y), Metrics.of(probabilities, y).to_dict()
            lines.append(HeadLine(found.head, found.accuracy, _payload(self.sites), measures))
            best = found if best is None or found.accuracy > best.accuracy else best
        notes = dict.fromkeys(f"{c.head}: {c.warning}" for c in classifiers if c.personal)
        return replace(self, heads=(*self.heads, *lines), judged=best, notes=(*self.notes, *notes))


def judge(head: str, probabilities: np.ndarray, y: Int64[np.ndarray, " n"]) -> Judgement:
    """How some probabilities compare with labels."""
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    counts = Confusion.of(y, predicted, probabilities.shape[1]).counts
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    mean = np.bincount(bins, confidence, minlength=BINS) / np.maximum(rows, 1)
    right = np.bincount(bins, predicted == y, minlength=BINS) / np.maximum(rows, 1)
    calibration = tuple((float(mean[b]), float(right[b]), int(rows[b])) for b in range(BINS) if rows[b])
    return Judgement(head, tuple(tuple(int(n) for n in row) for row in counts), calibration)


def promise_of(total: Total) -> str:
    """The promise of a total about single rows or clients, in words."""
    if total.guarantee is None:
        return "No noise was added to this total, so there is no differential privacy guarantee."
    return f"Noise was added: {total.guarantee}."


def _view(total: Total) -> tuple[View | None, tuple[str, ...]]:
    try:
        gaussians = Gaussians.of_total(total.for_heads(), Features.of(total.recipe))
        seen = np.flatnonzero(gaussians.counts > 0)
        if len(seen) < 3:
            return None, ("Fewer than three classes have rows: there is no plane to draw them in.",)
        fisher = Fisher.of_dim(gaussians, 2)
        plane = fisher.project(gaussians)
    except GhoflError as error:
        return None, (f"The classes cannot be drawn: {error}",)
    shown = seen[np.argsort(-gaussians.counts[seen], kind="stable")[:MOST_IN_VIEW]]
    names = tuple(total.recipe.classes[c] for c in shown)
    means = tuple((float(plane.means[c, 0]), float(plane.means[c, 1])) for c in shown)
    outlines = tuple(_outline(plane.means[c], _covariance(plane, int(c))) for c in shown)
    left = len(seen) - len(shown)
    notes = (f"The view shows the {MOST_IN_VIEW} largest classes; {left:,} more are not drawn.",) if left else ()
    return View(names, means, outlines, fisher.energy), notes


def _covariance(plane: Gaussians, c: int) -> np.ndarray:
    try:
        return plane.by_class(c)
    except GhoflError:
        return plane.pooled()


def _outline(mean: np.ndarray, covariance: np.ndarray) -> tuple[tuple[float, float], ...]:
    values, vectors = np.linalg.eigh(covariance)
    angles = np.linspace(0.0, 2.0 * np.pi, 49)
    circle = np.stack([np.cos(angles), np.sin(angles)]) * AROUND
    points = mean[:, None] + vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
    return tuple((float(a), float(b)) for a, b in points.T)


def _payload(sites: Sequence[SiteLine]) -> int | None:
    """The mean bytes of a message, where they are known."""
    sizes = [site.bytes for site in sites if site.bytes is not None]
    return round(sum(sizes) / len(sizes)) if sizes else None
