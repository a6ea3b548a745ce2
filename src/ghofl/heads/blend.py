"""Several heads of one total, averaged."""

from dataclasses import dataclass

import numpy as np

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads import hedge, lda, nearest_mean, qda, rda, ridge, student
from ghofl.heads.head import Head, Needs
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.rules import Mapped, Rule, Standardised
from ghofl.shapes import Float

TWO = 2  # classes: standardised scores would all be the same
SKETCH = "z."  # prefix of a part that scores the sketch of rows
PARTS = {module.HEAD.name: module.HEAD for module in (lda, ridge, qda, rda, student, hedge, nearest_mean)}


@dataclass(frozen=True)
class BlendOptions(HeadOptions, head="blend"):
    """Which heads are averaged."""

    parts: str = option(
        "lda+ridge",
        "the heads, each with its default options; after 'z.', of the sketch",
        choices=(*PARTS, *(SKETCH + name for name in PARTS)),
        joined="+",
    )


def fit_blend(gaussians: Gaussians, options: BlendOptions = BlendOptions()) -> Standardised:
    """The mean of the standardised scores of several heads.

    ::

        s(x) = mean over parts of (s_part − mean_c s_part) / sd_c s_part      for each row x, over the classes

    With two classes only the sign would remain, so each part is divided by its own spread over the two class means
    instead, the same for every row. Parts are written ``lda+ridge``; ``z.student`` is the head `student` on the sketch of
    x. Standardising one row at a time makes log posteriors and regression scores comparable without any data.

    Guarantees
    ----------
    A blend of one head predicts as that head does.
    """
    parts = tuple((part, _fit_part(part, gaussians)) for part in sorted(options.parts.split("+")))
    return Standardised(parts, _spreads(parts, gaussians) if gaussians.present == TWO else None)


def _fit_part(part: str, gaussians: Gaussians) -> Rule:
    if not part.startswith(SKETCH):
        return PARTS[part].fit(gaussians)
    if gaussians.sketch is None:
        raise HeadError(
            f"part {part!r} scores a sketch, and the recipe has no [sketch] section; write one, or leave out 'z.'."
        )
    return Mapped(gaussians.sketch.matrix, PARTS[part.removeprefix(SKETCH)].fit(gaussians.sketched().gaussians))


def _spreads(parts: tuple[tuple[str, Rule], ...], gaussians: Gaussians) -> Float[np.ndarray, " parts"]:
    """How far apart the two means are by the scores of each part."""
    present = gaussians.counts > 0
    found = (rule.scores(gaussians.means[present])[:, present] for _, rule in parts)
    apart = [float(np.ptp(scores[:, 0] - scores[:, 1])) for scores in found]
    return np.array([value if value > 0 else 1.0 for value in apart])


def _needs(options: BlendOptions) -> Needs:
    """What the parts need together."""
    needs: set[str] = set()
    for part in options.parts.split("+"):
        needs |= {"B", "Z"} if part.startswith(SKETCH) else set(PARTS[part].needs[0])
    return (tuple(sorted(needs)),)


HEAD = Head(BlendOptions, fit_blend, needs=(("B",),), log_posteriors=False, needs_of=_needs)
