"""What several heads need of one total and its recipe, and what each would have alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ghofl.classifier import HeadSpec
from ghofl.errors import HeadError
from ghofl.features import Features
from ghofl.heads import HEADS
from ghofl.heads.spec import BEST
from ghofl.moments import Layout
from ghofl.planning.assembly import Assembly, assemble
from ghofl.planning.public import PublicRows
from ghofl.privacy import shifts_of
from ghofl.recipe import Encoder, Recipe, RecipeOptions, Table
from ghofl.shapes import Num
from ghofl.simulation.dataset import Dataset
from ghofl.statistics import statistics_to_store
from ghofl.wire.total import Total


def need_of(spec: HeadSpec, recipe: Recipe) -> tuple[str, ...]:
    """The statistics a client would send for this head alone."""
    layout = Layout.of(recipe)
    spec = spec.choose(layout, recipe)
    if not spec.is_possible(layout, recipe):
        raise HeadError(f"head {spec.name!r} needs {' and '.join(spec.needs[0])}, which this recipe does not ask for.")
    return next(need for need in spec.needs if all(layout.has(s) for s in need))


def with_statistics(recipe: Recipe, need: tuple[str, ...]) -> Recipe:
    """The recipe that asks for these statistics only."""
    statistics = statistics_to_store(tuple(s for s in need if s != "Z"))
    return replace(recipe, statistics=statistics, sketch=recipe.sketch if "Z" in need else None)


def recipe_for_head(recipe: Recipe, spec: HeadSpec) -> Recipe:
    """The recipe that a head's result follows from: the one that a federation for this head alone would have.

    Noise and rounding are those of all statistics together, so under such a recipe it is the whole one; and 'best' follows
    from everything that a recipe asks for.
    """
    is_whole = spec.name == BEST or not _is_exact(recipe)
    return recipe if is_whole else with_statistics(recipe, need_of(spec, recipe))


def total_for(total: Total, spec: HeadSpec) -> Total:
    """The total with only the statistics that a head asks for, as a federation for this head alone would have it.

    Where `recipe_for_head` is the whole recipe, the total stays whole.
    """
    own = recipe_for_head(total.recipe, spec)
    if own == total.recipe:
        return total
    sketch = None if own.sketch is None else Features.of(own).sketch
    return replace(total, recipe=own, moments=total.moments.restrict(Layout.of(own), sketch))


def _is_exact(recipe: Recipe) -> bool:
    return recipe.privacy.epsilon is None and not shifts_of(recipe)


def notes_on(total: Total, specs: Mapping[str, HeadSpec]) -> tuple[str, ...]:
    """What one head of several owes to those beside it."""
    if len(specs) < 2:
        return ()
    if not _is_exact(total.recipe):
        return (
            "All heads share the noise or rounding of one total; a head alone may ask for less, and then has less.",
        )
    beside = [(name, need_of(spec, total.recipe)) for name, spec in specs.items() if spec.name != BEST]
    taken = [f"{name} ({', '.join(need)})" for name, need in beside if need != specs[name].needs[0]]
    taken += [f"{name} (all there is)" for name, spec in specs.items() if spec.name == BEST]
    if not taken:
        return ()
    return (f"These use the statistics that other heads need, and alone would perhaps use others: {', '.join(taken)}.",)


def assembly_for(
    data: Dataset,
    specs: Iterable[HeadSpec],
    options: RecipeOptions,
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None,
    table: Table | None = None,
    clients: int | None = None,
) -> Assembly:
    """The recipe of a simulation: these options, with the statistics that the heads need where they do not say.

    The head 'best' alone asks for the strongest there is: in a given space, or else the best proposal within the default
    budget. Beside other heads it takes the statistics that they need. So many `clients` say how many rows of a table one has.
    """
    specs = list(specs)
    if table is not None and clients is not None:
        table = replace(table, site_rows=max(1, len(data.y_train) // max(1, clients)))
    need_sketch = [spec.name for spec in specs if all("Z" in need for need in spec.needs)]
    if need_sketch and options.sketch is None and options.budget is None:
        raise HeadError(f"the head {need_sketch[0]} needs a sketch; give `sketch`, e.g. 128.")
    if options.budget is None and options.statistics is None:
        options = _wanting_the_best(options) if all(s.name == BEST for s in specs) else _serving(options, specs)
    encoder = Encoder(dim=data.x_train.shape[1]) if table is None else table.encoder
    return assemble(options, data.classes, encoder, public=public, protected=data.x_train, table=table)


def _wanting_the_best(options: RecipeOptions) -> RecipeOptions:
    if options.lift is not None:
        return replace(options, statistics=("B",), keep=options.keep or options.sketch is None)
    if options.sketch is not None:
        return replace(options, statistics=("B",))
    return replace(options, statistics=("S",)) if options.project is not None else options


def _serving(options: RecipeOptions, specs: Sequence[HeadSpec]) -> RecipeOptions:
    return replace(options, statistics=_statistics(specs, beside_sketch=options.sketch is not None or options.keep))


def all_heads(preset: str = "default", lift: bool = False, sketch: bool = False) -> dict[str, HeadSpec]:
    """Every head, without those that need a sketch when there is none, or a matrix per class of lifted features."""
    specs = {name: HeadSpec.parse(name, preset) for name in HEADS}
    return {
        name: spec
        for name, spec in specs.items()
        if not (lift and all("S" in need for need in spec.needs)) and not ("Z" in spec.needs[0] and not sketch)
    }


def _statistics(specs: Sequence[HeadSpec], beside_sketch: bool = False) -> tuple[str, ...]:
    first = {"B"} if beside_sketch else set()
    first |= {s for spec in specs if len(spec.needs) == 1 for s in spec.needs[0] if s != "Z"}
    for spec in specs:  # heads with a choice use what others need already
        if not any(set(need) <= first or "S" in first for need in spec.needs):
            first |= set(spec.needs[0]) - {"Z"}
    return statistics_to_store(tuple(sorted(first)))
