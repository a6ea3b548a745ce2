"""What privacy costs: accuracy of noisy totals of CIFAR-10 by ε, head, projection and who adds the noise.

    python benchmarks/run.py privacy       # about ten minutes on one core

Rows have unit length around CIFAR-100's mean, which is public here; grid and radius come from CIFAR-100 and from the
dimension alone. Ten clients of 5,000 rows, unit record, add-remove, δ = 10⁻⁵, five draws of noise a figure. Moments are
computed once and only noise is drawn again. Nothing is chosen by the test set: shrinkage follows from the noise.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import data
import numpy as np
from ghofl_benchmarks.baselines.compared import spec_of

from ghofl import Features, Gaussians, Limits, Message, Moments, Privacy, Recipe, Total
from ghofl.features import usual_length
from ghofl.outbox import Embedded, count
from ghofl.privacy import NoiseStream, as_vector, entry_bound, protect
from ghofl.secure import Ring
from ghofl.simulation import partition
from ghofl.simulation.simulate import Cohort, Dataset, recipe_for

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SEEDS = 5
CLIENTS = 10
PROJECTIONS = (None, 512, 256, 128, 64)
MECHANISMS = ("central", "distributed", "local")
# The heads that share a message, and the largest space in which one matrix per class is worth its noise.
MESSAGES = (("lda", "ridge", "spherical"), ("nb",), ("rda", "qda"))
LARGEST_BY_CLASS = 256
SHIFTS = (0, 4, 8, 12, 14, 16, 18)
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "accuracy-against-epsilon.svg"


def run() -> dict:
    """Every figure of the tables."""
    dataset, public = _dataset(), data.embeddings("cifar100")["x_train"]
    rounding, rows = list(_rounding(dataset, public)), []
    for project in PROJECTIONS:
        for heads in MESSAGES:
            if "qda" in heads and (project or 1280) > LARGEST_BY_CLASS:
                continue
            federation = Federation(dataset, public, project, heads)
            rows += list(federation.results())
    return {"accuracy": rows, "rounding": rounding}


class Federation:
    """Ten clients with one message: their exact moments, and the accuracy of heads of noisy totals of them."""

    def __init__(
        self, dataset: Dataset, public: np.ndarray, project: int | None, heads: tuple[str, ...], bits: int = 8
    ) -> None:
        self.project, self.heads = project, heads
        anchor = public.mean(axis=0, dtype=np.float64)
        specs = [spec_of(head) for head in heads]
        options = {"project": project, "anchor": anchor, "unit_length": True, "public": public, "bits": bits}
        self.recipe = recipe_for(dataset, specs, **options)
        self.recipe = replace(self.recipe, privacy=Privacy(radius=usual_length(self.recipe)))
        self.features = Features.of(self.recipe)
        parts = partition.iid(dataset.y_train, CLIENTS, np.random.default_rng(0))
        self.moments = [count(self.features, Embedded(dataset.x_train[p], dataset.y_train[p])).moments for p in parts]
        self.test, self.labels = self.features.values(dataset.x_test), dataset.y_test

    def results(self) -> Iterator[dict]:
        """Accuracies without noise, and for each mechanism and ε."""
        yield from self.row(self.recipe, "none", None, [self.accuracies(self.total(self.recipe))])
        for mechanism in MECHANISMS:
            for epsilon in EPSILONS:
                recipe = self.private(mechanism, epsilon)
                streams = (
                    NoiseStream(f"{mechanism} {epsilon} {self.project} {seed}".encode()) for seed in range(SEEDS)
                )
                found = [self.accuracies(self.total(recipe, s)) for s in streams]
                yield from self.row(recipe, mechanism, epsilon, found)

    def row(
        self, recipe: Recipe, mechanism: str, epsilon: float | None, found: list[dict[str, float]]
    ) -> Iterator[dict]:
        """One result per head."""
        for head in self.heads:
            accuracies = [accuracy[head] for accuracy in found]
            result = {"projection": self.project, "head": head, "noise": mechanism, "epsilon": epsilon}
            print(result, f"{100 * np.mean(accuracies):.2f}", flush=True)
            yield {**result, "accuracies": accuracies, "recipe": recipe.fingerprint}

    def private(self, mechanism: str, epsilon: float, rounding: int | None = None) -> Recipe:
        """The recipe with noise."""
        cohort = Cohort().honest_survivors(CLIENTS) if mechanism == "distributed" else 1
        privacy = Privacy(
            radius=self.recipe.privacy.radius, epsilon=epsilon, delta=DELTA, noise=mechanism,
            secure=mechanism == "distributed", min_cohort=cohort, rounding=rounding,
        )  # fmt: skip
        return replace(self.recipe, privacy=privacy)

    def total(self, recipe: Recipe, stream: NoiseStream | None = None) -> Total:
        """A released total; of distributed noise, the sum that secure aggregation gives to the bit."""
        if recipe.privacy.secure:
            vector = sum(as_vector(protect(moments, recipe, stream), recipe) for moments in self.moments)
            return Total.of_round(vector, recipe, [f"client-{i}" for i in range(CLIENTS)])
        messages = (Message.of(moments, recipe, f"client-{i}", stream) for i, moments in enumerate(self.moments))
        return Total.of(messages, recipe).release(stream)

    def accuracies(self, total: Total) -> dict[str, float]:
        """Test accuracy of every head."""
        gaussians = Gaussians.of_total(total.for_heads(), self.features)
        return {
            name: float(np.mean(spec_of(name).head.fit(gaussians).predict(self.test) == self.labels))
            for name in self.heads
        }


def _dataset() -> Dataset:
    return Dataset(**data.embeddings("cifar10"), classes=tuple(map(str, range(10))))


def _rounding(dataset: Dataset, public: np.ndarray) -> Iterator[dict]:
    """LDA by bits left out of B: without noise, and at ε = 1, where rounding costs sensitivity."""
    federation = Federation(dataset, public, None, ("lda",))
    for shift in SHIFTS:
        plain = replace(federation.recipe, privacy=replace(federation.recipe.privacy, rounding=shift))
        noisy = federation.private("central", 1.0, shift)
        found = [
            federation.accuracies(federation.total(noisy, NoiseStream(b"rounding %d" % k)))["lda"] for k in range(SEEDS)
        ]
        result = {
            "shift": shift,
            "accuracy": federation.accuracies(federation.total(plain))["lda"],
            "accuracies_at_1": found,
            "message_bytes": _bytes(federation.moments[0], plain),
            "ring_bits": Ring.for_sum(CLIENTS, entry_bound(replace(plain, limits=Limits(max_rows=5000)))).bits,
        }
        print(result, flush=True)
        yield result


def _bytes(moments: Moments, recipe: Recipe) -> int:
    return len(Message.of(moments, recipe, "client-0").to_bytes())


def table(results: dict) -> str:
    """The results as Markdown."""
    parts = []
    for mechanism in MECHANISMS:
        parts.append(f"\n### {mechanism.capitalize()} noise\n")
        parts.append("| projection | head | no noise | " + " | ".join(f"ε = {e:g}" for e in EPSILONS) + " |")
        parts.append("|---|---|---:|" + "---:|" * len(EPSILONS))
        for project in PROJECTIONS:
            for head in (name for heads in MESSAGES for name in heads):
                cells = _cells(results["accuracy"], project, head, mechanism)
                if cells:
                    parts.append(f"| {project or 'none'} | {head} | " + " | ".join(cells) + " |")
    parts += ["\n### Rounding of B, LDA without projection\n"]
    parts += ["| low bits left out | no noise | ε = 1 | message bytes | ring bits |", "|---:|---:|---:|---:|---:|"]
    parts += [
        f"| {r['shift']} | {100 * r['accuracy']:.2f} | {_spread(r['accuracies_at_1'])} | {r['message_bytes']:,} "
        f"| {r['ring_bits']} |"
        for r in results["rounding"]
    ]
    return "\n".join(parts)


def _cells(rows: list[dict], project: int | None, head: str, mechanism: str) -> list[str]:
    mine = [r for r in rows if (r["projection"], r["head"]) == (project, head)]
    clean = [f"{100 * r['accuracies'][0]:.2f}" for r in mine if r["noise"] == "none"]
    by_epsilon = {r["epsilon"]: _spread(r["accuracies"]) for r in mine if r["noise"] == mechanism}
    return clean + [by_epsilon[epsilon] for epsilon in EPSILONS if epsilon in by_epsilon]


def _spread(accuracies: list[float]) -> str:
    return f"{100 * np.mean(accuracies):.1f} ± {100 * np.std(accuracies, ddof=1):.1f}"


def figure(results: dict, path: Path = FIGURE) -> None:
    """Accuracy of LDA against ε, by who adds the noise and by projection."""
    from ghofl_benchmarks import pictures

    if not pictures.can_draw():
        return
    with pictures.canvas(path, 2, (4.2, 3.8)) as (left, right):
        for mechanism in ("central", "distributed", "local"):
            _curve(left, results, None, "lda", mechanism, mechanism)
        for project in PROJECTIONS:
            _curve(right, results, project, "lda", "central", f"to {project}" if project else "none")
        clean = next(
            r for r in results["accuracy"] if (r["projection"], r["head"], r["noise"]) == (None, "lda", "none")
        )
        level = 100 * clean["accuracies"][0]
        for axes, title in ((left, "who adds the noise"), (right, "central noise, by projection")):
            axes.axhline(level, color=pictures.COLOURS["ceiling"], linewidth=1, linestyle="--")
            axes.text(0.47, level + 0.25, f"no noise {level:.1f}", color=pictures.COLOURS["ceiling"], fontsize=8)
            axes.set_xscale("log", base=2)
            axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
            axes.set_xlabel("ε, for one record at δ = 10⁻⁵")
            axes.set_ylabel("CIFAR-10 test accuracy %")
            axes.set_ylim(70.5, 88.2)
            axes.set_title(f"LDA, {title}")
        left.legend(title="noise", loc="lower right")
        right.set_xlim(0.42, 18)
        for line in right.containers:
            x, y = (values[-1] for values in line[0].get_data())
            right.text(x * 1.12, y, line.get_label(), color=line[0].get_color(), va="center", fontsize=8)


def _curve(axes: Any, results: dict, project: int | None, head: str, mechanism: str, label: str) -> None:
    mine = {
        r["epsilon"]: 100 * np.array(r["accuracies"])
        for r in results["accuracy"]
        if (r["projection"], r["head"], r["noise"]) == (project, head, mechanism)
    }
    means = [mine[epsilon].mean() for epsilon in EPSILONS]
    spread = [mine[epsilon].std(ddof=1) for epsilon in EPSILONS]
    axes.errorbar(EPSILONS, means, spread, label=label, marker="o", capsize=2.5)
