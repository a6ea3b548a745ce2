"""Checkpoints from disk: names are normalised, and weights are loaded without running anything in the file."""

import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ghofl.errors import EncoderError

# Keys under which training scripts save the weights beside other things.
INSIDE = ("state_dict", "model_state_dict", "model")
# In DenseNets from before 2017, such as Places365's, norm1 is called norm.1.
OLD_DENSENET = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$"
)


def read(path: str | Path) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint by name: .safetensors, or what torch's weights-only reader accepts.

    The ``module.`` that data-parallel training puts before names (as in Places365's checkpoints) is removed.
    """
    path = Path(path)
    with open(path, "rb"):  # so that a missing file is not reported as a damaged one
        pass
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _weights_only(path)
    except SafetensorError as error:
        raise EncoderError(f"{path} is not a safetensors file ({error}); save the state_dict again.") from None
    if not state or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise EncoderError(f"{path} holds no weights by name; expected a state_dict, or a file with one inside.")
    return {_normalise(name): value for name, value in state.items()}


def load_weights(module: torch.nn.Module, state: dict[str, torch.Tensor], classifier: str, path: str | Path) -> bool:
    """Load weights into a module; all must fit, but the classifier's may be missing. Returns whether they were there."""
    own = {name: value.shape for name, value in module.state_dict().items()}
    head = {name for name in own if name.rpartition(".")[0] == classifier}
    missing = sorted(n for n in own if n not in state and n not in head and not n.endswith("num_batches_tracked"))
    unknown = sorted(set(state) - set(own))
    wrong = sorted(n for n in own if n in state and state[n].shape != own[n])
    for what, names in (("lacks", missing), ("has", unknown), ("has another shape of", wrong)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise EncoderError(f"{path} {what} {names[0]!r}{more}; give a checkpoint of this network.")
    module.load_state_dict({**module.state_dict(), **state})
    return head <= set(state)


def _weights_only(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EncoderError(
            f"{path} cannot be read as weights alone ({reason[:120]}); save its state_dict as .safetensors."
        ) from None
    for key in INSIDE:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            return dict(state[key])
    return dict(state) if isinstance(state, dict) else {}


def _normalise(name: str) -> str:
    name = name.removeprefix("module.")
    old = OLD_DENSENET.match(name)
    return name if old is None else old[1] + old[2]
