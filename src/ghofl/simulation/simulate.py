"""The whole story in one function: rows over clients, every message through bytes, one total, many heads; once or many times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ghofl.errors import RecipeError
from ghofl.heads.spec import DEFAULT_HEAD, AnyHead, each_head
from ghofl.planning.assembly import Assembly
from ghofl.planning.public import PublicRows
from ghofl.privacy import NoiseStream
from ghofl.recipe import OPTIONS, Recipe, RecipeOptions, Schema
from ghofl.recipe.option import takes
from ghofl.recipe.schema import coerce
from ghofl.shapes import Num
from ghofl.simulation.baselines import Method, heads_of, parse_methods
from ghofl.simulation.cohort import Cohort
from ghofl.simulation.dataset import Dataset as Dataset
from ghofl.simulation.dataset import Source, load, source_of, split_keywords
from ghofl.simulation.federation import Federation, Progress, Simulation
from ghofl.simulation.needs import all_heads, assembly_for
from ghofl.simulation.partition import Parts, split
from ghofl.simulation.runs import Row, Runs, combinations, is_several, mark, run_all

ALL = "all"  # every head that a space allows
Heads = AnyHead | Sequence[AnyHead] | Mapping[str, Method]
Public = Num[np.ndarray, "p dim"] | PublicRows


def simulate(
    data: Any,
    clients: Parts | int | Sequence[int] = 10,
    recipe: Recipe | RecipeOptions | None = None,
    heads: Heads = DEFAULT_HEAD,
    progress: Progress | None = None,
    cohort: Cohort | None = None,
    stream: NoiseStream | None = None,
    *,
    alpha: float | Sequence[float | None] | None = None,
    classes_per_client: int | Sequence[int | None] | None = None,
    seed: int | Sequence[int] = 0,
    preset: str = "default",
    public: Public | None = None,
    output: str | Path | None = None,
    fresh: bool = False,
    name: str = "",
    **more: Any,
) -> Simulation | Runs:
    """Every client computes its moments and sends one message; the server adds them up, fits and scores heads.

    `data` is whatever `source_of` takes, e.g. ``(x, y)`` or a DataFrame with its `label_column`. `clients` is how many there
    are, with a Dirichlet skew of `alpha` or some `classes_per_client`, or the rows of each. `recipe` is by default the
    smallest that the heads can be built from, and its options may be given by name, ``epsilon=4.0, unit_length=True``. `heads`
    are names or values, "all" is every one, and there may be baselines that are trained in rounds on the same clients, such as
    ``["best", MY_HEAD, "fedavg(rounds=50)"]``; `preset` is for options that they do not set. `cohort` is for recipes with
    privacy.secure, and `stream` the source of noise, by default the operating system's.

    It gives a `Simulation`, with the total and the measures of every head. Where `clients`, `alpha`, `classes_per_client`,
    `seed` or options of a recipe are lists, or `output` is a file, it gives `Runs`, the measures of every combination. A head
    that the file already has is not made again, unless it is `fresh`; `name` is what the file calls the data.

    Guarantees
    ----------
    A head is fitted to what it would ask for alone, so which heads are beside it changes nothing; where that cannot be
    (noise, rounding, 'best', or a head that takes what others need), `notes` say so. What a file has of other rows, settings,
    options of heads or versions is never taken for a run (test_what_a_file_has_is_made_once_and_nothing_else_is_taken_for_it).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 3
    >>> x = rng.normal(size=(60, 4)) + 3.0 * np.eye(3, 4)[y]
    >>> result = simulate((x, y), 5, heads="lda", classes=["cat", "dog", "bird"])
    >>> result.total.moments.rows, result.heads["lda"].accuracy > 0.9
    (42, True)
    >>> len(simulate((x, y), [2, 5], heads="nb,lda", alpha=[0.1, None]).rows)
    8
    """
    source, options = split_keywords(more)
    is_count = isinstance(clients, int | np.integer) or is_several("clients", clients)
    parts = None if is_count else list(cast("Parts", clients))
    split = {"seed": seed, "clients": clients if parts is None else len(parts), "alpha": alpha}
    asked = {**split, "classes_per_client": classes_per_client, **options}
    rows = source_of(data, **source, is_private=_is_private(recipe, options))
    prepare = partial(_federation, rows, heads, preset, recipe, public, cohort or Cohort(), parts)
    if output is None and not any(is_several(*each) for each in asked.items()):
        return prepare(asked).run(progress, stream)
    same = _without_none({"data": name or None, **_marks(parts, public, recipe, cohort)})
    return run_all([partial(prepare, setting) for setting in combinations(asked)], same, output, fresh, progress)


def _is_private(recipe: Recipe | RecipeOptions | None, options: Mapping[str, Any]) -> bool:
    """Whether an epsilon is promised; options beside a recipe raise."""
    if recipe is not None and options:
        raise RecipeError(f"{next(iter(options))} is an option of a recipe, and a recipe is given; put it into that.")
    given = recipe.privacy if isinstance(recipe, Recipe) else recipe
    return (options.get("epsilon") if given is None else given.epsilon) is not None


def _marks(
    parts: Parts | None, public: Public | None, recipe: Recipe | RecipeOptions | None, cohort: Cohort | None
) -> Row:
    """What else tells the runs of one call from those of another, as short texts."""
    rows = public.x if isinstance(public, PublicRows) else public
    return {
        "split": None if parts is None else mark(*map(np.asarray, parts)),
        "public": None if rows is None else mark(rows),
        "fixed_recipe": recipe.fingerprint[:16] if isinstance(recipe, Recipe) else None,
        "cohort": None if cohort is None else str(cohort),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How rows are split over clients."""

    clients: int
    alpha: float | None
    classes_per_client: int | None
    seed: int

    def __post_init__(self) -> None:
        coerce(self, "")


def _federation(
    source: Source, heads: Heads, preset: str, recipe: Recipe | RecipeOptions | None, public: Public | None, cohort: Cohort,
    parts: Parts | None, setting: Row,
) -> Federation:  # fmt: skip
    """The federation of a setting, which is a split and options of a recipe by name."""
    how = Split(**{f.name: setting[f.name] for f in fields(Split)})
    data, table = load(source, how.seed)
    rng = np.random.default_rng(how.seed)
    parts = parts or split(data.y_train, how.clients, rng, how.alpha, how.classes_per_client)
    given = _without_none({name: value for name, value in setting.items() if name in OPTIONS})
    options = recipe if isinstance(recipe, RecipeOptions) else RecipeOptions(**given)
    methods, cohort = methods_of(heads, preset, options), replace(cohort, seed=how.seed)
    found = Assembly(recipe) if isinstance(recipe, Recipe) else None
    if found is None:
        full = cohort.fill_in(options, len(parts))
        found = assembly_for(data, heads_of(methods).values(), full, public, table, len(parts))
    chosen = {o.name: getattr(options, o.name) for o in OPTIONS.values() if getattr(options, o.name) != o.default}
    as_text = {"statistics": " ".join, "anchor": mark}
    about = {name: as_text[name](value) if name in as_text else value for name, value in chosen.items()}
    notes = (*((f"Recipe: {found.proposal.why}.",) if found.proposal else ()), *found.notes)
    return Federation(data, parts, found.recipe, methods, cohort, how.seed, about | _without_none(asdict(how)), notes)


def _without_none(values: Row) -> Row:
    return {name: value for name, value in values.items() if value is not None}


def methods_of(heads: Heads, preset: str, options: RecipeOptions) -> Mapping[str, Method]:
    """The heads and baselines to score in a space; 'all' is every head that the space allows."""
    if isinstance(heads, Mapping):
        return heads
    each = list(each_head(heads))
    found = all_heads(preset, options.lift is not None, options.sketch is not None) if ALL in each else {}
    return {**found, **parse_methods([head for head in each if head != ALL], preset)}


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationRequest(RecipeOptions):
    """What `recipe_for` takes: every option of a recipe, the rows (as `simulate` takes them) and the heads."""

    data: Any = field(kw_only=False)
    heads: AnyHead | Iterable[AnyHead] = field(kw_only=False)
    classes: Iterable[str] | None = None
    label_column: str = ""
    schema: Schema | str | Path | None = None
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None


@takes(SimulationRequest, RecipeError)
def recipe_for(asked: SimulationRequest) -> Recipe:
    """The smallest recipe that these heads can be built from; `keep` sends plain class covariances beside a lift.

    The head 'best' alone gets the best proposal within the default budget. The grid is fitted to the training rows, or
    to `public` ones where they are given; `PublicRows` teach a centre and a projection besides. Under an epsilon
    it is never fitted to training rows: without public ones it follows from the unit length of rows, or from the radius.
    """
    source = source_of(
        asked.data, asked.classes, asked.label_column, asked.schema, is_private=asked.epsilon is not None
    )
    specs = heads_of(parse_methods(asked.heads)).values()
    data, table = load(source, asked.seed)
    return assembly_for(data, specs, asked, asked.public, table).recipe
