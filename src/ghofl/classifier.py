"""A head with its recipe: raw embeddings in, labels out."""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float, Int64, Num
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors

from ghofl import files
from ghofl.best import best_head
from ghofl.calibration import temperature_of
from ghofl.errors import (
    CalibrationWarning,
    EmptyClassWarning,
    HeadError,
    MessageError,
    MissingStatisticError,
    RecipeError,
)
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.heads import HEADS, PAPER, Blend, Head, SketchedQDA
from ghofl.moments import Layout
from ghofl.names import shown
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.envelope import check_fingerprint, check_seal, safetensors_header, sealed
from ghofl.wire.roster import guarantee_in
from ghofl.wire.total import Total

PRESETS: dict[str, Mapping[str, Mapping[str, Any]]] = {"default": {}, "paper": PAPER}
MAX_HEADER = 256 * 2**20
_SPEC = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_WORD = re.compile(r"[a-z_]+(?:[.+][a-z_]+)*")
BEST = "best"
TRIED = 8  # class means that a new head is tried on
NAMED = 5  # empty classes told by name

WHOLE = (int, int | None)

Warn = Callable[[Warning], None]


def _warn(warning: Warning) -> None:
    warnings.warn(warning, stacklevel=3)  # the line that asked for the fit


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """The name of a head and its options, written ``lda`` or ``rda(blend=0.9, shrinkage=0.05)``.

    >>> HeadSpec.parse("rda(blend=0.9)")
    HeadSpec(name='rda', options={'blend': 0.9})
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, preset: str = "default") -> "HeadSpec":
        """A spec from its text; options that are not written come from the preset."""
        match = _SPEC.fullmatch(text)
        if match is None:
            raise HeadError(f"{text!r} is not a head; write a name such as 'lda', or 'rda(blend=0.9, shrinkage=0.05)'.")
        if preset not in PRESETS:
            raise HeadError(f"preset {preset!r} is unknown; known are {', '.join(PRESETS)}.")
        name = _known(match[1])
        if name == BEST and match[2]:
            raise HeadError("'best' takes no options: it follows from what the total holds.")
        options = dict(PRESETS[preset].get(name, {}))
        for part in filter(None, (p.strip() for p in (match[2] or "").split(","))):
            key, _, value = part.partition("=")
            options[key.strip()] = _value(value.strip(), part)
        _check_options(name, options)
        return cls(name, options)

    @classmethod
    def parse_list(cls, text: str, preset: str = "default") -> dict[str, "HeadSpec"]:
        """Specs from a list separated by commas, each under the text it was written as."""
        parts = [p.strip() for p in re.split(r",(?![^()]*\))", text) if p.strip()]
        if not parts:
            raise HeadError(f"no head in {text!r}; known are {', '.join(HEADS)}.")
        return {part: cls.parse(part, preset) for part in parts}

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of statistics that are enough, best first; the best head takes what there is."""
        if self.name == BEST:
            return (("S",), ("B",), ("D",), ())
        parts = self.options.get("parts") if self.name == Blend.name else None
        return HEADS[self.name].needs if parts is None else (_needs_of(str(parts)),)


@dataclass(frozen=True, slots=True)
class Classifier:
    """A head with its recipe: raw embeddings in, class numbers or probabilities out.

    Guarantees
    ----------
    ``Classifier.load`` after ``save`` gives the same scores, to the bit. Fitted on a total, it is the same whichever
    way the rows were split over sites. `guarantee` is what the noise in that total promises, and `revealed` what its
    minimum counts tell. Two classifiers are equal when recipe, head and all that is told about them are.

    Examples
    --------
    >>> from ghofl import Encoder, Layout, Message, Moments
    >>> recipe = Recipe(classes=("low", "high"), encoder=Encoder(dim=2))
    >>> q, _ = Features.of(recipe).rows(np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 0.0], [3.5, 1.0]]))
    >>> message = Message.of(Moments.of(q, np.array([0, 0, 1, 1]), Layout.of(recipe)), recipe)
    >>> classifier = Classifier.fit(Total.of([message], recipe), "lda(shrinkage=0.1)")
    >>> [recipe.classes[c] for c in classifier.predict(np.array([[0.5, 1.0], [3.0, 0.5]]))]
    ['low', 'high']
    """

    recipe: Recipe
    head: Head
    options: dict[str, Any] = field(default_factory=dict)
    sites: int = 0
    rows: int = 0
    guarantee: Guarantee | None = None
    revealed: str = ""
    temperature: float = 1.0
    _features: Features | None = field(default=None, repr=False, compare=False)

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @classmethod
    def fit(cls, total: Total, spec: str | HeadSpec, warn: Warn = _warn) -> "Classifier":
        """The classifier of a total, with the head that `spec` names.

        `warn` is told of classes that nobody has (`EmptyClassWarning`) and of probabilities that cannot be calibrated
        (`CalibrationWarning`); unless given, it is Python's own way of showing warnings.
        """
        spec = HeadSpec.parse(spec) if isinstance(spec, str) else spec
        spec = resolved(spec, total.moments.layout, total.recipe)
        refuse_missing(spec, total)
        total = total.for_heads()
        features = Features.of(total.recipe)
        gaussians = Gaussians.of_total(total, features)
        head = _fitted(spec, total, features, gaussians)
        _check_scores(head, gaussians, spec)
        empty = _empty_classes(total, gaussians)
        if empty:
            warn(EmptyClassWarning(_never_predicted(empty, is_noisy=total.guarantee is not None)))
        temperature = temperature_of(head, gaussians)
        if temperature is None:
            warn(CalibrationWarning(_UNCALIBRATED.format(spec.name)))
            temperature = 1.0
        revealed = "" if total.small_classes is None else total.small_classes.revealed
        sites, rows = len(total.roster), total.moments.rows
        return cls(total.recipe, head, spec.options, sites, rows, total.guarantee, revealed, temperature, features)

    def scores(self, embeddings: Num[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """One number a row and class; the largest is the prediction."""
        return self.head.scores(self.features.values(embeddings))

    def predict(self, embeddings: Num[np.ndarray, "n dim"]) -> Int64[np.ndarray, " n"]:
        """The number of the best class of each row; `recipe.classes` has the names."""
        return self.head.predict(self.features.values(embeddings))

    def predict_proba(self, embeddings: Num[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Probabilities of every class, calibrated without data: the softmax of scores over the head's temperature.

        The temperature is 1, and nothing is calibrated, where the total tells no shared covariance.
        """
        return scipy.special.softmax(self.scores(embeddings) / self.temperature, axis=1)

    @property
    def features(self) -> Features:
        """The recipe's map from embeddings to features."""
        if self._features is None:
            object.__setattr__(self, "_features", Features.of(self.recipe))
        assert self._features is not None
        return self._features

    def to_bytes(self) -> bytes:
        """The classifier as a safetensors file: the head's arrays, with recipe and options in the metadata."""
        header = {
            "kind": "head",
            "head": self.head.name,
            "options": self.options,
            "sites": self.sites,
            "rows": self.rows,
            "recipe": self.recipe.fingerprint,
            "recipe_toml": self.recipe.to_toml(),
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "revealed": self.revealed,
            "temperature": self.temperature,
        }
        return sealed(self.head.arrays(), header)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Classifier":
        """The classifier in some bytes; anything else raises `MessageError`."""
        header = safetensors_header(data, "head", MAX_HEADER)
        if header["schema"] > 1:
            check_seal(header, data)
        try:
            recipe = Recipe.from_toml(str(header.get("recipe_toml", "")))
            check_fingerprint(header, recipe)
            head = _head(str(header.get("head")), load_safetensors(data), recipe)
        except (SafetensorError, RecipeError, HeadError) as error:
            raise MessageError(f"the head file is damaged: {shown(error, 300)}") from None
        options, sites, rows = header.get("options"), header.get("sites"), header.get("rows")
        if not isinstance(options, dict) or type(sites) is not int or type(rows) is not int:
            raise MessageError("the head file's metadata is damaged; make the head again with 'ghofl head'.")
        revealed, temperature = str(header.get("revealed", "")), header.get("temperature")
        if type(temperature) is not float or not 0 < temperature < float("inf"):
            raise MessageError(f"the head's temperature is {shown(temperature, 20)}; it must be a positive number.")
        return cls(recipe, head, options, sites, rows, guarantee_in(header, recipe), revealed, temperature)

    def save(self, path: str | Path) -> None:
        """Write the classifier to a file."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "Classifier":
        """Read a classifier from a file."""
        return cls.from_bytes(Path(path).read_bytes())


def resolved(spec: HeadSpec, layout: Layout, recipe: Recipe) -> HeadSpec:
    """The spec itself, or for 'best' the strongest head that this layout allows."""
    return HeadSpec.parse(best_head(layout, recipe).spec) if spec.name == BEST else spec


def _needs_of(parts: str) -> tuple[str, ...]:
    """What the parts of a blend need together."""
    needs: set[str] = set()
    for part in parts.split("+"):
        known = HEADS.get(part)
        needs |= {"B", "Z"} if part.startswith("z.") else set(known.needs[0] if known else ())
    return tuple(sorted(needs))


def _fitted(spec: HeadSpec, total: Total, features: Features, gaussians: Gaussians) -> Head:
    """The head of a spec; those that look at a sketch are given it."""
    kind = HEADS[spec.name]
    if kind not in (SketchedQDA, Blend) or features.sketch is None or not total.moments.layout.has("Z"):
        return kind.fit(gaussians, **spec.options)
    return kind.fit(gaussians, Gaussians.of_sketch(total, features), features.sketch, **spec.options)


def _check_scores(head: Head, gaussians: Gaussians, spec: HeadSpec) -> None:
    """Raise where options make scores that are not numbers, so that nothing could be predicted."""
    present = gaussians.counts > 0
    tried = np.vstack([gaussians.centre, gaussians.means[present][:TRIED]])
    with np.errstate(all="ignore"):
        is_finite = bool(np.isfinite(head.scores(tried)[:, present]).all())
    if not is_finite:
        options = ", ".join(f"{key}={value}" for key, value in spec.options.items())
        raise HeadError(
            f"head {spec.name!r} with {options or 'its default options'} gives scores that are not finite numbers; "
            "choose options nearer to their defaults."
        )


_UNCALIBRATED = (
    "the probabilities of head {!r} are not calibrated: the total does not tell how rows of a class vary, as when every "
    "class has one row. Its predictions are the same."
)


def _empty_classes(total: Total, gaussians: Gaussians) -> list[str]:
    """The names of classes without a row, but for those of which a minimum count tells already."""
    told = set() if total.small_classes is None else set(total.small_classes.small)
    return [total.recipe.classes[c] for c in np.flatnonzero(gaussians.counts == 0).tolist() if c not in told]


def _never_predicted(names: list[str], is_noisy: bool) -> str:
    shown = ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    have = "class has" if len(names) == 1 else "classes have"
    where = "left after noise" if is_noisy else "in the total"
    return f"{len(names)} {have} no row {where} and will never be predicted: {shown}."


def is_possible(spec: HeadSpec, layout: Layout, recipe: Recipe) -> bool:
    """Whether a total of this layout has what the head needs."""
    has_sketch = recipe.sketch is not None
    return any(all(layout.has(s) and (s != "Z" or has_sketch) for s in need) for need in spec.needs)


def refuse_missing(spec: HeadSpec, total: Total) -> None:
    """Raise `MissingStatisticError` when the total does not hold what the head needs."""
    if not is_possible(spec, total.moments.layout, total.recipe):
        need = spec.needs[0]
        wish = " and ".join("a [sketch] section" if s == "Z" else f"statistics = ['{s}']" for s in need)
        possible = [name for name in HEADS if is_possible(HeadSpec(name), total.moments.layout, total.recipe)]
        raise MissingStatisticError(
            f"head {spec.name!r} needs {wish} in the recipe, and this total holds "
            f"{', '.join(total.moments.layout.shapes)}. Possible from it: {', '.join(possible)}."
        )


def _known(name: str) -> str:
    if name not in HEADS and name != BEST:
        raise HeadError(f"head {name!r} is unknown; known are {', '.join(HEADS)}, and {BEST}.")
    return name


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    if name == BEST:
        return
    internal = {"gaussians", "of_sketch", "sketch", "move"}
    known = {k: p for k, p in inspect.signature(HEADS[name].fit).parameters.items() if k not in internal}
    for key, value in options.items():
        if key not in known:
            raise HeadError(f"head {name!r} has no option {key!r}; it has {', '.join(known) or 'none'}.")
        if isinstance(value, str) != (known[key].annotation in (str, "str")):
            raise HeadError(
                f"option {key}={value} of head {name!r} is a {'text' if isinstance(value, str) else 'number'}; "
                f"its default is {known[key].default!r}."
            )
        least = 1 if key == "batch" else 0
        if known[key].annotation in WHOLE and not (isinstance(value, int) and value >= least):
            raise HeadError(f"{key} is {value}; option {key} of head {name!r} is a whole number, {least} or more.")
        if isinstance(value, float) and not np.isfinite(value):
            raise HeadError(f"{key} is {value}; option {key} of head {name!r} is a finite number.")


def _value(text: str, part: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        if _WORD.fullmatch(text):
            return text
        raise HeadError(f"option {part!r} is not of the form name=value, e.g. shrinkage=0.05 or base=lda.") from None


def _head(name: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Head:
    """The head that these arrays make."""
    if name not in HEADS:
        raise HeadError(f"head {name[:40]!r} is unknown; known are {', '.join(HEADS)}")
    try:
        return HEADS[name].from_arrays(arrays, {"classes": len(recipe.classes), "dim": recipe.dim})
    except ValueError as error:
        raise HeadError(str(error)) from None
