"""Networks that the baselines train: small ones for images, heads over embeddings, and generators for both."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def small_network(classes: int, channels: int = 3, width: int = 32) -> nn.Module:
    """Three convolutions with batch norm, for images of 32 × 32 or so."""
    return nn.Sequential(
        *_block(channels, width), nn.MaxPool2d(2), *_block(width, 2 * width), nn.MaxPool2d(2),
        *_block(2 * width, 4 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes),
    )  # fmt: skip


def embedding_head(dim: int, classes: int) -> nn.Module:
    """A linear head over standardised embeddings; the batch norm has what data-free distillation looks at."""
    return nn.Sequential(nn.BatchNorm1d(dim, affine=False), nn.Linear(dim, classes))


def mobilenet_v2(weights: Path | None, classes: int, dropout: float = 0.0) -> nn.Module:
    """Torchvision's MobileNetV2 with a new linear layer, from a file of pretrained weights."""
    from torchvision.models import mobilenet_v2 as build

    model = build(dropout=dropout)
    if weights is not None:
        missing = model.load_state_dict(read_safetensors(weights), strict=False)
        if missing.unexpected_keys or any(not name.startswith("classifier") for name in missing.missing_keys):
            raise ValueError(f"{weights} is not MobileNetV2 in torchvision's names: {missing}.")
    model.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(model.last_channel, classes))
    return model


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The arrays of a safetensors file; the device machine may not have the package."""
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (8 + size + at for at in entry["data_offsets"])
            array = np.frombuffer(content[first:last], dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(array.copy())
    return tensors


class ImageGenerator(nn.Module):
    """Noise and a class to an image with values in [0, 1], which doubles twice on its way to full size."""

    def __init__(self, classes: int, noise: int = 128, size: int = 32, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        self.noise, self._start, self._width = noise, size // 4, 2 * width
        self.classes = nn.Embedding(classes, noise)
        self.first = nn.Linear(2 * noise, 2 * width * self._start**2)
        self.body = nn.Sequential(
            nn.BatchNorm2d(2 * width), nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2),
            nn.Conv2d(width, channels, 3, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """One image per row of noise."""
        start = self.first(torch.cat([z, self.classes(y)], dim=1))
        return self.body(start.view(len(z), self._width, self._start, self._start))


class EmbeddingGenerator(nn.Module):
    """Noise and a class to an embedding within four standard deviations of what clients' batch norms remember.

    As pixels have a range, so must embeddings: a generator that seeks disagreement would leave for infinity.
    """

    def __init__(self, classes: int, norms: Sequence[nn.BatchNorm1d], noise: int = 64, width: int = 256) -> None:
        super().__init__()
        self.noise = noise
        means = torch.stack([norm.running_mean for norm in norms if norm.running_mean is not None])
        variances = torch.stack([norm.running_var for norm in norms if norm.running_var is not None])
        self.register_buffer("centre", means.mean(dim=0))
        self.register_buffer("reach", 4.0 * (variances.mean(dim=0) + means.var(dim=0, unbiased=False)).sqrt())
        self.classes = nn.Embedding(classes, noise)
        self.body = nn.Sequential(
            nn.Linear(2 * noise, width), nn.BatchNorm1d(width), nn.LeakyReLU(0.2), nn.Linear(width, means.shape[1])
        )

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """One embedding per row of noise."""
        return self.centre + self.reach * torch.tanh(self.body(torch.cat([z, self.classes(y)], dim=1)) / 4.0)


class Prepared(nn.Module):
    """A network behind a resize and the usual standardisation of images with values in [0, 1]."""

    def __init__(self, network: nn.Module, size: int | None = None) -> None:
        super().__init__()
        self.network, self._size = network, size
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of images."""
        return self.network(self.prepare(images))

    def prepare(self, images: Tensor) -> Tensor:
        """Images as the network wants them, channels last."""
        if self._size is not None and images.shape[-1] != self._size:
            images = nn.functional.interpolate(images, size=self._size, mode="bilinear", align_corners=False)
        return ((images - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def _block(inside: int, outside: int) -> list[nn.Module]:
    return [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
