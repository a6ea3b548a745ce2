"""Disclosure rules as data custodians know them: what must hold before sums of a site's rows leave it.

==============  ======  =======  ====================================================================================
rule            usual   strict   what must hold
==============  ======  =======  ====================================================================================
class rows      5       10       every class that has rows has at least this many
saturation      0.33    0.33     a matrix over d variables rests on d / 0.33 rows: B on all, S and Z on each class's
sites           3       5        a total of fewer sites is never used (privacy.min_cohort)
sole holder     warns   warns    without secure aggregation, the sums of a class that only one site has are that site's
==============  ======  =======  ====================================================================================

A rule that cannot be evaluated is not met. Under an epsilon no rule is evaluated while a site answers, because whether it
is met would be an answer without noise. The site's administrator sees the verdicts with ``ghofl flower check``.
"""

from dataclasses import dataclass, fields
from math import ceil, floor
from typing import Any

import numpy as np

from ghofl.errors import PolicyError, SiteError
from ghofl.moments import Moments
from ghofl.recipe import Recipe
from ghofl.recipe.schema import coerce

MET, BROKEN, UNKNOWN, WARNING = "met", "not met", "cannot be evaluated", "warning"
PRESETS: dict[str, dict[str, Any]] = {
    "off": {"class_rows": 0, "saturation": 0.0, "sites": 0, "sole_holder": False},
    "usual": {"class_rows": 5, "saturation": 0.33, "sites": 3, "sole_holder": True},
    "strict": {"class_rows": 10, "saturation": 0.33, "sites": 5, "sole_holder": True},
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says about some moments; `detail` is for the site's own people, because it is about its rows."""

    rule: str
    outcome: str
    detail: str

    @property
    def is_refusal(self) -> bool:
        """Whether nothing may leave because of it."""
        return self.outcome in (BROKEN, UNKNOWN)

    def __str__(self) -> str:
        return f"Disclosure rule {self.rule!r}: {self.outcome}. {self.detail}"


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The disclosure rules of a site: a preset, and the site's own numbers where it has them.

    `class_rows` is the fewest rows of a class that has any (3, 5 and 10 are common), `saturation` the most variables
    per row behind a matrix, `sites` the fewest sites of a total. 0 turns a rule off.

    Guarantees
    ----------
    `check_moments` and `check_recipe` return only where every rule was evaluated and is met. Their errors say which rule
    is not, and nothing else about rows.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> moments = Moments.of(np.ones((40, 2), dtype=np.int64), np.arange(40) % 2, Layout(2, 2))
    >>> [v.outcome for v in Disclosure("strict").of_moments(moments)]
    ['met', 'met']
    >>> print(Disclosure("usual", class_rows=30).of_moments(moments)[0])
    Disclosure rule 'class rows': not met. The smallest class has 20 rows and 30 are asked for.
    """

    preset: str = "off"
    class_rows: int | None = None
    saturation: float | None = None
    sites: int | None = None

    def __post_init__(self) -> None:
        coerce(self, "disclosure.")
        if self.preset not in PRESETS:
            raise SiteError(f"disclosure.preset is {self.preset!r}; write one of {', '.join(map(repr, PRESETS))}.")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None and not 0 <= value < (1 if field.name == "saturation" else float("inf")):
                raise SiteError(f"disclosure.{field.name} is {value}; write 0 to turn the rule off, or more.")

    def number(self, rule: str) -> Any:
        """The number of a rule: the site's own, or the preset's."""
        own = getattr(self, rule, None)
        return PRESETS[self.preset][rule] if own is None else own

    def verdicts(self, moments: Moments, recipe: Recipe, sites: int | None = None) -> tuple[Verdict, ...]:
        """What every rule says about exact moments under a recipe; `sites` is how many are in the total, if known."""
        return (*self.of_moments(moments), *self.of_recipe(recipe, sites))

    def of_moments(self, moments: Moments) -> tuple[Verdict, ...]:
        """What the rules about rows say about exact moments."""
        out = []
        if least := self.number("class_rows"):
            out.append(_class_rows(moments, least))
        if share := self.number("saturation"):
            out.append(_saturation(moments, share))
        return tuple(out)

    def of_recipe(self, recipe: Recipe, sites: int | None = None) -> tuple[Verdict, ...]:
        """What the rules that need no rows say."""
        out, least = [], self.number("sites")
        if least:
            promised = recipe.privacy.min_cohort if sites is None else sites
            some = f"The total has {promised} site{'s' * (promised != 1)}"
            what = f"privacy.min_cohort is {promised}" if sites is None else some
            advice = (
                "" if promised >= least else f" Agree on a recipe with min_cohort = {least}, or wait for more sites."
            )
            out.append(
                Verdict("sites", MET if promised >= least else BROKEN, f"{what}; {least} are asked for.{advice}")
            )
        if self.number("sole_holder") and not recipe.privacy.secure and sites is None:
            out.append(
                Verdict(
                    "sole holder",
                    WARNING,
                    "Without secure aggregation the server sees this site's own sums, and in the total the sums of a "
                    "class that no other site has are this site's alone.",
                )
            )
        return tuple(out)

    def check_moments(self, moments: Moments) -> None:
        """Raise `PolicyError` unless every rule about rows is met."""
        _check(self.of_moments(moments))

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise `PolicyError` unless every rule that needs no rows is met."""
        _check(self.of_recipe(recipe))


def _class_rows(moments: Moments, least: int) -> Verdict:
    counts = moments.counts
    if np.any(counts < 0) or not counts.any():
        return Verdict("class rows", UNKNOWN, "The counts are not those of any rows.")
    smallest = int(counts[counts > 0].min())
    outcome = MET if smallest >= least else BROKEN
    return Verdict("class rows", outcome, f"The smallest class has {smallest:,} rows and {least} are asked for.")


def _saturation(moments: Moments, share: float) -> Verdict:
    layout, counts = moments.layout, moments.counts
    matrices = [record for record in layout.records if record.is_symmetric]
    if np.any(counts < 0) or not counts.any():
        return Verdict("saturation", UNKNOWN, "The counts are not those of any rows.")
    for record in sorted(matrices, key=lambda r: not r.is_per_class):
        rows = int(counts[counts > 0].min() if record.is_per_class else counts.sum())
        width = layout.width(record)
        if rows < ceil(width / share - 1e-9):
            behind = "its smallest class" if record.is_per_class else "it"
            return Verdict(
                "saturation",
                BROKEN,
                f"{record.name} has {width:,} variables, which needs {ceil(width / share - 1e-9):,} rows, and {rows:,} are "
                f"behind {behind}. {_proposal(record.name, floor(share * rows + 1e-9), int(counts.sum()), share)}",
            )
    what = ", ".join(record.name for record in matrices) or "no matrix"
    return Verdict("saturation", MET, f"Enough rows are behind {what}, at {share:g} variables per row.")


def _proposal(name: str, most: int, rows: int, share: float) -> str:
    if name == "B":
        return (
            f"A projection to at most {most} dimensions fits."
            if most
            else "No matrix fits so few rows; send none (only A and D)."
        )
    whole = floor(share * rows + 1e-9)
    if most:
        return (
            f"A sketch of at most {most} dimensions beside B fits (B itself up to {whole}), or a projection to {most}."
        )
    return f"No matrix per class fits; B alone fits up to {whole} dimensions."


def _check(verdicts: tuple[Verdict, ...]) -> None:
    for verdict in verdicts:
        if verdict.is_refusal:
            raise PolicyError(
                f"this site's disclosure rule {verdict.rule!r} is {verdict.outcome} under this recipe; its administrator "
                "sees the figures, and a recipe that fits, with 'ghofl flower check'."
            )
