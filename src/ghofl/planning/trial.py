"""Which views suit some labelled images: each candidate is embedded and judged by LDA on held-out rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.encoders import Runtime, SampleEncoder, Views, identity
from ghofl.encoders.embed import Progress, embed
from ghofl.errors import DatasetError, EncoderError
from ghofl.evaluation.leave_out import cross_validate
from ghofl.planning.assembly import assemble, usual_power
from ghofl.recipe import Encoder, RecipeOptions
from ghofl.rows.base import Samples
from ghofl.shapes import Bool, Int64, Num

TRIED_ROWS = 1000
FEWEST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate: its accuracy on held-out rows, and its cost; images per second are not known for cached rows."""

    views: Views
    fingerprint: str
    dim: int
    accuracy: float
    standard_error: float
    images_per_second: float | None

    def to_dict(self) -> dict[str, Any]:
        """The candidate as plain values."""
        return {
            "views": str(self.views),
            "options": self.views.options,
            "fingerprint": self.fingerprint,
            "dim": self.dim,
            "accuracy": self.accuracy,
            "standard_error": self.standard_error,
            "images_per_second": self.images_per_second,
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """All candidates, the cheapest first, and the recommended one."""

    rows: int
    tried: tuple[Candidate, ...]
    chosen: Candidate


def candidates(size: int) -> tuple[Views, ...]:
    """The views to try for a network of this input size, the cheapest first.

    >>> [str(views) for views in candidates(224)][1:3]
    ['flip', 'flip 160,224,288']
    """
    paper, quick, default, best = (Views.of_quality(name, size) for name in ("paper", "quick", "default", "best"))
    bicubic = Views(default.flip, default.scales, kernel="bicubic")
    bilinear = Views(default.flip, default.scales, kernel="bilinear")
    return paper, quick, default, bilinear, bicubic, best


def try_views(
    samples: Samples,
    load: Callable[[Views], SampleEncoder],
    cache: Path,
    *,
    runtime: Runtime | None = None,
    rows: int = TRIED_ROWS,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Trial:
    """Measure candidates on at most `rows` labelled images, and choose one.

    For every candidate, LDA of four fifths of the rows predicts the rest, in turn. The cheapest candidate within one
    standard error of the most accurate is chosen; the standard error is that of differences row by row. Candidates that
    the network does not allow (other sizes, earlier maps) are left out, and so is the kernel that it has by default.

    Guarantees
    ----------
    Rows are drawn by a fixed seed, and embedded as `embed` does: a run that was killed continues where it stopped.
    """
    few = _draw(samples, rows)
    tried: list[Candidate] = []
    right: list[Bool[np.ndarray, " n"]] = []
    for views in candidates(load(Views()).preprocessing.size):  # type: ignore[attr-defined]
        try:
            encoder = load(views)
        except EncoderError:  # the network does not have these sizes or maps
            continue
        if any(encoder.fingerprint == one.fingerprint for one in tried):
            continue
        started = time.perf_counter()
        found = embed(few, encoder, cache, runtime=runtime, skip_bad=skip_bad, progress=_progress_of(views, progress))
        seconds = time.perf_counter() - started
        assert found.rows.y is not None
        right.append(_predicts(found.rows.x, np.unique(found.rows.y, return_inverse=True)[1], identity(encoder)))
        error = float(right[-1].std() / np.sqrt(len(right[-1])))
        rate = None if found.resumed else len(few) / seconds
        tried.append(Candidate(views, encoder.fingerprint, encoder.dim, float(right[-1].mean()), error, rate))
    return Trial(len(right[0]), tuple(tried), tried[cheapest(right)])


def cheapest(right: Sequence[Bool[np.ndarray, " n"]]) -> int:
    """The first of several predictors that is within one standard error of the one that is right most often.

    >>> always, often = np.ones(100, bool), np.arange(100) % 10 > 0
    >>> cheapest([often, always]), cheapest([always, always])
    (1, 0)
    """
    best = max(right, key=lambda own: own.sum())
    differences = [best.astype(np.float64) - own for own in right]
    return next(i for i, d in enumerate(differences) if d.mean() <= d.std() / np.sqrt(len(d)))


def _predicts(x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], encoder: Encoder) -> Bool[np.ndarray, " n"]:
    """Whether LDA predicts each row correctly, built from the four fifths that do not include it."""
    classes = tuple(map(str, range(int(y.max()) + 1)))
    options = RecipeOptions(power=usual_power(x), statistics=("B",))
    recipe = assemble(options, classes, encoder, public=np.asarray(x)).recipe
    return cross_validate(recipe, np.asarray(x), y, "lda")["lda"].predicted == y


def _draw(samples: Samples, rows: int) -> Samples:
    if samples.kind != "image":
        raise DatasetError(f"views are for images, and the data holds samples of kind {samples.kind!r}; give images.")
    if samples.labels is None or len(samples.classes()) < 2 or min(rows, len(samples)) < FEWEST_ROWS:
        raise DatasetError(
            f"views are tried on labelled images, at least {FEWEST_ROWS} of two classes; name the column of labels, or "
            "give more images."
        )
    order = np.random.default_rng(0).permutation(len(samples))[:rows]
    return samples.only(np.sort(order))


def _progress_of(views: Views, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda _, done, of: progress(str(views) or "one view", done, of)
