"""Rounds of full fine-tuning, DENSE and Co-Boosting from pretrained MobileNetV2 on real images, within a time budget.

    python -m ghofl_benchmarks.gpu_multiround --data FOLDER --weights mobilenet_v2.safetensors --out OUT \\
        --device cuda --size 128 --seconds 580

FOLDER holds x_train*.npy, y_train*.npy, x_test*.npy, y_test*.npy (bytes; pieces in the order of their names). Needs
numpy, torch and torchvision only. After every round OUT/multiround.json is written anew, so that a run that is cut off
still leaves its figures; OUT/state keeps the models of FedAvg, from which `--parts more` goes on.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ghofl_benchmarks import made
from ghofl_benchmarks.baselines.coboosting import coboosting
from ghofl_benchmarks.baselines.dense import dense
from ghofl_benchmarks.baselines.distillation import Distillation, Ensemble
from ghofl_benchmarks.baselines.local import (
    LocalTraining,
    Look,
    accuracy,
    bytes_of,
    least_rows,
    put,
    state_of,
    train_locally,
)
from ghofl_benchmarks.baselines.networks import ImageGenerator, Prepared, mobilenet_v2, small_network
from ghofl_benchmarks.baselines.rounds import METHODS, Rounds
from ghofl_benchmarks.one_message import embed, lda_of_moments
from ghofl_benchmarks.pixels import PixelsError, dirichlet_rows, look_at, read_pixels

PARTS = ("probe", "ours", "rounds", "distillation", "more")
DISTILLED = {"DENSE": dense, "Co-Boosting": coboosting}


@dataclass
class Bench:
    """The images, the settings, and what was found so far."""

    options: argparse.Namespace
    train: Look
    test: Look
    labels: np.ndarray
    tests: Tensor
    started: float = field(default_factory=time.perf_counter)
    found: dict[str, Any] = field(default_factory=dict)
    _common: tuple[nn.Module, Callable[[Tensor], Tensor] | None] | None = None

    @property
    def device(self) -> torch.device:
        return torch.device(self.options.device)

    @property
    def bfloat16(self) -> bool:
        return self.device.type == "cuda"

    @property
    def left(self) -> float:
        """Seconds until the budget is over."""
        return self.options.seconds - (time.perf_counter() - self.started)

    def clients(self, alpha: float) -> list[Tensor]:
        """Row numbers of every client."""
        parts = dirichlet_rows(self.labels, self.options.clients, alpha, self.options.seed)
        return [torch.from_numpy(rows).to(self.device) for rows in parts]

    def network(self) -> nn.Module:
        """Pretrained or small, with a last layer that is the same for everybody."""
        torch.manual_seed(self.options.seed)
        classes = int(self.labels.max()) + 1
        small = self.options.network == "small"
        inner = small_network(classes, width=64) if small else mobilenet_v2(self.options.weights, classes)
        model = Prepared(inner, self.options.size)
        return model.to(self.device, memory_format=torch.channels_last)

    def common(self) -> tuple[nn.Module, Callable[[Tensor], Tensor] | None]:
        """The one network that rounds train, as it was at first, and its compiled form if that is asked for."""
        if self._common is None:
            model = self.network()
            self._common = model, torch.compile(model) if self.options.compile else None
        else:
            put(self._common[0], state_of(self.network()))
        return self._common

    def measure(self, model: Callable[[Tensor], Tensor]) -> float:
        return accuracy(model, self.test, self.tests, bfloat16=self.bfloat16)

    def settle(self) -> float:
        """The time, once the device has done all it was asked to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def note(self, *keys: str, **values: Any) -> None:
        """Put values at a place of the results and write the file."""
        place = self.found
        for key in keys:
            place = place.setdefault(key, {})
        place.update(values)
        target = self.options.out / "multiround.json"
        spare = target.with_suffix(".tmp")
        spare.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        spare.replace(target)
        made.record(target)
        print(
            f"[{time.perf_counter() - self.started:6.1f} s]",
            *keys,
            {k: _short(v) for k, v in values.items()},
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that were asked for; the exit status."""
    options = _parser().parse_args(arguments)
    torch.backends.cudnn.benchmark = False  # last batches have sizes of their own, each of which it would time anew
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        bench = _bench(options)
    except PixelsError as error:
        print(error, file=sys.stderr)
        return 2
    for part in options.parts:
        if bench.left <= 0:
            bench.note("not_run", **{part: "the time was over"})
        else:
            {"probe": probe, "ours": ours, "rounds": rounds, "distillation": distillation, "more": more}[part](bench)
    bench.note("settings", wall_seconds=time.perf_counter() - bench.started)
    return 0


def probe(bench: Bench, steps: int = 20) -> None:
    """Images per second of training steps, as they are and compiled."""
    model, compiled = bench.common()
    rows = torch.arange(bench.options.batch * steps, device=bench.device) % len(bench.labels)
    training = _training(bench)
    for name, forward in {"eager": None, **({"compiled": compiled} if compiled else {})}.items():
        for turn in ("first", "second"):
            begun = bench.settle()
            train_locally(model, bench.train, rows, training, torch.Generator().manual_seed(0), forward=forward)
            bench.note("probe", name, **{f"{turn}_images_per_second": len(rows) / (bench.settle() - begun)})


def ours(bench: Bench) -> None:
    """One message: frozen embeddings at this size, their sums per class, LDA; seconds of each."""
    network = bench.network().eval()
    begun = bench.settle()
    x, y = embed(network, bench.train, torch.arange(len(bench.labels), device=bench.device), bench.bfloat16)
    embedded = bench.settle()
    weights, bias = lda_of_moments(x, y)
    fitted = bench.settle()
    z, labels = embed(network, bench.test, bench.tests, bench.bfloat16)
    right = float(((z.double() @ weights + bias).argmax(dim=1) == labels).double().mean())
    classes, dim = weights.shape[1], weights.shape[0]
    values = {"accuracy": right, "embed_seconds": embedded - begun, "fit_seconds": fitted - embedded}
    size = 4 * (classes + classes * dim + dim * (dim + 1) // 2)
    bench.note("ours", lda_of_moments=values | {"bytes_up_float32": size, "size": bench.options.size})


def rounds(bench: Bench) -> None:
    """Every method for its first rounds, the strongest skew first."""
    for alpha in bench.options.alphas:
        for method in bench.options.methods:
            _play(bench, Rounds(method, **_federation(bench, alpha)), alpha, bench.options.rounds)


def more(bench: Bench) -> None:
    """FedAvg on from where it was."""
    for alpha in bench.options.alphas:
        play = Rounds("fedavg", **_federation(bench, alpha))
        state = _state(bench, alpha)
        if not state.is_file():
            bench.note(
                "not_run",
                **{f"fedavg beyond {bench.options.rounds} at {alpha}": f"no {state.name} of the first rounds"},
            )
            continue
        with np.load(state) as stored:
            put(play.model, {k: torch.from_numpy(stored[k]).to(bench.device) for k in stored.files if k != "round"})
            play.round = int(stored["round"])
        _play(bench, play, alpha, bench.options.more)


def distillation(bench: Bench) -> None:
    """Clients train once, their networks are sent once; ensemble, DENSE and Co-Boosting make one of them."""
    for alpha in bench.options.alphas:
        if bench.left <= 0:
            bench.note("not_run", **{f"distillation at {alpha}": "the time was over"})
            continue
        networks, seconds = _trained(bench, alpha)
        size = bytes_of(state_of(networks[0]))
        ensemble = Ensemble(networks, bench.bfloat16)
        share = {"clients": len(networks), "bytes_up": size, "client_seconds": seconds}
        bench.note("distillation", str(alpha), "ensemble", accuracy=bench.measure(ensemble), **share)
        for name, method in DISTILLED.items():
            _distil(bench, alpha, name, method, networks)


def _distil(bench: Bench, alpha: float, name: str, method: Callable, networks: list[nn.Module]) -> None:
    if bench.left <= 0:
        bench.note("not_run", **{f"{name} at {alpha}": "the time was over"})
        return
    student = bench.network()
    classes = int(bench.labels.max()) + 1
    generator = ImageGenerator(classes, size=32).to(bench.device)
    how = Distillation(
        epochs=bench.options.distillation_epochs, batch=bench.options.distillation_batch, bfloat16=bench.bfloat16,
        generator_steps=bench.options.generator_steps, student_steps=bench.options.student_steps,
        seconds=min(bench.left, bench.options.distillation_seconds),
    )  # fmt: skip
    course = method(networks, student, generator, classes, lambda: bench.measure(student), how, bench.options.seed)
    bench.note(
        "distillation", str(alpha), name, accuracy=course.accuracies, seconds=course.seconds, epochs=course.epochs,
        weights=course.weights,
    )  # fmt: skip


def _play(bench: Bench, play: Rounds, alpha: float, until: int) -> None:
    """Rounds until a number of them or the end of the time; figures after each."""
    place = ("rounds", str(alpha), play.method)
    kept = bench.found.get("rounds", {}).get(str(alpha), {}).get(play.method, {})
    accuracies, seconds = list(kept.get("accuracy", [])), list(kept.get("seconds", []))
    numbers = list(kept.get("round", []))
    while play.round < until and bench.left > 0:
        begun = bench.settle()
        play.play()
        seconds.append(bench.settle() - begun)
        accuracies.append(bench.measure(play.model))
        numbers.append(play.round)
        traffic = {"bytes_up": play.traffic.up, "bytes_down": play.traffic.down}
        bench.note(*place, round=numbers, accuracy=accuracies, seconds=seconds, **traffic)
    if play.round < until:
        bench.note("not_run", **{f"{play.method} at {alpha}": f"stopped after round {play.round} of {until}: time"})
    if play.method == "fedavg":
        state = {name: value.cpu().numpy() for name, value in state_of(play.model).items()}
        np.savez(_state(bench, alpha), round=play.round, **state)


def _trained(bench: Bench, alpha: float) -> tuple[list[nn.Module], float]:
    """The network of every client with rows, and the seconds of all together."""
    options, networks = bench.options, []
    training = LocalTraining(
        rate=options.local_rate, batch=options.batch, epochs=options.local_epochs, bfloat16=bench.bfloat16
    )
    begun = bench.settle()
    for i, rows in enumerate(bench.clients(alpha)):
        network = bench.network()
        if len(rows) >= least_rows(network):
            networks.append(network)
            train_locally(networks[-1], bench.train, rows, training, torch.Generator().manual_seed(i))
    return networks, bench.settle() - begun


def _federation(bench: Bench, alpha: float) -> dict[str, Any]:
    """What `Rounds` takes. One network serves all runs, one after the other, so that it is compiled once."""
    model, compiled = bench.common()
    return {
        "model": model, "look": bench.train, "clients": bench.clients(alpha), "training": _training(bench),
        "seed": bench.options.seed, "forward": compiled,
    }  # fmt: skip


def _training(bench: Bench) -> LocalTraining:
    return LocalTraining(batch=bench.options.batch, bfloat16=bench.bfloat16)


def _state(bench: Bench, alpha: float) -> Path:
    folder = bench.options.state or bench.options.out / "state"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"fedavg-{alpha}.npz"


def _bench(options: argparse.Namespace) -> Bench:
    device = torch.device(options.device)
    x, y = read_pixels(options.data, "train")
    u, v = read_pixels(options.data, "test")
    if options.rows:
        x, y = (array[: options.rows] for array in (x, y))
        u, v = (array[: options.rows] for array in (u, v))
    bench = Bench(options, look_at(x, y, device), look_at(u, v, device), y, torch.arange(len(v), device=device))
    stored = options.out / "multiround.json"
    bench.found = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() else {}
    settings = {k: [str(i) for i in v] if isinstance(v, list) else str(v) for k, v in vars(options).items()}
    named = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor()
    bench.note("settings", **settings, train_rows=len(y), test_rows=len(v))
    bench.note("machine", device=named, torch=torch.__version__, python=platform.python_version())
    return bench


def _short(value: Any) -> Any:
    if isinstance(value, list) and len(value) > 3:
        return f"… {value[-1]:.4f} ({len(value)})" if isinstance(value[-1], float) else f"{len(value)} values"
    return round(value, 4) if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of x_train*.npy, y_train*.npy, x_test*.npy, y_test*.npy")
    add("--network", default="mobilenet_v2", choices=("mobilenet_v2", "small"), help="small: three convolutions")
    add("--weights", type=Path, help="mobilenet_v2.safetensors; random weights without, as always with a small network")
    add("--out", type=Path, required=True, help="folder for multiround.json and state/")
    add("--state", type=Path, help="folder for the models of FedAvg, OUT/state unless given")
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add("--size", type=int, default=128, help="images are resized to this many pixels, bilinear")
    add("--parts", type=lambda text: text.split(","), default=list(PARTS[1:]), help=f"of {','.join(PARTS)}")
    add("--alphas", type=lambda text: [float(a) for a in text.split(",")], default=[0.05, 0.1, 0.5])
    add("--methods", type=lambda text: text.split(","), default=list(METHODS), help=f"of {','.join(METHODS)}")
    add("--clients", type=int, default=10)
    add("--rounds", type=int, default=10, help="of every method")
    add("--more", type=int, default=50, help="FedAvg goes on to this many in the part 'more'")
    add("--batch", type=int, default=256)
    add("--seconds", type=float, default=580.0, help="no new round or run begins after this many")
    add("--distillation-seconds", type=float, default=35.0, help="for each run of DENSE and Co-Boosting")
    add("--distillation-epochs", type=int, default=200)
    add("--distillation-batch", type=int, default=128)
    add("--generator-steps", type=int, default=5)
    add("--student-steps", type=int, default=10)
    add("--local-epochs", type=int, default=5, help="of clients whose networks are distilled")
    add("--local-rate", type=float, default=0.01)
    add("--rows", type=int, default=0, help="only so many rows, to try it")
    add("--seed", type=int, default=0)
    add("--compile", action="store_true", help="training steps through torch.compile: a minute, then faster")
    return parser


if __name__ == "__main__":
    sys.exit(main())
