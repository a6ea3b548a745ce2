"""A head with its recipe: raw embeddings in, labels out."""

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
from ghofl.heads import HEADS, Head
from ghofl.heads.calibration import temperature_of
from ghofl.heads.spec import HeadSpec
from ghofl.names import shown
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.envelope import check_fingerprint, check_seal, safetensors_header, seal
from ghofl.wire.roster import guarantee_in
from ghofl.wire.total import Total

MAX_HEADER = 256 * 2**20
TRIED = 8  # class means that a new head is tried on
NAMED = 5  # empty classes that a warning names

Warn = Callable[[Warning], None]


def _warn(warning: Warning) -> None:
    warnings.warn(warning, stacklevel=3)  # the line that asked for the fit


@dataclass(frozen=True, slots=True)
class Classifier:
    """A head with its recipe: raw embeddings in, class numbers or probabilities out.

    Guarantees
    ----------
    ``Classifier.load`` after ``save`` gives the same scores, to the bit. Fitted on a total, it is the same whichever
    way the rows were split over sites. `guarantee` is what the noise in that total promises, and `revealed` what its
    minimum counts tell. Two classifiers are equal when recipe, head and everything recorded about them are.

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
        spec = spec.choose(total.moments.layout, total.recipe)
        check_statistics(spec, total)
        total = total.for_heads()
        features = Features.of(total.recipe)
        gaussians = Gaussians.of_total(total, features)
        head = HEADS[spec.name].fit(gaussians, spec.record)
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
        """One number per row and class; the largest is the prediction."""
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
        return seal(self.head.arrays(), header)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Classifier":
        """The classifier in some bytes; anything else raises `MessageError`."""
        header = safetensors_header(data, "head", MAX_HEADER)
        if header["schema"] > 1:
            check_seal(header, data)
        try:
            recipe = Recipe.from_toml(str(header.get("recipe_toml", "")))
            check_fingerprint(header, recipe)
            head = _read_head(str(header.get("head")), load_safetensors(data), recipe)
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
    known = set() if total.small_classes is None else set(total.small_classes.small)
    return [total.recipe.classes[c] for c in np.flatnonzero(gaussians.counts == 0).tolist() if c not in known]


def _never_predicted(names: list[str], is_noisy: bool) -> str:
    shown = ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    have = "class has" if len(names) == 1 else "classes have"
    where = "left after noise" if is_noisy else "in the total"
    return f"{len(names)} {have} no row {where} and will never be predicted: {shown}."


def check_statistics(spec: HeadSpec, total: Total) -> None:
    """Raise `MissingStatisticError` unless the total holds what the head needs."""
    layout, recipe = total.moments.layout, total.recipe
    if not spec.is_possible(layout, recipe):
        wish = " and ".join("a [sketch] section" if s == "Z" else f"statistics = ['{s}']" for s in spec.needs[0])
        possible = [name for name in HEADS if HeadSpec(name).is_possible(layout, recipe)]
        raise MissingStatisticError(
            f"head {spec.name!r} needs {wish} in the recipe, and this total holds {', '.join(layout.shapes)}. "
            f"Possible from it: {', '.join(possible)}."
        )


def _read_head(name: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> Head:
    """The head that these arrays make."""
    if name not in HEADS:
        raise HeadError(f"head {name[:40]!r} is unknown; known are {', '.join(HEADS)}")
    try:
        return HEADS[name].from_arrays(arrays, {"classes": len(recipe.classes), "dim": recipe.dim})
    except ValueError as error:
        raise HeadError(str(error)) from None
