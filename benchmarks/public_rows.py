"""What public rows are worth: CIFAR-10 with CIFAR-100 as public, and the reverse; BANKING77 and CLINC150 likewise.

    python benchmarks/run.py public_rows                    # about half an hour on one core
    python benchmarks/public_rows.py banking77 clinc150     # these sets, beside what is stored

Sites send counts and sums only (head nearest_mean) or B too (head lda), in the space that public rows teach or without
them: there rows have unit length around the public mean, as in the part `privacy`, and projections are random. Ten
clients, central noise, unit record, add-remove, δ = 10⁻⁵, three draws of noise a figure. Square roots of MobileNetV2's
features, MiniLM's as they are, CLINC150 without its out-of-scope rows. The shrinkage of the public metric and the radius
were chosen on held-out training rows; the test set chooses nothing.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import data
import few_shots
import numpy as np
from ghofl_benchmarks import made

from ghofl import HEADS, Features, Gaussians, HeadSpec, Message, Moments, Privacy, Recipe, Total
from ghofl.features import usual_length
from ghofl.outbox import Embedded, count
from ghofl.planning.public import PublicRows, usual_public_length
from ghofl.privacy import NoiseStream
from ghofl.simulation import partition
from ghofl.simulation.simulate import Dataset, recipe_for

PAIRS = {"cifar10": "cifar100", "cifar100": "cifar10", "banking77": "clinc150", "clinc150": "banking77"}
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA, SEEDS, CLIENTS = 1e-5, 3, 10
FULL = 0  # all dimensions of the encoder
# By head, the dimensions with public rows, and without them.
WITH_PUBLIC = {"nearest_mean": (64, 128, 256, FULL), "lda": (64, 128, 256, 512)}
WITHOUT = {"nearest_mean": (FULL,), "lda": (64, 128, 256, 512, FULL)}


def run(names: Sequence[str] = tuple(PAIRS)) -> dict:
    """Every figure of the tables."""
    return {"accuracy": [row for name in names for row in results(name)]}


def loaded(name: str) -> Dataset:
    """A set as its encoder gives it."""
    if name not in data.CLASSES:
        return few_shots.arrays_of(name)
    return Dataset(**data.embeddings(name), classes=tuple(map(str, range(data.CLASSES[name]))))


def results(name: str) -> Iterator[dict]:
    """The accuracies of one set, its partner being public."""
    try:
        dataset, other = loaded(name), loaded(PAIRS[name])
    except FileNotFoundError as error:
        print(f"{name}: left out, {error}")
        return
    labelled, unlabelled = PublicRows(other.x_train, other.y_train), PublicRows(other.x_train)
    for head, dims in WITH_PUBLIC.items():
        for dim in (d for d in dims if d < dataset.x_train.shape[1]):
            yield from measured(name, dataset, head, dim, "labelled", public_recipe(dataset, head, dim, labelled))
    recipe = public_recipe(dataset, "nearest_mean", 128, unlabelled)
    yield from measured(name, dataset, "nearest_mean", 128, "unlabelled", recipe)
    for head, dims in WITHOUT.items():
        for dim in (d for d in dims if d < dataset.x_train.shape[1]):
            recipe = plain_recipe(dataset, head, dim, other.x_train)
            yield from measured(name, dataset, head, dim, "none", recipe, noisy=dim == FULL)


def public_recipe(dataset: Dataset, head: str, dim: int, rows: PublicRows) -> Recipe:
    """The recipe that public rows teach."""
    specs = HeadSpec.parse_list(head).values()
    power = 0.5 if rows.x.min() >= 0 else None  # MobileNetV2's features end in a relu
    recipe = recipe_for(dataset, specs, power=power, project=None if dim == FULL else dim, public=rows)
    return replace(recipe, privacy=Privacy(radius=usual_public_length(recipe, rows)))


def plain_recipe(dataset: Dataset, head: str, dim: int, public: np.ndarray) -> Recipe:
    """Unit length around the mean of public rows, and random signs: the strongest there was before."""
    specs, anchor = HeadSpec.parse_list(head).values(), public.mean(axis=0, dtype=np.float64)
    recipe = recipe_for(
        dataset, specs, project=None if dim == FULL else dim, anchor=anchor, unit_length=True, public=public
    )
    return replace(recipe, privacy=Privacy(radius=usual_length(recipe)))


def measured(
    name: str, dataset: Dataset, head: str, dim: int, public: str, recipe: Recipe, noisy: bool = True
) -> Iterator[dict]:
    """Accuracies of one message: without noise and a radius, and with noise by ε."""
    told = {"set": name, "head": head, "dim": dim or dataset.x_train.shape[1], "public": public}
    exact = replace(recipe, privacy=Privacy())
    moments = counted(dataset, exact)
    test = Features.of(exact).values(dataset.x_test)
    size = len(Message.of(moments[0], exact, "client-0").to_bytes())
    yield _row(told, exact, size, None, [accuracy(total(moments, exact), head, test, dataset.y_test)])
    if not noisy:
        return
    moments = counted(dataset, recipe)
    test = Features.of(recipe).values(dataset.x_test)
    for epsilon in EPSILONS:
        noised = replace(recipe, privacy=replace(recipe.privacy, epsilon=epsilon, delta=DELTA))
        streams = [NoiseStream(f"{name} {head} {dim} {public} {epsilon} {seed}".encode()) for seed in range(SEEDS)]
        yield _row(
            told,
            noised,
            size,
            epsilon,
            [accuracy(total(moments, noised, s), head, test, dataset.y_test) for s in streams],
        )


def counted(dataset: Dataset, recipe: Recipe) -> list[Moments]:
    """The moments of every client."""
    parts = partition.iid(dataset.y_train, CLIENTS, np.random.default_rng(0))
    features = Features.of(recipe)
    return [count(features, Embedded(dataset.x_train[p], dataset.y_train[p])).moments for p in parts]


def total(moments: list[Moments], recipe: Recipe, stream: NoiseStream | None = None) -> Total:
    """The released total of all clients."""
    messages = (Message.of(m, recipe, f"client-{i}", stream) for i, m in enumerate(moments))
    return Total.of(messages, recipe).release(stream)


def accuracy(found: Total, head: str, test: np.ndarray, labels: np.ndarray) -> float:
    """Test accuracy of the head of a total."""
    gaussians = Gaussians.of_total(found.for_heads(), Features.of(found.recipe))
    return float(np.mean(HEADS[head].fit(gaussians).predict(test) == labels))


def _row(told: dict, recipe: Recipe, size: int, epsilon: float | None, accuracies: list[float]) -> dict:
    print(told, epsilon, f"{100 * np.mean(accuracies):.2f}", flush=True)
    return {**told, "bytes": size, "epsilon": epsilon, "accuracies": accuracies, "recipe": recipe.fingerprint}


def table(result: dict) -> str:
    """Accuracy without noise, and by ε; one table a set."""
    parts = []
    for name in (n for n in PAIRS if any(r["set"] == n for r in result["accuracy"])):
        rows: dict[tuple, dict] = {}
        for row in (r for r in result["accuracy"] if r["set"] == name):
            key = (row["head"], row["public"], row["dim"], row["bytes"])
            rows.setdefault(key, {})[row["epsilon"]] = row["accuracies"]
        names = (
            "head",
            "public rows",
            "dimensions",
            "a client sends (bytes)",
            "no noise",
            *(f"ε = {e:g}" for e in EPSILONS),
        )
        lines = ["| " + " | ".join(names) + " |", "|---|---|" + "---:|" * (len(names) - 2)]
        for (head, public, dim, size), found in rows.items():
            cells = [f"{100 * np.mean(found[e]):.1f}" if e in found else "" for e in (None, *EPSILONS)]
            lines.append("| " + " | ".join([head, public, str(dim), f"{size:,}", *cells]) + " |")
        parts.append(f"### {name}, {PAIRS[name]} being public\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


if __name__ == "__main__":
    stored = Path(__file__).with_name("results") / "public_rows.json"
    wanted = sys.argv[1:] or list(PAIRS)
    kept = [row for row in json.loads(stored.read_text())["accuracy"] if row["set"] not in wanted]
    from run import as_text

    made.code()
    made.store(stored, as_text({"accuracy": [*kept, *run(wanted)["accuracy"]]}), has_older_rows=bool(kept))
