"""A recipe from options, for every command and simulation.

What sites send and in which space comes first (as given, or the proposal for a budget), then the transform, then the
grid, and privacy last. Options that exclude each other are an error; none is ignored.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from ghofl.errors import PrivacyError, RecipeError
from ghofl.features import TOLERATED_CLIPPING, clipping_of, fit_grid, flat_features, shift_of, unit_scale, usual_length
from ghofl.planning.propose import Proposal, propose, propose_basis
from ghofl.planning.public import PublicRows, usual_public_length, with_public_space
from ghofl.recipe import Encoder, Grid, Lift, Limits, Privacy, Projection, Recipe, Sketch, Table, Transform
from ghofl.recipe.options import DEFAULT_BUDGET, DELTA, SITE_ROWS, RecipeOptions
from ghofl.shapes import Num

TOLERATED_FLAT = 0.1  # share of columns; a few dead entries of an encoder are normal
TABLE_BITS = 12  # tables have few numbers per row, and ranges much wider than most values


@dataclass(frozen=True, slots=True)
class Assembly:
    """A recipe, the proposal it follows where there was a budget, and sentences about what was chosen."""

    recipe: Recipe
    proposal: Proposal | None = None
    notes: tuple[str, ...] = ()


def assemble(
    options: RecipeOptions,
    classes: tuple[str, ...],
    encoder: Encoder,
    *,
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None,
    protected: Num[np.ndarray, "n dim"] | None = None,
    projection: Projection | None = None,
    table: Table | None = None,
    example: Num[np.ndarray, "e dim"] | None = None,
) -> Assembly:
    """The recipe that these options ask for; where none says what sites send, the best that fits `DEFAULT_BUDGET`.

    A finished `projection` takes the place of a random one, and `table` is the schema of rows from a table. Where nothing
    says what sites send, a table with breaks, and rows per site for them, gets a [basis]; not under an epsilon, where noise
    grows with every feature. The grid is the given one, that of a table's schema, or fitted to `public` rows, or to
    `protected` ones where no epsilon is promised; otherwise it follows from the unit length or the radius, or is the
    default. `PublicRows` also give a centre, a projection and a radius. A budget takes square roots of rows that are never
    negative; without rows to fit the grid to, an `example` of the encoder's (`encoders.example_rows`) shows whether they are.

    Guarantees
    ----------
    Under an epsilon nothing in the recipe depends on `protected` rows. Every option is in the recipe, or an error says
    which one cannot be.

    Examples
    --------
    >>> options = RecipeOptions(unit_length=True, epsilon=1.0)
    >>> recipe = assemble(options, ("cat", "dog"), Encoder(dim=64)).recipe
    >>> recipe.privacy.epsilon, recipe.privacy.radius, recipe.grid.scale
    (1.0, 1.0, 120.0)
    """
    learnt, fitting = (public, public.x) if isinstance(public, PublicRows) else (None, public)
    options = _with_budget(options, projection)
    options, notes = (_with_table(options), ()) if table is not None else _with_unit_length(options, learnt)
    rows = protected if fitting is None and options.epsilon is None else fitting
    proposal = _basis(options, classes, table, learnt)
    if proposal is None:
        space, proposal = _space(options, classes, encoder, learnt, projection, None if rows is fitting else rows)
        space = replace(space, transform=_transform(options, example if rows is None else rows), table=table)
    else:
        space = proposal.recipe
    recipe = _with_grid(space if learnt is None else with_public_space(space, learnt), options, rows, protected)
    if learnt is not None and options.epsilon is not None and options.radius is None:
        options = replace(options, radius=usual_public_length(recipe, learnt))
    limits = Limits(max_rows=options.max_rows)
    recipe = replace(recipe, privacy=_promise(options, recipe), limits=limits)
    if rows is not None and options.scale is not None:
        clipping_of(recipe, rows).warn(recipe)
    return Assembly(recipe, proposal, (*notes, *_notes_on_grid(recipe, rows)))


def usual_power(rows: Num[np.ndarray, "n dim"] | None, anchor: tuple[float, ...] = ()) -> float:
    """The power for rows like these: the square root of what is never negative, and nothing for other rows, or none.

    >>> usual_power(np.array([[0.0, 2.0]])), usual_power(np.array([[-0.1, 2.0]])), usual_power(None)
    (0.5, 1.0, 1.0)
    """
    if rows is None or not len(rows):
        return 1.0
    least = rows.min(axis=0)
    return 0.5 if np.all(least >= (np.array(anchor) if anchor else 0.0)) else 1.0


def _with_budget(options: RecipeOptions, projection: Projection | None) -> RecipeOptions:
    """The options with the default budget, where nothing says what sites send."""
    if projection is not None:
        options = replace(options, project=projection.dim)
    return replace(options, budget=DEFAULT_BUDGET) if options.budget is None and not options.chosen_space else options


def _transform(options: RecipeOptions, rows: Num[np.ndarray, "p dim"] | None) -> Transform:
    power = options.power
    if power is None:
        power = 1.0 if options.budget is None else usual_power(rows, options.anchor)
    return Transform(power=power, unit_length=options.unit_length, anchor=options.anchor)


def _promise(options: RecipeOptions, recipe: Recipe) -> Privacy:
    """The privacy section for a recipe whose space and grid are already chosen."""
    given = {f.name: getattr(options, f.name) for f in fields(Privacy)}
    if options.epsilon is not None:
        given["delta"] = DELTA if options.delta is None else options.delta
        given["radius"] = _usual_radius(recipe) if options.radius is None else options.radius
    return Privacy(**{name: value for name, value in given.items() if value is not None})


def _with_table(options: RecipeOptions) -> RecipeOptions:
    """The options with the bits of a table's grid; no square root of its embeddings, which are in [−1, 1], is taken."""
    bits = TABLE_BITS if options.bits is None else options.bits
    return replace(options, bits=bits, power=1.0 if options.power is None else options.power)


def _with_unit_length(options: RecipeOptions, learnt: PublicRows | None) -> tuple[RecipeOptions, tuple[str, ...]]:
    """Under a budget and an epsilon, rows of unit length unless their length is bounded in another way."""
    is_open = learnt is None and options.radius is None and options.scale is None and not options.unit_length
    if options.budget is None or options.epsilon is None or not is_open:
        return options, ()
    note = (
        "Rows are scaled to length 1, which bounds what one row can change without looking at any row; "
        "give a `radius` to keep their lengths."
    )
    return replace(options, unit_length=True), (note,)


def _basis(
    options: RecipeOptions, classes: tuple[str, ...], table: Table | None, learnt: PublicRows | None
) -> Proposal | None:
    """The proposal with hinges and cosines of a table's columns, where a budget chooses and no option is against it."""
    if table is None or options.budget is None or options.chosen_space or options.keep:
        return None
    if options.epsilon is not None or learnt is not None or options.unit_length or options.anchor or options.power != 1:
        return None
    table = table if options.site_rows is None else replace(table, site_rows=options.site_rows)
    assert options.bits is not None, "a table's grid has bits"
    return propose_basis(options.budget, classes, table, options.bits, seed=options.seed, secure=options.secure)


def _space(
    options: RecipeOptions,
    classes: tuple[str, ...],
    encoder: Encoder,
    learnt: PublicRows | None,
    projection: Projection | None,
    all_rows: Num[np.ndarray, "n dim"] | None,
) -> tuple[Recipe, Proposal | None]:
    """The recipe with what sites send, the space and the bits of the grid, and the proposal for a budget."""
    if options.budget is not None:
        _check_budget(options)
        # A scale is meant for the usual grid: with fewer bits, a smaller range would clip the rows that it was chosen for.
        bits = Grid().bits if options.bits is None and options.scale is not None else options.bits
        proposal = propose(
            options.budget, classes, encoder.dim, options.site_rows or SITE_ROWS, encoder.name,
            bits=bits, seed=options.seed, secure=options.secure, noisy=options.epsilon is not None,
            public=learnt is not None, epsilon=options.epsilon,
            known=None if all_rows is None or options.site_rows else len(all_rows),
        )  # fmt: skip
        return replace(proposal.recipe, encoder=encoder), proposal
    _check_keep(options)
    if options.site_rows is not None:
        raise RecipeError(
            f"`site_rows` is for a budget, and {' and '.join(options.chosen_space)} already says what sites "
            "send; leave one of them out."
        )
    seed = options.seed
    drawn = None if options.project is None else Projection(dim=options.project, seed=seed)
    sketch = None if options.sketch is None else Sketch(dim=options.sketch, seed=seed)
    recipe = Recipe(
        classes=classes,
        encoder=encoder,
        statistics=("B",) if options.statistics is None else options.statistics,
        grid=Grid() if options.bits is None else Grid(bits=options.bits),
        projection=projection or drawn,
        lift=None if options.lift is None else Lift(dim=options.lift, seed=seed, keep=options.keep),
        sketch=Sketch(dim=encoder.dim, kept=True) if options.keep else sketch,
    )
    return recipe, None


def _check_keep(options: RecipeOptions) -> None:
    if options.keep and options.lift is None:
        raise RecipeError("keep puts the original features in front of lifted ones, and there is no lift; give it too.")
    if options.keep and options.sketch is not None:
        raise RecipeError(
            f"keep sends the class covariances of the original features, and sketch = {options.sketch} those of a sketch; "
            "a recipe has one of them: leave the other out."
        )


def _check_budget(options: RecipeOptions) -> None:
    given = (*options.chosen_space, *(("keep",) if options.keep else ()))
    if given:
        names = " and ".join(f"`{name}`" for name in given)
        raise RecipeError(
            f"a `budget` chooses what sites send and in which space, and {names} was given too; leave one of them out."
        )


def _with_grid(
    recipe: Recipe,
    options: RecipeOptions,
    rows: Num[np.ndarray, "p dim"] | None,
    protected: Num[np.ndarray, "n dim"] | None,
) -> Recipe:
    """The recipe with the scale of its grid; under an epsilon `rows` are public, and no protected row is used."""
    is_private, scale = options.epsilon is not None, options.scale
    if scale is None and recipe.table is not None:
        recipe = replace(recipe, grid=replace(recipe.grid, scale=_table_scale(recipe, recipe.table)))
        has_matrix = recipe.projection is not None and bool(recipe.projection.matrix)
        return fit_grid(recipe, rows, fit_scale=False) if has_matrix and rows is not None else recipe
    if scale is not None:
        recipe = replace(recipe, grid=replace(recipe.grid, scale=scale))
    if rows is not None:
        return fit_grid(recipe, rows, fit_scale=scale is None)
    if scale is not None:
        return recipe if options.budget is None else _with_room(recipe)
    if options.unit_length:
        return replace(recipe, grid=replace(recipe.grid, scale=unit_scale(recipe.grid, recipe.encoder.dim)))
    if is_private and options.radius is not None:
        return replace(recipe, grid=replace(recipe.grid, scale=_radius_scale(recipe, options.radius)))
    if is_private and protected is not None:
        raise PrivacyError(
            f"a grid fitted to the training rows would tell about them, outside what epsilon = "
            f"{options.epsilon} bounds; use unit length "
            "(`unit_length`), a `radius`, or public rows (an anchor that is the mean of some)."
        )
    return recipe


def _with_room(recipe: Recipe) -> Recipe:
    """The recipe with twice the usual room after a projection or lift, which no rows are there to fit."""
    if recipe.projection is not None:
        shift = shift_of(recipe.projection, recipe.encoder.dim) + 1
        return replace(recipe, projection=replace(recipe.projection, shift=shift))
    if recipe.lift is not None:
        return replace(recipe, lift=replace(recipe.lift, shift=shift_of(recipe.lift, recipe.encoder.dim) + 1))
    return recipe


def _table_scale(recipe: Recipe, table: Table) -> float:
    """The scale of a table's grid, which follows from the schema alone: the grid ends at ±1, or ±2 around a centre.

    Beside a random projection or lift it is so much smaller that these clip next to nothing. For x no longer than l and
    signs R, an entry of xR is above t·l with a probability of at most exp(−t²/2) (Hoeffding 1963, theorem 2). A larger shift
    would clip as little, but make lifted features small beside the kept ones, which shrinkage then favours.
    """
    reach = 2 if recipe.transform.centre else 1
    widest, space = recipe.grid.bound // reach, recipe.projection or recipe.lift
    if space is None or (recipe.projection is not None and recipe.projection.matrix):
        return float(widest)
    longest = 1.0 if recipe.transform.unit_length else reach * table.longest
    times = float(np.sqrt(2.0 * np.log(1.0 / TOLERATED_CLIPPING)))
    return float(min(widest, recipe.grid.bound * 2 ** shift_of(space, recipe.encoder.dim) // (times * longest)))


def _notes_on_grid(recipe: Recipe, rows: Num[np.ndarray, "p dim"] | None) -> tuple[str, ...]:
    """A note about raw columns, where the largest sets the one scale of the grid and others become flat."""
    share = 0.0 if rows is None else flat_features(recipe, rows)
    if share <= TOLERATED_FLAT:
        return ()
    return (
        f"{share:.0%} of the columns are so small beside the largest that the grid rounds them to one value, so heads learn "
        "nothing from them: bring columns to one size, or give them ranges by a schema ('ghofl schema').",
    )


def _radius_scale(recipe: Recipe, radius: float) -> float:
    """A grid scale for feature rows of length `radius`, chosen without rows, as `unit_scale` is for length 1."""
    return float(f"{unit_scale(recipe.grid, recipe.encoder.dim) * usual_length(recipe) / radius:.3g}")


def _usual_radius(recipe: Recipe) -> float:
    if recipe.table is not None and not recipe.transform.unit_length:
        return recipe.table.longest * usual_length(recipe)
    if not recipe.transform.unit_length:
        raise PrivacyError(
            f"the noise of epsilon = {recipe.privacy.epsilon} follows from the longest row allowed; write "
            "`radius`, or `unit_length`."
        )
    return usual_length(recipe)
