"""Real embeddings of CIFAR by MobileNetV2, and the command that users run on them."""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import deadlines
from federations import KEEP_MEMORY
from ghofl import files


@pytest.fixture(scope="session")
def stored(real_data: Callable[[str], Path]) -> Callable[[str], dict[str, np.ndarray]]:
    """The arrays of a set by its name, decoded."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(real_data(f"embeddings/{name}-mobilenetv2.npz")) as file:
            arrays = {key: file[key] for key in file.files}
        return arrays | {key: (arrays[key] / np.float32(100)) ** 2 for key in ("x_train", "x_test")}

    return load


@pytest.fixture(scope="session")
def simulate(stored, shared_folder: Path) -> Callable[..., dict]:
    """Run `ghofl simulate` on a set and return its JSON; equal calls run once."""

    def decoded(name: str) -> Path:
        path = shared_folder / f"{name}.npz"
        if not path.exists():
            with files.open_to_replace(path) as file:
                np.savez(file, **stored(name))
        return path

    @cache
    def run(name: str, *arguments: str) -> dict:
        command = [sys.executable, "-m", "ghofl", "simulate", "--embeddings", decoded(name), *arguments, "--json", "-"]
        return json.loads(deadlines.run(*command, seconds=800, env={**os.environ, **KEEP_MEMORY}).stdout)

    return run
