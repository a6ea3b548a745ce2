"""What leaves a site: its rows are added up, and the sums become a message or the vector that a secure round hides.

Command line, Flower, simulation and demo all use this module.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ghofl.compute import arrays
from ghofl.compute.threads import prefetch
from ghofl.encoders.embed import Bad, encode_labelled
from ghofl.errors import PrivacyError
from ghofl.features import Clipping, Features
from ghofl.moments import CutBuilder, Layout, Moments, MomentsBuilder
from ghofl.outbox.row_version import RowVersion
from ghofl.outbox.site_rows import Embedded, Encodable, check_persons
from ghofl.privacy import NoiseStream, as_vector, before_noise, draw_noise, from_vector, plan_of, protect
from ghofl.recipe import Recipe
from ghofl.shapes import Bool, Int64
from ghofl.wire.message import Message, check_row_count

Progress = Callable[[str, int, int], None]
BLOCK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The exact moments of a site's rows, what fell outside the grid, and the samples that could not be read.

    Those of shards of the rows add up, with `+` and `sum`. `version` names the rows (see `RowVersion`); it is empty where
    nobody asked for it, and for a sum. `left_out` is how many further rows were not counted under an epsilon, because they do
    not fit the recipe.

    Guarantees
    ----------
    Moments and clipping of a sum are, to the bit, those of one process that counts all rows
    (test_the_message_of_shards_is_that_of_one_process).
    """

    moments: Moments
    clipping: Clipping = field(default_factory=Clipping)
    bad: tuple[Bad, ...] = field(default=(), repr=False)
    version: str = ""
    left_out: int = 0
    rows_per_person: int | None = None

    def __add__(self, other: "Counted") -> "Counted":
        if self.rows_per_person is not None or other.rows_per_person is not None:
            raise PrivacyError(
                "the rows per person are limited, and a shard does not see the person's rows in the others; count all rows of "
                "the site together."
            )
        bad, left_out = self.bad + other.bad, self.left_out + other.left_out
        return Counted(self.moments + other.moments, self.clipping + other.clipping, bad, left_out=left_out)

    def __radd__(self, other: object) -> "Counted":
        return self if other == 0 else NotImplemented  # where `sum` starts

    @property
    def not_counted(self) -> int:
        """How many rows and samples are not in the moments."""
        return self.left_out + len(self.bad)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """What leaves a site under a recipe: a `message`, or in secure recipes a `vector` that a round hides.

    `moments` are as they leave, except for the share of distributed noise, which every secure round draws anew.
    """

    recipe: Recipe
    moments: Moments
    counted: Counted
    message: Message | None = None

    def vector(self, stream: NoiseStream | None = None) -> Int64[np.ndarray, " entries"]:
        """What a secure round hides, with this round's share of distributed noise where the recipe asks for it."""
        vector = as_vector(self.moments, self.recipe)
        return add_shared_noise(vector, self.recipe, stream) if has_shared_noise(self.recipe) else vector


def outgoing(
    recipe: Recipe,
    rows: Embedded | Encodable | Counted,
    name: str = "",
    *,
    stream: NoiseStream | None = None,
    progress: Progress | None = None,
    features: Features | None = None,
) -> Outgoing:
    """What leaves the site `name` with these rows: exact sums, cut, rounded and with local noise as the recipe says.

    Guarantees
    ----------
    The exact sums never depend on blocks, batches or threads. Noise comes from the operating system's entropy unless a
    `stream` is given. It is drawn once per call; a share of distributed noise is drawn only in `Outgoing.vector`.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=2))
    >>> left = outgoing(recipe, Embedded(np.array([[0.5, 1.0], [2.0, 0.0]]), np.array([0, 1])), "north")
    >>> left.message.site, left.message.moments.counts
    ('north', array([1, 1]))
    """
    if isinstance(rows, Embedded) and not recipe.privacy.secure:
        check_row_count(len(rows.x), recipe)  # before they are added up, which takes minutes where they are many
    check_persons(recipe, rows.rows_per_person)
    counted = rows if isinstance(rows, Counted) else count(features or Features.of(recipe), rows, progress)
    if not recipe.privacy.secure:
        message = Message.of(counted.moments, recipe, name, stream, counted.clipping)
        return Outgoing(recipe, message.moments, counted, message)
    moments = counted.moments
    left = before_noise(moments, recipe) if has_shared_noise(recipe) else protect(moments, recipe, stream)
    return Outgoing(recipe, left, counted)


def count(
    features: Features, rows: Embedded | Encodable, progress: Progress | None = None, version: RowVersion | None = None
) -> Counted:
    """The exact moments of a site's rows, a block of them at a time; a `version` is told every row on the way.

    Under an epsilon nothing is refused because of rows, which would be an answer without noise: a row that is not finite, or
    whose label is not a class, is left out, and sums that would leave the 64-bit integers stay at their ends.
    """
    recipe = features.recipe
    check_persons(recipe, rows.rows_per_person)
    if version is not None and isinstance(rows, Encodable):
        rows = replace(rows, samples=version.watch(rows.samples, rows.labels_are_numbers))
    layout, is_private = Layout.of(recipe), recipe.privacy.epsilon is not None
    sums = CutBuilder if is_private else MomentsBuilder
    builder, clipping, bad = sums(layout, features.sketch if layout.sketch else None), Clipping(), []
    blocks, left_out = _blocks(rows, progress or (lambda *_: None), recipe, bad), 0
    for x, y in blocks:
        if is_private:
            fits = _fits(x, y, len(recipe.classes))
            x, y, left_out = x[fits], y[fits], left_out + int(np.sum(~fits))
        if version is not None and isinstance(rows, Embedded):
            version.add(x, y)
        q, clipped = features.rows(x)
        builder.add(q, y)
        clipping += clipped
    text = "" if version is None else version.text
    return Counted(builder.moments(), clipping, tuple(bad), text, left_out, rows.rows_per_person)


def _fits(x: np.ndarray, y: np.ndarray, classes: int) -> Bool[np.ndarray, " n"]:
    """Which rows have a class and only finite numbers."""
    has_class = (y >= 0) & (y < classes)
    return has_class & np.isfinite(x).all(axis=1) if x.dtype.kind == "f" else has_class


def _blocks(rows: Embedded | Encodable, report: Progress, recipe: Recipe, bad: list[Bad]):
    if isinstance(rows, Encodable):
        is_private = recipe.privacy.epsilon is not None
        yield from encode_labelled(
            rows.samples, rows.encoder, recipe.classes,
            runtime=rows.runtime, batch_size=rows.batch_size, skip_bad=rows.skip_bad or is_private,
            labels_are_numbers=rows.labels_are_numbers, row_by_row=is_private, progress=report, bad=bad,
        )  # fmt: skip
        return
    bad += rows.bad
    done = 0
    for x, y in prefetch(_read(rows)):
        yield x, y
        done += len(y)
        report("rows", done, len(rows.x))


def _read(rows: Embedded) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of rows in memory; rows of a file are read here, while earlier blocks are being added up."""
    for start in range(0, len(rows.x), BLOCK):
        x, y = rows.x[start : start + BLOCK], rows.y[start : start + BLOCK]
        yield (_copy(x) if arrays.is_mapped(x) else x), y


def _copy(x: np.ndarray) -> np.ndarray:
    """A copy of rows of a mapped file; the file's pages are released, because it may be larger than memory."""
    out = np.array(x)
    arrays.evict(x)
    return out


def has_shared_noise(recipe: Recipe) -> bool:
    """Whether every site adds a share of the noise inside a secure round."""
    plan = plan_of(recipe)
    return plan is not None and plan.mechanism == "distributed"


def add_shared_noise(
    vector: Int64[np.ndarray, " entries"], recipe: Recipe, stream: NoiseStream | None = None
) -> Int64[np.ndarray, " entries"]:
    """A site's vector with its share of distributed noise, drawn from the stream of one round."""
    return as_vector(draw_noise(from_vector(vector, recipe), recipe, stream), recipe)
