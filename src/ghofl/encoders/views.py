"""Views of an image: the embedding is the mean over them, and may include more of what the network computes.

A flipped image shows the same thing, and so does a larger one. The network's rows of such views differ by chance, and
their mean varies less: heads gain accuracy, and a row does not get longer.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ghofl.encoders.resize import KERNELS, Preprocessing
from ghofl.errors import EncoderError
from ghofl.shapes import Float32, UInt8

POOLS = ("mean", "mean+std")
QUALITIES = ("paper", "quick", "default", "best")
SMALLEST, LARGEST, MOST = 16, 1024, 8
# The default sizes beside a network's own: 160 and 288 for one of 224.
SMALLER, LARGER, STEP = 5 / 7, 9 / 7, 32


@dataclass(frozen=True, slots=True)
class Views:
    """What is averaged and pooled; the encoder's fingerprint covers everything that is set.

    `flip` averages an image with its mirror image, `scales` over input sizes (none: the network's own). `pool` of
    ``mean+std`` appends the standard deviation over the positions of the network's last map, `stages` the means of up
    to five earlier maps. `kernel` says how images are resized (empty: the encoder's own way).

    >>> views = Views.parse("flip 160,224,288 stages")
    >>> views, str(views)
    (Views(flip=True, scales=(160, 224, 288), pool='mean', stages=True, kernel=''), 'flip 160,224,288 stages')
    >>> views.options
    "--views 'flip 160,224,288 stages'"
    """

    flip: bool = False
    scales: tuple[int, ...] = ()
    pool: str = "mean"
    stages: bool = False
    kernel: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scales", tuple(sorted(set(self.scales))))
        if len(self.scales) > MOST or any(not SMALLEST <= size <= LARGEST for size in self.scales):
            raise EncoderError(
                f"scales are {', '.join(map(str, self.scales))}; write at most {MOST} sizes from {SMALLEST} to "
                f"{LARGEST} pixels, e.g. 160,224,288."
            )
        if self.pool not in POOLS:
            raise EncoderError(f"pool is {self.pool!r}; write one of {', '.join(POOLS)}.")
        if self.kernel and self.kernel not in KERNELS:
            raise EncoderError(f"the resize kernel is {self.kernel!r}; write one of {', '.join(KERNELS)}.")

    @classmethod
    def parse(cls, text: str) -> "Views":
        """The views in a text such as ``flip 160,224,288``; an empty text means one view."""
        found: dict[str, Any] = {}
        for word in text.split(" ") if text else []:
            if word in ("flip", "stages"):
                key, value = word, True
            elif word in POOLS or word in KERNELS:
                key, value = "pool" if word in POOLS else "kernel", word
            elif re.fullmatch(r"\d{1,4}(,\d{1,4})*", word):
                key, value = "scales", tuple(map(int, word.split(",")))
            else:
                key, value = "", None
            if not key or key in found:
                raise EncoderError(
                    f"views are {text[:80]!r}; write {', '.join(QUALITIES)}, or words such as 'flip 160,224,288 mean+std stages "
                    "bicubic', each once."
                )
            found[key] = value
        return cls(**found)

    @classmethod
    def of_quality(cls, quality: str, size: int) -> "Views":
        """The views of a named quality, for a network of this input size.

        ``paper`` is one view, ``quick`` adds the mirror image, ``default`` also three sizes, and ``best`` also pools
        deviations and earlier stages.
        """
        check_quality(quality)
        rounded = [max(STEP, round(size * share / STEP) * STEP) for share in (SMALLER, LARGER)]
        sizes = (rounded[0], size, rounded[1]) if quality in ("default", "best") else ()
        scales = sizes if len(set(sizes)) > 1 else ()  # for a small input size, the others round to the same
        is_best = quality == "best"
        return cls(quality != "paper", scales, "mean+std" if is_best else "mean", is_best)

    def __str__(self) -> str:
        words = ("flip" * self.flip, ",".join(map(str, self.scales)), self.pool if self.pool != "mean" else "")
        return " ".join(word for word in (*words, "stages" * self.stages, self.kernel) if word)

    @property
    def options(self) -> str:
        """The option of a command that gives exactly these views."""
        return f"--views {shlex.quote(str(self) or 'paper')}"

    @property
    def has_maps(self) -> bool:
        """Whether the embedding includes more than the network's own pooled row."""
        return self.stages or self.pool != "mean"

    def settings(self) -> dict[str, Any]:
        """What the fingerprint covers besides the preprocessing, which has the kernel; empty for one view."""
        views = {"flip": self.flip, "scales": list(self.scales)}
        return {"views": views} if self.flip or self.scales else {}

    def preprocessings(self, own: Preprocessing) -> tuple[Preprocessing, ...]:
        """The preprocessing of every input size."""
        return tuple(replace(own, size=size) for size in self.scales) or (own,)

    def mean(
        self,
        rows: Callable[[Preprocessing, UInt8[np.ndarray, "n h w 3"]], Float32[np.ndarray, "n dim"]],
        images: UInt8[np.ndarray, "n h w 3"],
        own: Preprocessing,
    ) -> Float32[np.ndarray, "n dim"]:
        """The mean of `rows(preprocessing, images)` over all views.

        The bytes are flipped before anything else and pairs are added first, so an image and its mirror image have
        the same mean, to the bit, if `rows` gives equal rows for equal images.
        """
        total: Any = None
        for preprocessing in self.preprocessings(own):
            x = rows(preprocessing, images)
            if self.flip:
                x = x + rows(preprocessing, np.ascontiguousarray(images[:, :, ::-1]))
            total = x if total is None else total + x
        count = (1 + self.flip) * max(1, len(self.scales))
        return total if count == 1 else total / np.float32(count)


@dataclass(frozen=True, slots=True)
class ViewsRequest:
    """Views by the name of a quality; without one, the default of the encoder.

    That is ``default`` for torchvision and timm, otherwise one view.
    """

    quality: str = ""

    def __post_init__(self) -> None:
        if self.quality:
            check_quality(self.quality)

    @classmethod
    def parse(cls, text: str | None) -> "Views | ViewsRequest":
        """The quality of this name, or views as `Views.parse` reads them; None leaves them to the encoder."""
        return cls(text or "") if text is None or text in QUALITIES else Views.parse(text)

    def views(self, size: int) -> Views:
        """The views for a network of this input size."""
        return Views.of_quality(self.quality or "paper", size)


def check_quality(quality: str) -> None:
    """Raise `EncoderError` unless it names a quality."""
    if quality not in QUALITIES:
        raise EncoderError(f"quality is {quality!r}; write one of {', '.join(QUALITIES)}.")
