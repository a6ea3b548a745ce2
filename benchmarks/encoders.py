"""Samples per second of an encoder: the loop one writes first against what `ghofl embed` runs.

On another machine, with the weights and images beside it::

    python benchmarks/encoders.py --device cuda --weights mobilenet_v2.safetensors --images FOLDER --json out.json
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import data
import numpy as np
import ratios
import torch
from torchvision import models
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine without pip runs it from the checkout

from ghofl_benchmarks import made

from ghofl import encoders
from ghofl.compute.threads import prefetch
from ghofl.encoders import Runtime, cosines
from ghofl.encoders.resize import IMAGENET_MEAN, IMAGENET_STD
from ghofl.errors import EncoderError
from ghofl.rows import Samples, load_samples

WEIGHTS = data.FOLDER / "weights" / "mobilenet_v2.safetensors"
IMAGES = data.FOLDER / "images" / "cifar10-2k" / "test"
BATCH = {"cpu": 32, "cuda": 256}
ROUNDS = 9
BYTES = "Pillow's bytes"  # --fit pillow-squash: the plain loop's own resize, rounded as it rounds


def run(device: str = "cpu", weights: Path = WEIGHTS, images: Path = IMAGES, count: int = 0) -> dict:
    """Images per second from files to embeddings, every way in turn, several rounds; medians, and cosines to plain."""
    samples = load_samples(str(images))
    samples = samples.only(np.arange(min(len(samples), count or (96 if device == "cpu" else 1000))))
    ways = {"plain loop": _plain(device, weights)} | _ours(device, weights)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    rows, refused = {}, {}
    for name, way in list(ways.items()):  # the first round warms up
        try:
            rows[name] = way(samples)
        except EncoderError as error:
            refused[name] = str(error)
            del ways[name]
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.perf_counter()
            way(samples)
            seconds[name].append(time.perf_counter() - started)
    eager = {fit: _eager(device, weights, samples, fit) for fit in ("squash", "pillow-squash")}
    result = {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} CPU threads",
        "images": len(samples),
        "ways": {
            name: {
                "images_per_second": len(samples) / float(np.median(seconds[name])),
                # Ways take turns, so that a busy moment of the machine slows all of a round alike.
                "times_plain": float(np.median(np.array(seconds["plain loop"]) / np.array(seconds[name]))),
                "median_cosine_to_plain": float(np.median(cosines(rows[name], rows["plain loop"]))),
                "median_cosine_to_fp32": float(np.median(cosines(rows[name], eager[_fit(name)]))),
            }
            for name in ways
        },
        "refused": refused,
    }
    print(table(result), flush=True)
    return result | {"measures": ratios.as_stored(measures(result))}


def measures(result: dict) -> list[ratios.Measure]:
    """Seconds per image of every way against the plain loop's."""
    found, plain = [], result["ways"]["plain loop"]["images_per_second"]
    for name, way in result["ways"].items():
        if name != "plain loop":
            times = (1 / plain / way["times_plain"],), (1 / plain,)
            found.append(ratios.Measure(f"encoders {name}", f"{name}, an image", "the plain loop", *times))
    return found


def table(result: dict) -> str:
    """One device as Markdown."""
    lines = [
        f"MobileNetV2 on {result['device']}, {result['images']} PNG files of 32 pixels to rows, resized to 224.\n",
        "| way | images/s | × plain | median cosine to plain | to eager fp32, same resize |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, way in result["ways"].items():
        lines.append(
            f"| {name} | {way['images_per_second']:,.0f} | {way['times_plain']:.1f} "
            f"| {way['median_cosine_to_plain']:.6f} | {way['median_cosine_to_fp32']:.6f} |"
        )
    lines += [f"\n{name} is refused: {why}" for name, why in result["refused"].items()]
    return "\n".join([*lines, *([f"\n{result['note']}"] if "note" in result else [])])


def _network(weights: Path) -> torch.nn.Module:
    from ghofl.encoders import checkpoints

    network = models.mobilenet_v2(weights=None)
    checkpoints.load_weights(network, checkpoints.read(weights), "classifier.1", weights)
    network.classifier = torch.nn.Identity()
    return network.eval()


def _plain(device: str, weights: Path) -> Callable[[Samples], np.ndarray]:
    """A DataLoader whose dataset opens and resizes with PIL, and a network in eager fp32."""
    network = _network(weights).to(device)
    steps = [v2.Resize((224, 224)), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    transform = v2.Compose([*steps, v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)])

    class Files(torch.utils.data.Dataset):
        def __init__(self, names: list[str]) -> None:
            self.names = names

        def __len__(self) -> int:
            return len(self.names)

        def __getitem__(self, i: int) -> torch.Tensor:
            from PIL import Image

            return transform(Image.open(self.names[i]).convert("RGB"))

    def way(samples: Samples) -> np.ndarray:
        loader = torch.utils.data.DataLoader(Files(list(samples.names)), batch_size=BATCH[device])
        with torch.no_grad():
            return np.concatenate([network(batch.to(device)).cpu().numpy() for batch in loader])

    return way


def _fit(name: str) -> str:
    return "pillow-squash" if name == "plain loop" or BYTES in name else "squash"


def _eager(device: str, weights: Path, samples: Samples, fit: str) -> np.ndarray:
    """Full precision without any of our shortcuts, on planes of our own resize."""
    network, planes = _network(weights).to(device), encoders.Preprocessing(fit=fit).planes
    out = []
    with torch.no_grad():
        for i in range(0, len(samples), BATCH[device]):
            batch = np.stack([samples.read(j) for j in range(i, min(i + BATCH[device], len(samples)))])
            out.append(network(torch.from_numpy(planes(batch)).to(device)).cpu().numpy())
    return np.concatenate(out)


def _ours(device: str, weights: Path) -> dict[str, Callable[[Samples], np.ndarray]]:
    def of(encoder: encoders.SampleEncoder) -> Callable[[Samples], np.ndarray]:
        size = BATCH[device]

        def way(samples: Samples) -> np.ndarray:
            ranges = (range(i, min(i + size, len(samples))) for i in range(0, len(samples), size))
            batches = ([samples.read(j) for j in block] for block in ranges)
            return np.concatenate(list(encoder.encode(prefetch(batches, 2))))

        return way

    def load(precision: str, fit: str = "squash") -> encoders.SampleEncoder:
        return encoders.load("torchvision:mobilenet_v2", Runtime(device, precision), weights=weights, fit=fit)

    ways = {"torch fp32": of(load("fp32")), f"torch fp32, {BYTES}": of(load("fp32", "pillow-squash"))}
    ways["torch bf16"] = of(load("bf16"))
    if device == "cuda":
        ways["torch fp16"] = of(load("fp16"))
    if device == "cpu":
        ways["ONNX Runtime fp32"] = of(exported(weights, "squash"))
        ways[f"ONNX Runtime fp32, {BYTES}"] = of(exported(weights, "pillow-squash"))
    return ways


def exported(weights: Path, fit: str) -> encoders.SampleEncoder:
    """The encoder through its ONNX file."""
    from ghofl.encoders.export import export

    with tempfile.TemporaryDirectory() as folder:
        export(encoders.load("torchvision:mobilenet_v2", weights=weights, fit=fit), Path(folder) / "m.onnx")
        return encoders.load(f"onnx:{folder}/m.onnx")


def main() -> None:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=list(BATCH))
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = run(options.device, options.weights, options.images, options.count)
    if options.json:
        made.store(options.json, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
