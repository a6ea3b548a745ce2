"""Several heads of one total, averaged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, group_by_prefix, with_prefix
from ghofl.heads.lda import LDA
from ghofl.heads.nearest_mean import NearestMean
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.quadratic import QDA, RDA, Student
from ghofl.heads.ridge import Ridge
from ghofl.shapes import Float, Int
from ghofl.statistics.triangles import apply

TWO = 2  # classes: standardised scores would all be the same
SKETCH = "z."  # prefix of a part that scores the sketch of rows
PARTS: dict[str, type[Head]] = {head.name: head for head in (LDA, Ridge, QDA, RDA, Student, NearestMean)}


@dataclass(frozen=True)
class BlendOptions(HeadOptions, head="blend"):
    """Which heads are averaged."""

    parts: str = option(
        "lda+ridge",
        "the heads, each with its default options; after 'z.', of the sketch",
        choices=(*PARTS, *(SKETCH + name for name in PARTS)),
        joined="+",
    )


@dataclass(frozen=True, eq=False, repr=False)
class Blend(Head):
    """The mean of the standardised scores of several heads.

    ::

        s(x) = mean over parts of (s_part − mean_c s_part) / sd_c s_part      for each row x, over the classes

    With two classes only the sign would remain, so each part is divided by its own spread over the two class means
    instead, the same for every row. Parts are written ``lda+ridge``; ``z.student`` is the head `student` on the sketch of
    x. Standardising one row at a time makes log posteriors and regression scores comparable without any data.

    Guarantees
    ----------
    A blend of one head predicts as that head does.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> Blend.fit(gaussians, BlendOptions(parts="lda+ridge")).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "blend"
    needs = (("B",),)
    Options = BlendOptions
    scores_are_log_posteriors = False
    parts: tuple[tuple[str, Head], ...]
    sketch: Int[np.ndarray, "dim k"]
    spreads: Float[np.ndarray, " parts"] | None = None

    @classmethod
    def fit(cls, gaussians: Gaussians, options: BlendOptions = BlendOptions()) -> "Blend":
        """The blend of these parts, each with its default options."""
        fitted = []
        for part in sorted(options.parts.split("+")):
            if part.startswith(SKETCH) and gaussians.sketch is None:
                raise HeadError(
                    f"part {part!r} scores a sketch, and the recipe has no [sketch] section; write one, or leave out 'z.'."
                )
            space = gaussians.sketched().gaussians if part.startswith(SKETCH) else gaussians
            fitted.append((part, PARTS[part.removeprefix(SKETCH)].fit(space)))
        no_sketch = np.zeros((gaussians.means.shape[1], 0), dtype=np.int8)
        made = cls(tuple(fitted), no_sketch if gaussians.sketch is None else gaussians.sketch.matrix)
        if gaussians.present != TWO:
            return made
        present = gaussians.counts > 0
        apart = [
            np.ptp(scores[:, 0] - scores[:, 1]) for scores in made._of_parts(gaussians.means[present])[..., present]
        ]
        return replace(made, spreads=np.array([value if value > 0 else 1.0 for value in apart]))

    @classmethod
    def needs_with(cls, options: BlendOptions) -> tuple[tuple[str, ...], ...]:
        """What the parts need together."""
        needs: set[str] = set()
        for part in options.parts.split("+"):
            needs |= {"B", "Z"} if part.startswith(SKETCH) else set(PARTS[part].needs[0])
        return (tuple(sorted(needs)),)

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The mean of the parts' standardised scores."""
        found = self._of_parts(x)
        if self.spreads is not None:
            return np.sum(found / self.spreads[:, None, None], axis=0) / len(found)
        return np.sum([standardise(scores) for scores in found], axis=0) / len(found)

    def _of_parts(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "parts n classes"]:
        z = apply(x, self.sketch) if any(name.startswith(SKETCH) for name, _ in self.parts) else x
        return np.stack([head.scores(z if name.startswith(SKETCH) else x) for name, head in self.parts])

    def arrays(self) -> dict[str, np.ndarray]:
        """The head as named arrays, those of each part under its name."""
        own = {"sketch": np.ascontiguousarray(self.sketch)}
        own |= {} if self.spreads is None else {"spreads": self.spreads}
        for name, head in self.parts:
            own |= with_prefix(name, head.arrays())
        return own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> "Blend":
        """The head that `arrays` came from."""
        groups = group_by_prefix(arrays)
        own = groups.pop("", {})
        sketch, spreads = own.get("sketch"), own.get("spreads")
        if sketch is None or sketch.ndim != 2 or len(sketch) != axes["dim"] or sketch.dtype.kind != "i" or not groups:
            raise HeadError("a blend has parts and the sketch matrix they look through")
        if set(own) - {"sketch", "spreads"} or not _are_spreads(spreads, len(groups)):
            raise HeadError("a blend has one positive spread per part, or none at all")
        of_z = {"classes": axes["classes"], "dim": sketch.shape[1]}
        return cls(
            tuple((name, _part(name, part, of_z, axes)) for name, part in sorted(groups.items())), sketch, spreads
        )


def _are_spreads(spreads: np.ndarray | None, parts: int) -> bool:
    if spreads is None:
        return True
    return (
        spreads.shape == (parts,)
        and spreads.dtype.kind == "f"
        and bool((spreads > 0).all() and np.isfinite(spreads).all())
    )


def standardise(scores: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """Each row with mean 0 and deviation 1 over the classes that can be predicted."""
    possible = np.isfinite(scores)
    count = np.maximum(possible.sum(axis=1, keepdims=True), 1)
    centred = np.where(possible, scores, 0.0)
    centred = np.where(possible, scores - centred.sum(axis=1, keepdims=True) / count, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / count)
    return np.where(possible, centred / np.where(spread > 0, spread, 1.0), -np.inf)


def _part(name: str, arrays: Mapping[str, np.ndarray], of_z: Mapping[str, int], of_x: Mapping[str, int]) -> Head:
    kind = PARTS.get(name.removeprefix(SKETCH))
    if kind is None:
        raise HeadError(f"part {name[:40]!r} is not one a blend can have")
    return kind.from_arrays(arrays, of_z if name.startswith(SKETCH) else of_x)
