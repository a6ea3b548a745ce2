"""Many simulations in one call: every combination of some settings, as one tidy table that a later call continues."""

import hashlib
import itertools
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import HeadSpec
from ghofl.errors import HeadError, RecipeError
from ghofl.heads.spec import DEFAULT_HEAD, split_list
from ghofl.names import shorten
from ghofl.planning.assembly import Assembly
from ghofl.planning.public import PublicRows
from ghofl.recipe import OPTIONS, Recipe, RecipeOptions, Table, toml
from ghofl.recipe.option import Option
from ghofl.recipe.schema import build, check_keys
from ghofl.shapes import Num
from ghofl.simulation.baselines import Method, heads_of, join_methods, parse_methods
from ghofl.simulation.cohort import Cohort
from ghofl.simulation.dataset import Dataset, Source, load, source_of, split_keywords
from ghofl.simulation.partition import Parts, split
from ghofl.simulation.runs import RECIPE_SETTINGS, Row, Runs, check_format
from ghofl.simulation.simulate import (
    HeadResult,
    Progress,
    Simulation,
    all_heads,
    assembly_for,
    judge_head,
    simulate,
)  # fmt: skip
from ghofl.wire.total import Total

ALL = "all"  # every head that a space allows
SAVE_SECONDS = 2.0  # between two saves of the table while runs go on


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run of a sweep: how rows are split over clients, and the options of its recipe, whose matrices have its seed."""

    clients: int = 10
    alpha: float | None = None
    classes_per_client: int | None = None
    seed: int = 0
    options: RecipeOptions = field(default_factory=RecipeOptions)


SPLIT = tuple(f.name for f in fields(Setting) if f.name != "options")


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """What all runs of a sweep have in common: heads, public rows, vanishing clients."""

    heads: str = DEFAULT_HEAD
    preset: str = "default"
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None
    cohort: Cohort = field(default_factory=Cohort)

    def methods(self, options: RecipeOptions) -> Mapping[str, Method]:
        """The heads and baselines to score in a space; 'all' is every head that the space allows."""
        if ALL in (named := split_list(self.heads)):
            every = all_heads(self.preset, lift=options.lift is not None, sketch=options.sketch is not None)
            others = ",".join(name for name in named if name != ALL)
            return {**every, **(parse_methods(others, self.preset) if others else {})}
        methods = parse_methods(self.heads, self.preset)
        needs_sketch = any("Z" in need for spec in heads_of(methods).values() for need in spec.needs)
        if needs_sketch and options.sketch is None and options.budget is None:
            raise HeadError("the head sketched_qda needs a sketch; give `sketch`, e.g. 128.")
        return methods

    def assemble(self, data: Dataset, setting: Setting, table: Table | None = None) -> tuple[Assembly, RecipeOptions]:
        """The recipe of one run, and the options that it follows."""
        options = self.cohort.fill_in(replace(setting.options, seed=setting.seed), setting.clients)
        specs = heads_of(self.methods(options)).values()
        return assembly_for(data, specs, options, self.public, table, setting.clients), options

    def run(
        self, data: Dataset, setting: Setting, found: Assembly, options: RecipeOptions, progress: Progress | None = None,
        judge: Callable[[Total, HeadSpec, Dataset], HeadResult] = judge_head,
    ) -> Simulation:  # fmt: skip
        """One simulation under a recipe that `assemble` gave."""
        cohort, parts = replace(self.cohort, seed=setting.seed), self.split(data, setting)
        methods, seed = self.methods(options), setting.seed
        return simulate(data, parts, found.recipe, methods, progress, cohort, judge=judge, seed=seed)

    def split(self, data: Dataset, setting: Setting) -> Parts:
        """The rows that each client has."""
        rng = np.random.default_rng(setting.seed)
        return split(data.y_train, setting.clients, rng, setting.alpha, setting.classes_per_client)


def sweep(
    data: Any,
    heads: str | Iterable[str] = DEFAULT_HEAD,
    *,
    clients: int | Sequence[int] = 10,
    alpha: float | Sequence[float | None] | None = None,
    classes_per_client: int | Sequence[int | None] | None = None,
    seed: int | Sequence[int] = 0,
    recipes: RecipeOptions | Sequence[RecipeOptions] | None = None,
    experiment: Experiment | None = None,
    output: str | Path | None = None,
    fresh: bool = False,
    name: str = "",
    progress: Progress | None = None,
    **more: Any,
) -> Runs:
    """Simulate every combination of settings, each given as one value or several.

    `data` is whatever `source_of` takes: ``(x, y)``, ``((x_train, y_train), (x_test, y_test))``, arrays by name, a file, or a
    DataFrame with its `label_column` (and `schema`, `without`); `classes` name class numbers. Each value of `alpha` and each
    value of `classes_per_client` is one split; everything else is combined, also options of a recipe: ``project=[64, 128]``.
    `recipes` are whole sets of those. `heads` may have baselines, as in `simulate`. `output` is a .csv, .parquet or .json file,
    saved again and again while runs are made: runs that it already has are not repeated and rows of other sweeps stay, unless
    `fresh`. `name` is what the table calls the data.

    Guarantees
    ----------
    A run is identified by the rows, the recipe, the split, the heads and the versions: a run that differs in any of them
    is another one. Heads of totals that are equal to the bit are scored once.

    Examples
    --------
    >>> from ghofl.simulation.demo import digits
    >>> runs = sweep(digits(), "nb,lda", clients=[5, 20], alpha=[0.1, None], seed=0)
    >>> len(runs.rows), len({row["total_sha256"] for row in runs.rows})
    (8, 1)
    """
    splits = {"alpha": alpha, "classes_per_client": classes_per_client}
    axes = {"clients": clients, **{key: values for key, values in splits.items() if values is not None}, "seed": seed}
    source, options = split_keywords(more)
    # A tuple of statistics is one value, and so is an anchor; a list of them is several.
    axes |= {k: [given] if isinstance(given, tuple | np.ndarray) else given for k, given in options.items()}
    settings = [setting for options in _recipes_of(recipes) for setting in combinations(axes, options)]
    is_private = any(setting.options.epsilon is not None for setting in settings)
    rows = source_of(data, is_private=is_private, **source)
    name = name or (Path(data).name if isinstance(data, str | Path) else "")
    return run_all(
        rows, settings, replace(experiment or Experiment(), heads=join_methods(heads)), output, fresh, name, progress
    )


def _recipes_of(given: Any) -> list[RecipeOptions]:
    each = _several(RecipeOptions() if given is None else given)
    if not all(isinstance(options, RecipeOptions) for options in each):
        raise RecipeError(f"recipes are {shorten(given, 60)}; give RecipeOptions(project=64), or project=[64, 128].")
    return each


def run_all(
    data: Source,
    settings: Sequence[Setting],
    experiment: Experiment,
    output: str | Path | None = None,
    fresh: bool = False,
    name: str = "",
    progress: Progress | None = None,
) -> Runs:
    """The table of these runs; see `sweep`."""
    runs = Runs()
    if output is not None:
        check_format(Path(output))
        runs = Runs.load(output) if Path(output).exists() and not fresh else runs
    report = progress or (lambda *_: None)
    saved, known = time.monotonic(), _Memory(data)
    try:
        for i, setting in enumerate(settings):
            report("runs", i, len(settings))
            rows = known.rows_of(experiment, setting, runs, name, report)
            runs = runs.with_rows(rows)
            if rows and output is not None and time.monotonic() - saved > SAVE_SECONDS:
                runs.save(output)
                saved = time.monotonic()
        report("runs", len(settings), len(settings))
    finally:  # also where somebody stops it
        if output is not None and runs.rows:
            runs.save(output)
    return runs


def combinations(axes: Mapping[str, Any], options: RecipeOptions | None = None) -> Iterator[Setting]:
    """Every combination of the values of some settings, checked; the last setting changes fastest.

    A setting is part of the split, or an option of a recipe, which takes the place of the one in `options`; None leaves it.
    """
    lists = {key: _several(values) for key, values in axes.items()}
    for key, values in lists.items():
        if not values:
            raise RecipeError(f"sweep.{key} has no values; give one or more.")
    # A split is by α or by classes per client: both lists together are the splits, one after the other.
    splits = [{key: value} for key in ("alpha", "classes_per_client") for value in lists.pop(key, ())] or [{}]
    for part in splits:
        for values in itertools.product(*lists.values()):
            yield _setting({**part, **dict(zip(lists, values, strict=True))}, options or RecipeOptions())


def _setting(given: Mapping[str, Any], options: RecipeOptions) -> Setting:
    check_keys(given, [*SPLIT, *OPTIONS], "sweep.")
    split = {key: value for key, value in given.items() if key in SPLIT}
    chosen = {key: value for key, value in given.items() if key not in SPLIT and value is not None}
    return build(Setting, {**split, "options": replace(options, **chosen)}, "sweep.")


def read_axes(path: str | Path) -> dict[str, Any]:
    """The settings of a sweep from a TOML file: a value or a list for each; the text "none" leaves a setting out."""
    path = Path(path)
    try:
        found = toml.read(path)
    except toml.NotTomlError as error:
        raise RecipeError(f"{path} {error}; write e.g. clients = [10, 50].") from None
    return {
        key.replace("-", "_"): [None if v == "none" else v for v in _several(value)] for key, value in found.items()
    }


class _Memory:
    """Rows, their fingerprint, and the heads already scored, for the runs of one sweep."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._loaded: tuple[int | None, Dataset, Table | None, str] | None = None
        self._judged: dict[tuple[str, str, str], HeadResult] = {}

    def rows_of(self, experiment: Experiment, setting: Setting, runs: Runs, name: str, report: Progress) -> list[Row]:
        """The rows of one run; none where the table already has them."""
        data, table, digest = self._load(setting.seed)
        found, options = experiment.assemble(data, setting, table)
        own = {"data": name, "data_sha256": digest, **_settings(setting, found), "preset": experiment.preset}
        own |= {"heads": experiment.heads, "recipe": found.recipe.fingerprint, **_versions()}
        text = json.dumps([own, repr(experiment.cohort)], sort_keys=True)
        run = hashlib.sha256(text.encode()).hexdigest()[:16]
        if run in runs.ids:
            return []
        result = experiment.run(data, setting, found, options, report, self._judge)
        result.clipping.warn(found.recipe)
        facts = {key: result.to_dict()[key] for key in ("empty_clients", "rows", "clipped_share", "total_sha256")}
        facts |= {"test_rows": len(data.y_test), "dim": data.x_train.shape[1], "classes": len(data.classes)}
        asked = json.dumps(_asked(setting.options))
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return [
            {
                "run": run,
                **own,
                **facts,
                "asked": asked,
                "date": date,
                "head": head,
                "average_precision": None,
                "auc": None,
                **_columns(measures),
            }
            for head, measures in result.to_dict()["heads"].items()
        ]

    def _load(self, seed: int) -> tuple[Dataset, Table | None, str]:
        wanted = None if isinstance(self._source, Dataset) else seed
        if self._loaded is None or self._loaded[0] != wanted:
            data, table = load(self._source, seed)
            self._loaded = (wanted, data, table, _digest(data))
        return self._loaded[1:]

    def _judge(self, total: Total, spec: HeadSpec, data: Dataset) -> HeadResult:
        key = (total.recipe.fingerprint, total.moments.sha256, repr(spec) + (self._loaded or ("",) * 4)[3])
        if key not in self._judged:
            self._judged[key] = judge_head(total, spec, data)
        return self._judged[key]


def _settings(setting: Setting, found: Assembly) -> Row:
    """The settings of a run as it was made, with the recipe's values for those that were not given."""
    recipe = found.recipe
    is_public = recipe.projection is not None and bool(recipe.projection.matrix)
    split = {name: getattr(setting, name) for name in SPLIT}
    made = {name: value_in(recipe, OPTIONS[name], setting.options) for name in RECIPE_SETTINGS}
    return {**split, **made, "public_projection": is_public}


def value_in(recipe: Recipe, option: Option, options: RecipeOptions) -> Any:
    """The value that an option has in a recipe; of one that is not in recipes, the value that was given."""
    value: Any = recipe if option.key else getattr(options, option.name)
    for part in filter(None, option.key.split(".")):
        value = None if value is None else getattr(value, part)
    return _plain(value)


def _asked(options: RecipeOptions) -> Row:
    """The options of a recipe that were given, as plain values."""
    given = {name: getattr(options, name) for name in RECIPE_SETTINGS}
    return {name: _plain(value) for name, value in given.items() if value != OPTIONS[name].default}


def _plain(value: Any) -> Any:
    return " ".join(value) if isinstance(value, tuple) else value


def _columns(measures: Row) -> Row:
    """One number per column: an interval becomes its two ends, such as accuracy_low and accuracy_high; no thresholds."""
    ends = {key.removesuffix("_interval"): value for key, value in measures.items() if key.endswith("_interval")}
    plain = {key: value for key, value in measures.items() if not isinstance(value, list)}
    return plain | {
        f"{key}_{end}": v for key, both in ends.items() for end, v in zip(("low", "high"), both, strict=True)
    }


def _versions() -> Row:
    from ghofl import __version__

    return {"ghofl": __version__, "numpy": np.__version__, "python": platform.python_version()}


def _digest(data: Dataset) -> str:
    digest = hashlib.sha256(repr((data.classes, data.x_train.shape, data.x_train.dtype)).encode())
    for rows in (data.x_train, data.y_train, data.x_test, data.y_test):
        digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()[:16]


def _several(values: Any) -> list[Any]:
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    return list(values) if is_list else [values]
