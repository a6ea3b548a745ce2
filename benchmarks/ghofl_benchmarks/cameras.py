"""Twenty cameras on CIFAR-10: every site sees its rows through a camera of its own, and so do its test rows.

First on a machine with a GPU, from archives of images (`pixels.read_pixels`), then on any with cores::

    python -m ghofl_benchmarks cameras ROWS --images FOLDER --weights mobilenet_v2.safetensors
    python -m ghofl_benchmarks cameras ROWS

A camera takes colour away, changes contrast, brightness and gamma, casts a colour, blurs and adds noise, all mildly.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from ghofl import Recipe
from ghofl.heads.spec import HeadSpec
from ghofl.simulation.partition import split
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.total import Total
from ghofl_benchmarks import report
from ghofl_benchmarks.alignment import aligned_head
from ghofl_benchmarks.data import DataMissingError, Missing
from ghofl_benchmarks.site_effects import fit_without_site_effects, offset_head
from ghofl_benchmarks.sites import ALL, OWN, Federation, accuracy, fit, spread

SITES, KNOWN, TESTED = 20, 16, 3000
ALPHAS = (None, 0.5, 0.1, 0.05)
LABELLED, DRAWS = (10, 30, 100), 10
DIM, BATCH = 1280, 1000  # numbers per row, images per batch
HEAD = HeadSpec.parse("lda(shrinkage=0.05)")
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MENDED, MOVED = "means without site effects", "means without site effects, own offset"
Images = np.ndarray  # bytes (n, height, width, 3)
# The same measured before by another implementation; a new site without an
# offset and by its labelled rows, −1 for unlabelled ones.
EXPECTED = {ALL: (77.9, 76.1, 71.6, 68.9), MOVED: (78.3, 78.0, 74.6, 70.7), MENDED: (76.8, 76.8, 74.1, 72.6)}
NEW = {0: 73.2, 10: 75.1, 30: 75.4, 100: 75.8, -1: 75.9}


def see(images: Images, camera: int, noise: np.random.Generator) -> Images:
    """Images through one of the cameras."""
    r = np.random.default_rng([7, camera])
    grey, contrast, gamma = r.uniform(0, 0.5), r.uniform(0.75, 1.2), np.exp(r.uniform(-0.3, 0.3))
    cast = r.uniform(0.85, 1.15, 3)
    blur = r.uniform(0.3, 0.7) if r.random() < 0.5 else 0.0
    level, brightness = r.uniform(0, 8), r.uniform(-15, 15)
    x = images.astype(np.float32)
    x = (1 - grey) * x + grey * x.mean(axis=3, keepdims=True)
    x = np.clip((x - 128) * contrast + 128 + brightness, 0, 255)
    x = 255 * (x / 255) ** np.float32(gamma) * cast.astype(np.float32)
    if blur:
        x = ndimage.gaussian_filter(x, (0, blur, blur, 0), mode="nearest")
    x = x + noise.normal(scale=level, size=x.shape).astype(np.float32)
    return np.clip(np.rint(x), 0, 255).astype(np.uint8)


def parts_of(y: np.ndarray, alpha: float | None) -> list[np.ndarray]:
    """The rows of every site."""
    return split(y, SITES, np.random.default_rng(1), alpha)


def embed(images: Path, weights: Path, device: str, folder: Path) -> None:
    """Write the rows of every split, and of the test through every camera."""
    from ghofl_benchmarks.pixels import read_pixels

    (x, y), (x_test, y_test) = (
        (pixels.transpose(0, 2, 3, 1), labels)
        for pixels, labels in (read_pixels(images, which) for which in ("train", "test"))
    )
    encode = _encoder(weights, device)
    folder.mkdir(parents=True, exist_ok=True)
    few = x_test[:TESTED]
    _save(folder / "labels.npz", y_train=y, y_test=y_test)
    _save(folder / "test.npz", x=[encode(see(few, k, np.random.default_rng(k))) for k in range(SITES)])
    for alpha in ALPHAS:
        rows = np.empty((len(y), DIM), dtype=np.uint8)
        for k, part in enumerate(parts_of(y, alpha)):
            rows[part] = encode(see(x[part], k, np.random.default_rng([8, k])))
        _save(folder / f"train-{alpha}.npz", x=rows)
        print(f"  rows of α = {alpha} are written", flush=True)


def _encoder(weights: Path, device: str) -> Callable[[Images], np.ndarray]:
    """Images to bytes, 100 times the square roots of their embeddings."""
    from ghofl import encoders
    from ghofl.encoders import Runtime

    found = encoders.load("torchvision:mobilenet_v2", Runtime(device), weights=weights)

    def encode(images: Images) -> np.ndarray:
        batches = [np.ascontiguousarray(images[i : i + BATCH]) for i in range(0, len(images), BATCH)]
        x = np.concatenate(list(found.encode(batches)))
        return np.clip(np.rint(100 * np.sqrt(np.maximum(x, 0))), 0, 255).astype(np.uint8)

    return encode


def _save(path: Path, **arrays: Any) -> None:
    np.savez(path, allow_pickle=False, **{name: np.asarray(a) for name, a in arrays.items()})


def _load(path: Path, name: str = "x") -> np.ndarray:
    if not path.is_file():
        how = (
            "python -m ghofl_benchmarks cameras ROWS --images FOLDER --weights FILE makes it, on a machine with a GPU."
        )
        raise DataMissingError(Missing(path.name, how))
    with np.load(path) as stored:
        found = stored[name]
    return np.square(found / np.float32(100)) if found.dtype == np.uint8 else found


def run(folder: Path, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result: all splits with cameras, and a new site."""
    result = report.new_result("cameras", "Twenty cameras on CIFAR-10", 1, arguments)
    y, few = _load(folder / "labels.npz", "y_train"), _load(folder / "labels.npz", "y_test")[:TESTED]
    seen = _load(folder / "test.npz")
    recipe = None
    for i, alpha in enumerate(ALPHAS):
        x = _load(folder / f"train-{alpha}.npz")
        recipe = recipe or _recipe(x, y)
        parts = parts_of(y, alpha)
        names = {f"site-{k}": (x[part], y[part]) for k, part in enumerate(parts)}
        federation = Federation(recipe, names, HEAD)
        _score(result, federation, [(one, few) for one in seen], alpha, i)
        if alpha is None:
            _new_sites(result, federation, [(one, few) for one in seen])
    result["notes"] = [notes()]
    return result


def notes() -> str:
    """What the figures are."""
    return (
        f"Accuracy in %, LDA with shrinkage 0.05 of square roots, mean over {SITES} sites; every site sees the first {TESTED:,} "
        "test images through its camera. 'Own mix' weighs classes as among the site's training rows. `expected` are figures of "
        "an earlier implementation. New sites: four of the twenty cameras in turn, unknown to the total of the other sixteen; "
        f"labelled rows are drawn {DRAWS} times."
    )


def _recipe(x: np.ndarray, y: np.ndarray) -> Recipe:
    return recipe_for(Dataset(x, y, x[:1], y[:1], CLASSES), [HEAD], power=0.5)


def _score(result: dict[str, Any], federation: Federation, tests: list, alpha: float | None, at: int) -> None:
    """Add every method for all classes, and the shared and the chosen head for the own mix."""
    mended, effects = fit_without_site_effects(federation.total, federation.messages.values(), HEAD)

    def site(k: int) -> list[float]:
        name, rows = f"site-{k}", tests[k]
        x, y = federation.rows[name]
        if not len(y):
            return [accuracy(head, rows) for head in (federation.shared, mended, mended)] + [np.nan] * 2
        moved, mix = offset_head(mended, effects, x, y), np.bincount(y, minlength=len(CLASSES)).astype(float)
        found = [accuracy(head, rows) for head in (federation.shared, moved, mended)]
        return [*found, *(accuracy(head, rows, mix) for head in (federation.shared, federation.own(name)))]

    means = np.nanmean(spread(site, SITES), axis=0)
    for j, method in enumerate((ALL, MOVED, MENDED)):
        _add(result, method, "all classes", means[j], alpha, EXPECTED[method][at], effects)
    for j, method in enumerate((ALL, OWN)):
        _add(result, method, "own mix", means[3 + j], alpha)


def _new_sites(result: dict[str, Any], federation: Federation, tests: list) -> None:
    """Add what a site gains that is not in the total, by a few labelled rows or by unlabelled ones."""

    def group(first: int) -> np.ndarray:
        new = range(first * (SITES - KNOWN), (first + 1) * (SITES - KNOWN))
        messages = [m for k, m in enumerate(federation.messages.values()) if k not in new]
        total = Total.of(messages, federation.recipe)
        shared, (mended, effects) = fit(total, HEAD), fit_without_site_effects(total, messages, HEAD)
        found = []
        for k in new:
            (x, y), rows = federation.rows[f"site-{k}"], tests[k]
            one = [accuracy(head, rows) for head in (shared, mended)]
            for count in LABELLED:
                drawn = [np.random.default_rng([9, k, i]).permutation(len(y))[:count] for i in range(DRAWS)]
                one.append(float(np.mean([accuracy(offset_head(mended, effects, x[d], y[d]), rows) for d in drawn])))
            mix = np.bincount(y, minlength=len(CLASSES)) / len(y)
            found.append([*one, accuracy(aligned_head(total, HEAD, x, mix), rows)])
        return np.mean(found, axis=0)

    by_group = np.array(spread(group, SITES // (SITES - KNOWN)))
    labelled = {f"own offset of {n} labelled rows": NEW.get(n) for n in LABELLED}
    methods = {ALL: None, MENDED: NEW[0], **labelled, "unlabelled rows, mix known": NEW[-1]}
    for (method, known), figures in zip(methods.items(), by_group.T, strict=True):
        _add(result, method, "a new site", figures.mean(), None, known)
        _add(result, method, "the last four as new sites", figures[-1], None, known)


def _add(
    result: dict[str, Any], method: str, case: str, mean: float, alpha: float | None, expected: float | None = None,
    effects: Any = None,
) -> None:  # fmt: skip
    row = {
        "method": method,
        "case": case,
        "alpha": "∞" if alpha is None else alpha,
        "accuracy": round(100 * float(mean), 2),
    }
    row |= {"expected": expected, "ratio": None if effects is None else float(f"{effects.ratio:.2g}")}
    result["rows"].append(row)
    print("  ", {k: v for k, v in row.items() if v is not None}, flush=True)
