"""Forward passes in torch: device, precision and memory layout; and resizing on a GPU."""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from ghofl.encoders.base import HALF_PRECISION_COSINE, Runtime, cores, cosines, fingerprint
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.views import Views
from ghofl.errors import EncoderError

# Images per pass on a CPU: activations of more overflow its caches, fewer leave its cores waiting.
IMAGES_AT_ONCE = 8
# Pixels per resize on a GPU, so that a batch of large photos fits into memory beside the network.
PIXELS_AT_ONCE = 2**24


def device_of(runtime: Runtime) -> torch.device:
    """The device asked for; raises where the machine does not have it."""
    try:
        device = torch.device(runtime.device)
    except RuntimeError:
        raise EncoderError(f"device {runtime.device!r} is unknown; write cpu, cuda, cuda:1 or mps.") from None
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(device.type, lambda: True)
    if not there():
        raise EncoderError(f"this machine has no device {runtime.device!r}; write `device` cpu.")
    return device


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The weights of a module by name."""
    state = {name: tensor for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")}
    return {name: tensor.detach().cpu().float().numpy() for name, tensor in state.items()}


def fingerprint_of(module: torch.nn.Module, settings: dict[str, Any]) -> str:
    """The fingerprint of a module and its settings."""
    return fingerprint(weights_of(module), settings)


class TorchForward:
    """A module on a device; arrays in, array out. Half precision is checked on the first call."""

    def __init__(self, module: torch.nn.Module, runtime: Runtime) -> None:
        self.device, self.runtime = device_of(runtime), runtime
        self.module = module.eval().requires_grad_(False).to(self.device)
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(runtime.precision)
        self._half = None if self._dtype is None else copy.deepcopy(self.module).to(self._dtype)
        self._is_checked = False

    def run(self, parts: Sequence[tuple[torch.Tensor, ...]]) -> np.ndarray:
        """The module's rows for parts of a batch that are already on the device."""
        if self._half is None:
            return _rows(self.module, parts)
        halves = [tuple(t.to(self._dtype) if t.is_floating_point() else t for t in part) for part in parts]
        x = _rows(self._half, halves)
        if not self._is_checked:
            self._check(x, _rows(self.module, parts))
        return x

    def _check(self, half: np.ndarray, full: np.ndarray) -> None:
        cosine = float(np.median(cosines(half, full)))
        if not cosine >= HALF_PRECISION_COSINE:
            raise EncoderError(
                f"{self.runtime.precision} changes embeddings too much: their median cosine with fp32 is {cosine:.6f}, and "
                f"at least {HALF_PRECISION_COSINE} is needed; write `precision` fp32."
            )
        self._is_checked = True
        self.module = self.module.cpu()


class ImageForward(TorchForward):
    """Byte images to embeddings, run channels-last; a GPU gets the bytes and resizes them itself.

    The embedding is the mean over `views`.
    """

    def __init__(
        self, module: torch.nn.Module, preprocessing: Preprocessing, runtime: Runtime, views: Views | None = None
    ) -> None:
        super().__init__(module.to(memory_format=torch.channels_last), runtime)  # type: ignore[call-overload]
        self.preprocessing, self.views = preprocessing, views or Views()

    @torch.inference_mode()
    def __call__(self, images: np.ndarray) -> np.ndarray:
        return self.views.mean(self.view, images, self.preprocessing)

    @torch.inference_mode()
    def view(self, preprocessing: Preprocessing, images: np.ndarray) -> np.ndarray:
        """The rows of one view."""
        if self.device.type != "cpu":
            return self.run([(planes_on(self.device, images, preprocessing),)])
        parts = (images[i : i + IMAGES_AT_ONCE] for i in range(0, len(images), IMAGES_AT_ONCE))
        planes = (torch.from_numpy(preprocessing.planes(part)) for part in parts)
        return self.run([(part.contiguous(memory_format=torch.channels_last),) for part in planes])


def planes_on(device: torch.device, images: np.ndarray, preprocessing: Preprocessing) -> torch.Tensor:
    """`Preprocessing.planes` of byte images on a device, resized there unless by Pillow; channels last in memory."""
    if preprocessing.is_of_bytes:
        with ThreadPoolExecutor(cores()) as pool:  # Pillow releases Python's lock while it resizes
            images = np.stack(list(pool.map(preprocessing.resize, images)))
    step = max(1, PIXELS_AT_ONCE // (images.shape[1] * images.shape[2]))
    parts = [torch.from_numpy(images[i : i + step]).to(device) for i in range(0, len(images), step)]
    planes = torch.cat([_squares(part.permute(0, 3, 1, 2).float(), preprocessing) for part in parts])
    planes = planes.contiguous(memory_format=torch.channels_last)
    preprocessing.normalise(planes)
    return planes


def _squares(planes: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    if preprocessing.is_of_bytes:  # they are already squares
        return planes
    (height, width), size = preprocessing.sides(*planes.shape[2:]), preprocessing.size
    top, left = preprocessing.corner(height, width)
    whole = torch.nn.functional.interpolate(planes, (height, width), mode=preprocessing.kernel, antialias=True)
    return whole[:, :, top : top + size, left : left + size]


class TokenForward(TorchForward):
    """Token numbers and their mask to embeddings."""

    @torch.inference_mode()
    def __call__(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return self.run([(torch.from_numpy(ids).to(self.device), torch.from_numpy(mask).to(self.device))])


def _rows(module: torch.nn.Module, parts: Sequence[tuple[torch.Tensor, ...]]) -> np.ndarray:
    return np.concatenate([module(*part).float().cpu().numpy() for part in parts])
