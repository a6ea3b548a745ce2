"""What each of several heads needs of one total, and what it would have alone."""

from collections.abc import Mapping
from dataclasses import replace

from ghofl.classifier import HeadSpec
from ghofl.errors import HeadError
from ghofl.features import Features
from ghofl.heads.spec import BEST
from ghofl.moments import Layout
from ghofl.privacy import shifts_of
from ghofl.recipe import Recipe
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


def total_for(total: Total, spec: HeadSpec) -> Total:
    """The total with only the statistics that a head asks for, as a federation for this head alone would have it.

    Noise and rounding are those of all statistics together, so such a total stays whole; and 'best' follows from the
    whole total.
    """
    if spec.name == BEST or not _is_exact(total):
        return total
    own = with_statistics(total.recipe, need_of(spec, total.recipe))
    if own == total.recipe:
        return total
    sketch = None if own.sketch is None else Features.of(own).sketch
    return replace(total, recipe=own, moments=total.moments.restrict(Layout.of(own), sketch))


def _is_exact(total: Total) -> bool:
    return total.guarantee is None and not shifts_of(total.recipe)


def notes_on(total: Total, specs: Mapping[str, HeadSpec]) -> tuple[str, ...]:
    """What one head of several owes to those beside it."""
    if len(specs) < 2:
        return ()
    if not _is_exact(total):
        return (
            "All heads share the noise or rounding of one total; a head alone may ask for less, and then has less.",
        )
    beside = [(name, need_of(spec, total.recipe)) for name, spec in specs.items() if spec.name != BEST]
    taken = [f"{name} ({', '.join(need)})" for name, need in beside if need != specs[name].needs[0]]
    taken += [f"{name} (all there is)" for name, spec in specs.items() if spec.name == BEST]
    if not taken:
        return ()
    return (f"These use the statistics that other heads need, and alone would perhaps use others: {', '.join(taken)}.",)
