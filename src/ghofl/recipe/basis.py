"""Public features of a table's columns beside the columns themselves, so that linear heads bend and see columns together.

::

    hinges      max(0, x − t)        at up to `hinges` of the breaks t of each number, on the scale from −1 to 1
    cosines     cos(π/2 · r·w + b)   of the ranks r of all columns, with public w and b (`ghofl.features.basis`)

Everything follows from the schema and the seed. The constants are those of `benchmarks/sets.py`.
"""

from dataclasses import dataclass

from ghofl.recipe.schema import check as _check
from ghofl.recipe.schema import coerce
from ghofl.recipe.sections import MAX_DIM, Encoder, Lift, Projection, Transform
from ghofl.recipe.table import Table

SATURATION = 0.33  # features per row of a site: what custodians ask of a covariance (DataSHIELD)
HINGES, MOST_HINGES = 5, 16
ROWS_PER_COSINE, FEWEST_COSINES, USUAL_COSINES = 5, 20, 400
MOST_COSINES = 4096
SIGNS = 16  # random signs whose sum is one public weight
MOST_SIGNS = 2**28  # that are computed for one recipe


@dataclass(frozen=True, slots=True)
class Basis:
    """How many features a recipe adds to the columns of its table: hinges per number, and cosines of ranks.

    >>> from ghofl.recipe.table import Column
    >>> table = Table((Column("age", "number", low=0, high=100, breaks=(25, 50, 75)),))
    >>> Basis(hinges=2).knots(table)
    ((0, -0.5), (0, 0.5))
    """

    hinges: int = HINGES
    cosines: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        coerce(self, "basis.")
        for name, most in (("hinges", MOST_HINGES), ("cosines", MOST_COSINES), ("seed", 2**63 - 1)):
            value = getattr(self, name)
            _check(0 <= value <= most, f"basis.{name} is {value}; write a whole number from 0 to {most}.")

    def knots(self, table: Table) -> tuple[tuple[int, float], ...]:
        """Where the hinges are: the number of the embedding's entry, and the knot; spread over a column's breaks."""
        out: list[tuple[int, float]] = []
        at = 0
        for column in table.columns:
            inner = column.knots[1:-1]
            count = min(self.hinges, len(inner))
            places = ((2 * (i + 1) * (len(inner) + 1) + count + 1) // (2 * (count + 1)) - 1 for i in range(count))
            out += [(at, inner[place]) for place in places]
            at += column.width
        return tuple(out)

    def width(self, table: Table) -> int:
        """How many features it adds."""
        breaks = (len(column.breaks) for column in table.columns if column.kind in ("number", "log"))
        return sum(min(self.hinges, count) for count in breaks) + self.cosines

    def check(
        self,
        table: Table | None,
        encoder: Encoder,
        transform: Transform,
        space: Projection | Lift | None,
    ) -> None:
        """Raise `RecipeError` unless a recipe with this table, transform and space can have it."""
        _check(table is not None, "[basis] adds features to the columns of a [table], and there is none; leave it out.")
        assert table is not None
        _check(
            space is None and transform == Transform(),
            "[basis] is made of the columns as they are; leave it out, or [projection], [lift] and [transform].",
        )
        rows, dim = table.site_rows, encoder.dim + self.width(table)
        _check(
            not self.cosines or rows is not None,
            f"basis.cosines is {self.cosines}, and table.site_rows does not say whether sites have rows for them; write it.",
        )
        _check(
            rows is None or dim <= SATURATION * rows,
            f"[basis] makes {dim} features of {encoder.dim}, and {rows} rows per site (table.site_rows) carry "
            f"{int(SATURATION * (rows or 0))}; write fewer hinges or cosines.",
        )
        _check(
            dim <= MAX_DIM and SIGNS * encoder.dim * self.cosines <= MOST_SIGNS,
            f"[basis] makes {dim} features of {encoder.dim}, more than are computed; write fewer hinges or cosines.",
        )


def usual_basis(table: Table, seed: int = 0) -> Basis | None:
    """The features that a table gets by default: as many as the rows of a site carry, or None where they carry none.

    All features together are at most 0.33 per row of a site. Hinges come first, as many for each number; then a cosine
    for every five rows, 20 to 400 of them.

    >>> from ghofl.recipe.table import Column
    >>> table = Table((Column("age", "number", low=0, high=100, breaks=(20, 30, 50)),), site_rows=900)
    >>> usual_basis(table)
    Basis(hinges=5, cosines=180, seed=0)
    """
    if table.site_rows is None:
        return None
    room = int(SATURATION * table.site_rows) - table.dim
    hinges = next((h for h in range(HINGES, -1, -1) if Basis(h).width(table) <= room), None)
    if hinges is None:
        return None
    room -= Basis(hinges).width(table)
    most = min(USUAL_COSINES, room, MOST_SIGNS // (SIGNS * table.dim))
    cosines = min(most, max(FEWEST_COSINES, table.site_rows // ROWS_PER_COSINE))
    found = Basis(hinges, cosines if cosines >= FEWEST_COSINES else 0, seed)
    return found if found.width(table) else None
