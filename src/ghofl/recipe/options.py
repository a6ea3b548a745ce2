"""Every option of a recipe, declared once: its type, range, default and meaning, and the key that holds it in the file.

The sections of a recipe have these fields, and the command line, Python and the docs read them from here.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ghofl.recipe.option import Option, check_ranges, known_options, option
from ghofl.recipe.schema import coerce

MAX_DIM = 65_536
MOST = 2**40  # rows, sites
DELTA = 1e-5
SITE_ROWS = 5000
DEFAULT_BUDGET = 5_000_000  # bytes per message, unless an option says what sites send
SPACE = ("statistics", "project", "lift", "sketch")  # what a budget would choose

_dimension = partial(option, None, between=(1, MAX_DIM))


@dataclass(frozen=True, kw_only=True)
class TransformOptions:
    """What happens to a row before the grid."""

    SECTION: ClassVar[str] = "transform"
    power: float | None = option(
        None, "Signed power transform: 0.5 is the square root, 1 none", above=0, between=(0, 4),
        auto="0.5 where a budget chooses and rows are never negative, 1 otherwise",
    )  # fmt: skip
    unit_length: bool = option(False, "Scale every row to length 1", is_common=True)
    anchor: tuple[float, ...] = option((), "A public vector to subtract from rows")


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """The fixed-point grid."""

    SECTION: ClassVar[str] = "grid"
    bits: int | None = option(
        None, "Bits of the grid", between=(2, 16), auto="8; 12 for tables; a budget without a scale may choose 6"
    )
    scale: float | None = option(
        None, "Grid steps per unit of the embedding", above=0, auto="fitted to the given rows, but not under ε",
        is_common=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """What a recipe promises about rows."""

    SECTION: ClassVar[str] = "privacy"
    radius: float | None = option(
        None, "Shorten feature rows to this length", above=0, auto="under ε the usual length of rows of unit length"
    )
    epsilon: float | None = option(None, "Promise this ε by noise; smaller is more private", above=0, is_common=True)
    delta: float | None = option(None, "The δ that goes with ε", above=0, below=1, auto=f"{DELTA:g} under ε")
    unit: str = option("record", "What ε protects: one more or less of them", choices=("record", "client", "person"))
    noise: str = option(
        "central", "Who adds noise: the server, the clients inside secure aggregation, or each client alone",
        choices=("central", "distributed", "local"),
    )  # fmt: skip
    secure: bool = option(False, "Secure aggregation: the server sees the total only", is_common=True)
    min_count: int = option(0, "Drop classes with fewer rows than this from the total", between=(0, MOST))
    min_cohort: int | None = option(
        None, "Minimum number of sites in a total that is used", between=(1, MOST), auto="1"
    )
    merge_into: str = option("", "Put the rows of dropped classes into this class")
    client_rows: int | None = option(
        None, "For the unit 'client': cut a client's moments to the length of this many full rows", between=(1, MOST)
    )
    rounding: int | None = option(None, "Low bits to leave out of second moments", between=(0, 40))
    person_rows: int | None = option(
        None, "For the unit 'person': maximum rows per person that count at a site", between=(1, MOST)
    )
    hand_out: bool | None = option(
        None, "Let sites have the exact total they are in; less its own sums, it is the others'",
        auto="no",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """How much one site may contribute."""

    SECTION: ClassVar[str] = "limits"
    max_rows: int | None = option(
        None, "Maximum rows per site; a lower number makes secure rounds smaller", between=(1, MOST), auto="one million"
    )


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(LimitOptions, PrivacyOptions, GridOptions, TransformOptions):
    """What a recipe should be like; `assemble` chooses what is left out.

    Guarantees
    ----------
    Every value is of its option's type and in its range. Where nothing says what sites send (`statistics`, `project`,
    `lift` or `sketch`), a budget chooses it.

    Examples
    --------
    >>> RecipeOptions(epsilon=1, unit_length=True).epsilon
    1.0
    >>> RecipeOptions(bits=40)
    Traceback (most recent call last):
    ghofl.errors.RecipeError: grid.bits is 40; it must be a whole number between 2 and 16, or left out (8; 12 for tables; a \
budget without a scale may choose 6).
    """

    statistics: tuple[str, ...] | None = option(
        None, "What sites send beside counts and sums: any of D, B and S", key="statistics", is_common=True,
        auto="a budget chooses; B in a space that is given",
    )  # fmt: skip
    project: int | None = _dimension("Project to this many dimensions", key="projection.dim")
    lift: int | None = _dimension("Lift to this many random features", key="lift.dim")
    keep: bool = option(
        False, "With a lift: put the original features in front, and send their class covariances", key="lift.keep"
    )
    sketch: int | None = _dimension("Send class covariances of a sketch of this many dimensions", key="sketch.dim")
    seed: int = option(0, "Seed of the public random matrices", between=(0, 2**63 - 1))
    budget: int | None = option(
        None, "Bytes per message, e.g. 5000000 or 5MB: choose what sites send and the space with the best expected accuracy",
        between=(1, 2**62), is_common=True, auto=f"{DEFAULT_BUDGET // 10**6} MB, where nothing else says what sites send",
    )  # fmt: skip
    site_rows: int | None = option(
        None, "Rows per site, for what a budget and a table's features may be", between=(1, MOST),
        auto=f"{SITE_ROWS:,} for a budget, the schema's for a table",
    )  # fmt: skip

    def __post_init__(self) -> None:
        coerce(self, "", RecipeOptions)
        check_ranges(self)

    @property
    def chosen_space(self) -> tuple[str, ...]:
        """The options given that say what sites send, or in which space."""
        return tuple(name for name in SPACE if getattr(self, name) is not None)


OPTIONS: dict[str, Option] = known_options(RecipeOptions)
