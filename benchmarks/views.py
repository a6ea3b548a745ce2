"""What views of an image gain: MobileNetV2 on whole image sets, one view against flips, sizes, deviations and stages.

Sets are packs of images (an .npz with `blob`, `lengths`, `labels` and `montage`; `groups` or `is_test` say which rows
are for testing). With packs and weights at hand, on a machine with a GPU::

    python benchmarks/views.py cifar10 --packs FOLDER --weights mobilenet_v2.safetensors --device cuda --json out.json

Heads and recipes are the library's defaults; nothing is chosen on test rows. `held_out` in the results is LDA on a
tenth of the training rows that it did not see.
"""

import argparse
import io
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine without pip runs it from the checkout

import on_gpu
from ghofl_benchmarks import made

from ghofl import encoders
from ghofl.encoders import Runtime, Views
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.heads.lda import fit_lda
from ghofl.heads.rules.composed import standardise
from ghofl.heads.spec import HeadSpec
from ghofl.heads.student import fit_student
from ghofl.moments import Layout
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.total import Total

NETWORK, SIZE, OWN = "torchvision:mobilenet_v2", 224, 1280
SCALES = (160, 224, 288)
# What is compared by LDA on held-out training rows, and on test rows.
CANDIDATES = ("", "flip", "160,224,288", "flip 160,224,288", "flip 160,224,288 mean+std", "flip 160,224,288 stages")
CANDIDATES += ("flip 160,224,288 mean+std stages",)
KERNELS = ("bicubic", "flip 160,224,288 bicubic", "flip 160,224,288 mean+std stages bicubic")
# What gets the whole list of heads, lifted features included.
LIFTED = ("", "flip 160,224,288", "flip 160,224,288 mean+std stages")
DEFAULT = "flip 160,224,288"
LIFT = 8192
BATCH = {"cpu": 32, "cuda": 512}


def read(packs: list[Path], limit: int = 0) -> dict[str, Any]:
    """The images of packs in order, as bytes or as encoded bytes, with labels as numbers and what is for testing."""
    images, labels, groups = [], [], []
    for path in packs:
        with np.load(path) as pack:
            ends = np.cumsum(pack["lengths"])
            blob = pack["blob"].tobytes()
            parts = [blob[end - n : end] for end, n in zip(ends, pack["lengths"], strict=True)]
            with ThreadPoolExecutor(16) as pool:
                images += [i for part in pool.map(_pixels if not pack["montage"] else _montage, parts) for i in part]
            labels.append(pack["labels"])
            groups.append(np.where(pack["is_test"], "val", "train") if "is_test" in pack.files else pack["groups"])
    names, y = np.unique(np.concatenate(labels), return_inverse=True)
    group = np.concatenate(groups)
    if limit:
        keep = np.random.default_rng(0).permutation(len(y))[:limit]
        images, y, group = [images[i] for i in keep], y[keep], group[keep]
    return {"images": images, "y": y.astype(np.int64), "group": group, "classes": tuple(map(str, names))}


def _pixels(data: bytes) -> list[np.ndarray]:
    from PIL import Image

    return [np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))]


def _montage(data: bytes, side: int = 32) -> list[np.ndarray]:
    (whole,) = _pixels(data)
    rows, columns = whole.shape[0] // side, whole.shape[1] // side
    return list(whole.reshape(rows, side, columns, side, 3).transpose(0, 2, 1, 3, 4).reshape(-1, side, side, 3))


def embed(images: list[np.ndarray], weights: Path, device: str, kernel: str = "") -> dict[tuple[int, bool], np.ndarray]:
    """The rows of every single view (size, is flipped) by the library's encoder: row, deviations, stages."""
    wanted = Views(pool="mean+std", stages=True, kernel=kernel)
    encoder: Any = encoders.load(NETWORK, Runtime(device), weights=weights, views=wanted)
    found = {}
    for preprocessing in Views(scales=SCALES).preprocessings(encoder.preprocessing):
        for flip in (False, True):
            x = np.empty((len(images), encoder.dim), dtype=np.float32)
            for group in _alike(images, BATCH[device.partition(":")[0]]):
                batch = np.stack([images[i] for i in group])
                x[group] = encoder.forward.view(preprocessing, batch[:, :, ::-1].copy() if flip else batch)
            found[preprocessing.size, flip] = x
    return found


def _alike(images: list[np.ndarray], size: int) -> list[list[int]]:
    """Batches of positions of equally large images."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, image in enumerate(images):
        groups.setdefault(image.shape, []).append(i)
    return [group[i : i + size] for group in groups.values() for i in range(0, len(group), size)]


def rows_of(views: Views, found: dict[tuple[int, bool], np.ndarray]) -> np.ndarray:
    """The rows of an encoder with these views, from those of single views."""
    keys = [(s, f) for s in views.scales or (SIZE,) for f in ((False, True) if views.flip else (False,))]
    parts = [slice(0, OWN), *([slice(OWN, 2 * OWN)] if views.pool == "mean+std" else [])]
    parts += [slice(2 * OWN, None)] if views.stages else []
    rows = [np.concatenate([found[key][:, part] for part in parts], axis=1) for key in keys]
    return np.asarray(np.sum(rows, axis=0, dtype=np.float32) / np.float32(len(keys)))


def lda_of(data: Dataset, device: str) -> float:
    """The accuracy of LDA alone, of square roots of features."""
    recipe = recipe_for(data, [HeadSpec.parse("lda")], power=0.5)
    features = Features.of(made.note(recipe))
    moments = on_gpu.moments_of(on_gpu.features_of(features, data.x_train), data.y_train, Layout.of(recipe), device)
    head = fit_lda(Gaussians.of_total(Total(recipe, moments), features))
    x = on_gpu.features_of(features, data.x_test) * features.unit
    return float((head.scores(x).argmax(1) == data.y_test).mean())


def heads_of(data: Dataset, device: str, lift: int = LIFT) -> dict[str, float]:
    """The accuracy of the head `best` with lifted features, and of its parts and LDA on the plain ones."""
    started = time.perf_counter()
    recipe = recipe_for(data, [HeadSpec.parse("best")], power=0.5, lift=lift)
    features = Features.of(made.note(recipe))
    q, t = on_gpu.features_of(features, data.x_train), on_gpu.features_of(features, data.x_test)
    moments = on_gpu.moments_of(q, data.y_train, Layout.of(recipe), device)
    gaussians = Gaussians.of_total(Total(recipe, moments), features)
    plain = gaussians.sketched().gaussians
    x = t * features.unit
    z = x[:, : data.x_train.shape[1]]
    print(f"  moments {time.perf_counter() - started:.1f} s", flush=True)
    with on_gpu.faster(device):
        scores = {
            "lda": fit_lda(plain).scores(z),
            "student": fit_student(plain).scores(z),
            "lifted lda": fit_lda(gaussians).scores(x),
        }
    # The head that `best` chooses for this recipe: blend(parts=lda+z.student).
    scores["best"] = standardise(scores["lifted lda"]) + standardise(scores["student"])
    print(f"  heads {time.perf_counter() - started:.1f} s", flush=True)
    return {name: float((s.argmax(1) == data.y_test).mean()) for name, s in scores.items()}


def measure(name: str, loaded: dict[str, Any], weights: Path, device: str, keep: Path | None = None) -> dict:
    """All candidates on one set; the rows of the default views are written to `keep`."""
    started = time.perf_counter()
    found = embed(loaded["images"], weights, device)
    seconds = time.perf_counter() - started
    print(f"{name}: {len(loaded['images'])} images, six views of 3,232 numbers in {seconds:.1f} s", flush=True)
    test, y = loaded["group"] == "val", loaded["y"]
    result: dict[str, Any] = {
        "set": name,
        "train": int((~test).sum()),
        "test": int(test.sum()),
        "embed_seconds": seconds,
    }
    result["candidates"] = {}
    if keep is not None:
        save(keep, rows_of(Views.parse(DEFAULT), found), loaded)
    for text in CANDIDATES:
        x = rows_of(Views.parse(text), found)
        own: dict[str, Any] = {"dim": x.shape[1], **_lda(x, y, test, loaded["classes"], device)}
        if text in LIFTED:
            own |= heads_of(Dataset(x[~test], y[~test], x[test], y[test], loaded["classes"]), device)
        result["candidates"][text or "one view"] = own
        print(f"  {text or 'one view'}: {own}, {time.perf_counter() - started:.1f} s", flush=True)
    return result | {"seconds": time.perf_counter() - started}


def save(path: Path, x: np.ndarray, loaded: dict[str, Any]) -> None:
    """Rows as bytes: 50 times their square roots, so that x = (stored / 50) ** 2."""
    small, test = np.clip(np.rint(50 * np.sqrt(np.maximum(x, 0))), 0, 255).astype(np.uint8), loaded["group"] == "val"
    parts = {"x_train": small[~test], "y_train": loaded["y"][~test], "x_test": small[test], "y_test": loaded["y"][test]}
    np.savez_compressed(path, allow_pickle=False, **parts, classes=np.array(loaded["classes"]))


def measure_kernels(loaded: dict[str, Any], weights: Path, device: str) -> dict[str, Any]:
    """The same with bicubic resizing."""
    found, test, y = embed(loaded["images"], weights, device, "bicubic"), loaded["group"] == "val", loaded["y"]
    out: dict[str, Any] = {}
    for text in KERNELS:
        x = rows_of(Views.parse(text), found)
        out[text] = {"dim": x.shape[1], **_lda(x, y, test, loaded["classes"], device)}
        if len(text.split()) > 1:
            out[text] |= heads_of(Dataset(x[~test], y[~test], x[test], y[test], loaded["classes"]), device)
        print(f"  {text}: {out[text]}", flush=True)
    return out


def _lda(x: np.ndarray, y: np.ndarray, test: np.ndarray, classes: tuple[str, ...], device: str) -> dict[str, float]:
    """LDA on a tenth of the training rows that it did not see, and on test rows."""
    train = np.flatnonzero(~test)
    order = np.random.default_rng(0).permutation(train)
    fit, held_out = order[len(order) // 10 :], order[: len(order) // 10]
    return {
        "held_out": lda_of(Dataset(x[fit], y[fit], x[held_out], y[held_out], classes), device),
        "lda": lda_of(Dataset(x[train], y[train], x[test], y[test], classes), device),
    }


def measure_domains(loaded: dict[str, Any], weights: Path, device: str) -> dict[str, Any]:
    """Every group of a set left out in turn, and tested on: LDA and Student."""
    found, y, out = embed(loaded["images"], weights, device), loaded["y"], {}
    for text in ("", "flip", "flip 160,224,288", "flip 160,224,288 mean+std stages"):
        x = rows_of(Views.parse(text), found)
        accuracy = {}
        for group in np.unique(loaded["group"]).tolist():
            test = loaded["group"] == group
            accuracy[group] = lda_of(Dataset(x[~test], y[~test], x[test], y[test], loaded["classes"]), device)
        order = np.random.default_rng(0).permutation(len(y))
        a, b = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
        accuracy["a fifth of all"] = lda_of(Dataset(x[a], y[a], x[b], y[b], loaded["classes"]), device)
        out[text or "one view"] = accuracy
        print(text, accuracy, flush=True)
    return out


def rates(images: list[np.ndarray], weights: Path, device: str, count: int) -> dict[str, float]:
    """Images per second of every quality, pixels to rows."""
    out, size = {}, BATCH[device.partition(":")[0]]
    for quality in ("paper", "quick", "default", "best"):
        encoder = encoders.load(NETWORK, Runtime(device), weights=weights, views=quality)
        batches = [images[i : i + size] for i in range(0, count, size)]
        list(encoder.encode(batches[:1]))
        started = time.perf_counter()
        list(encoder.encode(batches))
        out[quality] = count / (time.perf_counter() - started)
        print(f"  {device} {quality}: {out[quality]:,.0f} images/s", flush=True)
    return out


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "MobileNetV2 (ImageNet-1K) on all training rows of a set, power 0.5, everything else the library's default; "
        f"lifted features are {LIFT:,}, `best` is the blend of Student and lifted LDA. 'Held out' is LDA on a tenth of "
        "the training rows that it did not see: by it the defaults were chosen.\n",
        "| set | views | numbers per row | held out % | LDA % | Student % | lifted LDA % | best % |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results["sets"]:
        for views, own in {**one["candidates"], **one.get("kernels", {})}.items():
            cells = (
                f"{100 * own[k]:.2f}" if k in own else "" for k in ("held_out", "lda", "student", "lifted lda", "best")
            )
            lines.append(f"| {one['set']} | {views} | {own.get('dim', '')} | {' | '.join(cells)} |")
    lines += ["", "| images per second | paper | quick | default | best |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {where} | {' | '.join(f'{v:,.0f}' for v in rate.values())} |" for where, rate in results["rates"].items()
    ]
    if "domains" in results:
        lines += ["", "PACS, LDA; a domain is tested by a head of the three others.\n"]
        first = next(iter(results["domains"].values()))
        lines += ["| views | " + " | ".join(first) + " |", "|---|" + "---:|" * len(first)]
        lines += [
            f"| {views} | {' | '.join(f'{100 * v:.2f}' for v in own.values())} |"
            for views, own in results["domains"].items()
        ]
    return "\n".join(lines)


def main() -> None:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", help="the name that the packs of a set begin with")
    parser.add_argument("--what", default="measure", choices=["measure", "kernels", "domains", "rates"])
    parser.add_argument("--packs", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=Path, help="where to write the rows of the default views")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    loaded = read(sorted(options.packs.glob(f"{options.set}-*.npz")), options.limit)
    print(f"{options.set}: {len(loaded['y'])} images of {len(loaded['classes'])} classes", flush=True)
    if options.what == "measure":
        result: Any = measure(options.set, loaded, options.weights, options.device, options.keep)
    elif options.what == "kernels":
        result = measure_kernels(loaded, options.weights, options.device)
    elif options.what == "domains":
        result = measure_domains(loaded, options.weights, options.device)
    else:
        result = rates(loaded["images"], options.weights, options.device, 4096 if options.device != "cpu" else 128)
    print(json.dumps(result))
    if options.json:
        made.store(options.json, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
