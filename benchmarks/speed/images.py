"""Photos to embeddings, with and without views, beside bare forward passes of the same batches.

As a program it does one of the two once, in a process whose memory is its own: python speed/images.py ours|bare VIEWS
"""

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import data
import numpy as np
from ratios import Measure
from timing import Command, against

from ghofl import encoders
from ghofl.encoders.embed import encode_samples
from ghofl.rows import Samples, load_samples

IMAGES_AT_ONCE = 8  # of one pass, as the encoder does it on a CPU
NETWORK, IMAGES = "torchvision:mobilenet_v2", 16
VIEWS = {"one view": "", "flip and three sizes": "flip 160,224,288"}
WEIGHTS, PHOTOS = data.FOLDER / "weights" / "mobilenet_v2.safetensors", data.FOLDER / "images" / "cifar10-2k" / "test"


def missing() -> str:
    """Why nothing is measured, or nothing."""
    if absent := [name for name in ("torch", "torchvision") if not find_spec(name)]:
        return f"no {' and '.join(absent)} here (pip install 'ghofl[images]')"
    if absent := [str(path) for path in (WEIGHTS, PHOTOS) if not path.exists()]:
        return f"no {absent[0]}; set GHOFL_DATA to the folder that has it"
    return ""


def measures(_: np.random.Generator) -> Iterator[Measure]:
    """PNG files to rows by what `ghofl embed` runs; the network alone, on planes that are there already."""
    if why := missing():
        print(f"embed: left out, {why}.")
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, views in VIEWS.items():
            yield against(
                f"embed_{'views' if views else 'plain'}",
                f"{IMAGES} PNG files of 32 pixels to rows of MobileNetV2, {name}",
                embedding(views),
                "bare forward passes of the same batches by the same network: nothing read, resized or averaged",
                forward(views),
                repeats=3,
                peaks=[_alone(kind, views) for kind in ("ours", "bare")],
            )
    finally:
        torch.set_num_threads(before)


def embedding(views: str) -> Callable[[], np.ndarray]:
    """From files to rows, as `ghofl embed` goes."""
    encoder, samples = _loaded(views)
    return lambda: np.concatenate([x for x, _ in encode_samples(samples, encoder)])


def forward(views: str) -> Callable[[], np.ndarray]:
    """The same network on planes of every view that are there already."""
    import torch

    encoder, samples = _loaded(views)
    images = np.stack([samples.read(i) for i in range(IMAGES)])
    seen = [images, np.ascontiguousarray(images[:, :, ::-1])][: 1 + encoder.views.flip]
    passes = [
        torch.from_numpy(own.planes(batch[i : i + IMAGES_AT_ONCE])).contiguous(memory_format=torch.channels_last)
        for own in encoder.views.preprocessings(encoder.preprocessing)
        for batch in seen
        for i in range(0, IMAGES, IMAGES_AT_ONCE)
    ]

    def work() -> np.ndarray:
        with torch.inference_mode():
            rows = [encoder.forward.module(planes).numpy() for planes in passes]
        return np.concatenate(rows).reshape(-1, IMAGES, encoder.dim).mean(axis=0)

    return work


def _loaded(views: str) -> tuple[Any, Samples]:
    encoder = encoders.load(NETWORK, weights=WEIGHTS, views=views)
    return encoder, load_samples(str(PHOTOS)).only(np.arange(IMAGES))


def _alone(kind: str, views: str) -> Command:
    folder = Path(__file__).parents[1]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return Command([sys.executable, __file__, kind, views], environment)


if __name__ == "__main__":
    {"ours": embedding, "bare": forward}[sys.argv[1]](sys.argv[2])()
