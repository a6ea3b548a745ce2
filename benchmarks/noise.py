"""How fast noise is drawn, and how the budget is best shared between blocks.

::

    python benchmarks/noise.py speed      draws per second on one core, beside numpy's own (not private) normal draws
    python benchmarks/noise.py shares     LDA on synthetic rows at ε = 1, for several shares of the budget
    python benchmarks/noise.py shrinkage EMBEDDINGS.npz PUBLIC.npz [N:A:B]
                                          LDA on held-out training rows around the mean of public ones, by shrinkage

Set OPENBLAS_NUM_THREADS=1 for one core. Figures are the best of five (speed), the mean of three (shares), one draw
(shrinkage).
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from ghofl.features import Features
from ghofl.moments import Layout, Moments
from ghofl.privacy import (
    NoiseStream,
    add_noise,
    clip_rows,
    discrete_gaussian,
    grid_radius,
    noise_plan,
    noise_shrinkage,
    repair,
)
from ghofl.recipe import Encoder, Grid, Privacy, Recipe, Transform

DRAWS = 1_000_000
SIGMAS = (1.0, 1.5, 3.7306, 64.0, 65.0, 1e3, 12345.678, 1e5, 1e6, 1e7)
SHARES = ((1, 1, 1), (1, 3, 6), (1, 5, 5), (1, 6, 3), (1, 6, 1), (1, 20, 10), (1, 50, 25))
FACTORS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # of the library's λ
PRIVACY = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)
DIM, ROWS, RADIUS = 128, 20_000, 200


def best(run: Callable[[], object], times: int = 5) -> float:
    """The shortest of a few timings, in seconds."""
    seconds = []
    for _ in range(times):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return min(seconds)


def speed() -> None:
    """Millions of draws per second for each σ, and how many times slower than numpy that is."""
    stream, rng = NoiseStream(), np.random.default_rng()
    print("| σ | discrete Gaussian, M draws/s | numpy rint(normal), M draws/s | ratio |\n|---|---|---|---|")
    for sigma in SIGMAS:
        ours = DRAWS / best(lambda sigma=sigma: discrete_gaussian(sigma, DRAWS, stream)) / 1e6
        numpys = DRAWS / best(lambda sigma=sigma: np.rint(rng.normal(0, sigma, DRAWS)).astype(np.int64)) / 1e6
        print(f"| {sigma:g} | {ours:.1f} | {numpys:.1f} | {numpys / ours:.1f} |")


def rows(classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Integer rows around class means, with the decaying spectrum that embeddings have."""
    spectrum = np.arange(1, DIM + 1) ** -0.5
    means = rng.normal(size=(classes, DIM)) * spectrum * (0.25 if classes < 50 else 0.4)
    y = rng.integers(0, classes, 2 * ROWS)
    x = means[y] + rng.normal(size=(2 * ROWS, DIM)) * spectrum
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return clip_rows(np.rint(x * RADIUS).astype(np.int16), RADIUS), y


def lda_accuracy(blocks: dict[str, np.ndarray], sigma: float, x: np.ndarray, y: np.ndarray) -> float:
    """Accuracy in percent of LDA on repaired moments, shrunk for noise of off-diagonal deviation σ."""
    n, a = np.maximum(blocks["N"], 1.0), blocks["A"]
    scatter = blocks["B"] - (a.T / n) @ a
    dim = len(scatter)
    level, amount = np.trace(scatter) / dim, noise_shrinkage(sigma, dim, np.trace(scatter))
    covariance = ((1 - amount) * scatter + (amount * level + 1e-3 * level) * np.eye(dim)) / n.sum()
    means = a / n[:, None]
    w = np.linalg.solve(covariance, means.T)
    scores = x @ w + np.log(n / n.sum()) - 0.5 * np.einsum("cd,dc->c", means, w)
    return 100 * float(np.mean(scores.argmax(axis=1) == y))


def shares() -> None:
    """Accuracy on synthetic rows by share of the budget, for 10 and for 100 classes."""
    print("| N : A : B | 10 classes | 100 classes |\n|---|---|---|")
    data = {c: rows(c, np.random.default_rng(c)) for c in (10, 100)}
    exact = {c: Moments.of(x[:ROWS], y[:ROWS], Layout(c, DIM, bound=RADIUS)) for c, (x, y) in data.items()}
    clean = [lda_accuracy(repair(exact[c]), 0.0, x[ROWS:], y[ROWS:]) for c, (x, y) in data.items()]
    print("| no noise |", " | ".join(f"{cell:.1f}" for cell in clean), "|")
    for share in SHARES:
        cells = []
        for c, (x, y) in data.items():
            plan = noise_plan(exact[c].layout, RADIUS, PRIVACY, shares=dict(zip("NAB", map(float, share), strict=True)))
            sigma = plan.deviation("B", off_diagonal=True)
            noisy = [repair(add_noise(exact[c], plan, NoiseStream(b"share %d" % k)), RADIUS) for k in range(3)]
            cells.append(np.mean([lda_accuracy(blocks, sigma, x[ROWS:], y[ROWS:]) for blocks in noisy]))
        print(f"| {' : '.join(map(str, share))} |", " | ".join(f"{cell:.1f}" for cell in cells), "|")


def shrinkage(embeddings: str, public: str, share: str = "1:6:3") -> None:
    """Accuracy on held-out training rows by ε and shrinkage; both files hold x_train and y_train as uint8 roots."""
    parts = dict(zip("NAB", map(float, share.split(":")), strict=True))
    anchor = np.load(public)["x_train"].mean(axis=0) / 100.0
    data = np.load(embeddings)
    y = data["y_train"].astype(np.int64)
    recipe = Recipe(
        classes=tuple(map(str, range(int(y.max()) + 1))),
        encoder=Encoder(dim=len(anchor)),
        transform=Transform(unit_length=True, anchor=tuple(anchor.tolist())),
        grid=Grid(bits=8, scale=600.0),
    )
    features = Features.of(recipe)
    radius = grid_radius(1.0, features.unit)
    x = clip_rows(features.rows(data["x_train"] / 100.0)[0], radius)
    held = slice(4 * len(y) // 5, None)
    exact = Moments.of(x[: held.start], y[: held.start], Layout.of(recipe))
    print(
        "| ε |",
        " | ".join(f"λ = {0.5 * factor:g} σ√d" for factor in FACTORS),
        "|\n" + "|---" * (len(FACTORS) + 1) + "|",
    )
    for epsilon in (0.5, 1.0, 2.0, 8.0):
        plan = noise_plan(exact.layout, radius, replace(PRIVACY, epsilon=epsilon), shares=parts)
        blocks = repair(add_noise(exact, plan, NoiseStream(b"shrinkage")), radius)
        sigma = plan.deviation("B", off_diagonal=True)
        cells = [lda_accuracy(blocks, factor * sigma, x[held], y[held]) for factor in FACTORS]
        print(f"| {epsilon:g} |", " | ".join(f"{cell:.1f}" for cell in cells), "|")


if __name__ == "__main__":
    commands = {"speed": speed, "shares": shares, "shrinkage": shrinkage}
    name, *arguments = sys.argv[1:] or ["speed"]
    if name not in commands:
        sys.exit(f"unknown benchmark {name!r}; write one of {', '.join(commands)}.")
    commands[name](*arguments)
