"""A head with its recipe: rows in, class names out."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.encoders.given import Data, embeddings_of
from ghofl.errors import (
    CalibrationWarning,
    EmbeddingsError,
    EmptyClassWarning,
    HeadError,
)
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.heads import Rule
from ghofl.heads.calibration import Calibration, calibrate
from ghofl.heads.decision import check_thresholds, decide, limits_of, priors_of
from ghofl.heads.head import PERSONAL
from ghofl.heads.novelty import PREFIX, Novelty, check_novelty
from ghofl.heads.rules import read_rule
from ghofl.heads.spec import DEFAULT_HEAD, AnyHead, HeadSpec, written
from ghofl.notebook import Printable, abbreviate
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.recipe.labels import class_numbers, labels_of
from ghofl.shapes import Bool, Float, Int64, Shaped
from ghofl.wire.head_file import HeadFile, damage
from ghofl.wire.total import Total

TRIED = 8  # class means that a new head is tested on
NAMED = 5  # empty classes that a warning names

Warn = Callable[[Warning], None]


def show_warning(warning: Warning) -> None:
    """Let Python show a warning."""
    warnings.warn(warning, stacklevel=3)  # the line that asked for the fit


@dataclass(frozen=True, slots=True, repr=False)
class Classifier(Printable):
    """A fitted head with its recipe: rows in, class names or probabilities out.

    Rows are embeddings (an array, a list of rows, a DataFrame of numbers), or under a recipe with a table a DataFrame
    with its columns. `head` names how the `rule` that scores them was fitted; nothing else of it is needed any more.

    Guarantees
    ----------
    The prediction is the most probable class, unless thresholds say otherwise. ``Classifier.load`` after ``save`` gives the
    same scores, probabilities and predictions, to the bit, with the priors and thresholds in force. Fitted to a total, its
    rule and calibration are the same however the rows were split over `sites`. `guarantee` is what the noise in that total
    promises, and `revealed` what its minimum counts reveal, and why there is no guarantee after calibration on sites' rows.
    What `personal` says was changed towards the rows of one site: such a head describes them, and promises nothing. `total`
    is the sha256 of the sums that it follows from, empty where anything else went into it. Two classifiers are equal when
    recipe, head and all that is recorded are.

    Examples
    --------
    >>> from ghofl import Encoder, Layout, Message, Moments
    >>> recipe = Recipe(classes=("low", "high"), encoder=Encoder(dim=2))
    >>> q, _ = Features.of(recipe).rows(np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 0.0], [3.5, 1.0]]))
    >>> message = Message.of(Moments.of(q, np.array([0, 0, 1, 1]), Layout.of(recipe)), recipe)
    >>> classifier = Classifier.fit(Total.of([message], recipe), "lda(shrinkage=0.1)")
    >>> classifier.predict([[0.5, 1.0], [3.0, 0.5]]).tolist()
    ['low', 'high']
    """

    recipe: Recipe
    head: str
    rule: Rule
    options: dict[str, Any] = field(default_factory=dict)
    sites: int = 0
    rows: int = 0
    guarantee: Guarantee | None = None
    revealed: str = ""
    calibration: Calibration = field(default_factory=Calibration)
    thresholds: dict[str, float] = field(default_factory=dict)
    novelty_rule: Novelty | None = None
    personal: str = ""
    total: str = ""
    _features: Features | None = field(default=None, compare=False)

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @classmethod
    def fit(
        cls,
        total: Total,
        head: AnyHead = DEFAULT_HEAD,
        warn: Warn = show_warning,
        novelty: bool = False,
        adapt: Callable[[Gaussians], Gaussians] | None = None,
    ) -> "Classifier":
        """The classifier of a total, with a head by its name, perhaps with options, or one of your own as a `Head`.

        Probabilities are calibrated on drawn rows (`ghofl.heads.calibration`). `warn` is called with a warning about classes
        that no site has (`EmptyClassWarning`) or probabilities that cannot be calibrated (`CalibrationWarning`); by default
        Python shows them. With `novelty`, which takes seconds in a thousand dimensions, the classifier also recognises rows
        that belong to none of the classes. `adapt` may change the Gaussians before the head is fitted to them.
        """
        spec = HeadSpec.of(head)
        spec.check(total.moments.layout, total.recipe)
        if novelty:
            check_novelty(total.moments.layout)
        total = total.for_heads()
        features = Features.of(total.recipe)
        gaussians = (adapt or (lambda same: same))(Gaussians.of_total(total, features))
        spec = spec.choose(total.moments.layout, total.recipe, gaussians)
        kind, record = spec.head, spec.record
        rule = kind.fit(gaussians, record)
        if spec.own is not None:
            _check_form(rule, gaussians, spec)
        _check_scores(rule, gaussians, spec)
        if empty := _empty_classes(total, gaussians):
            warn(EmptyClassWarning(_never_predicted(empty, is_noisy=total.guarantee is not None)))
        is_calibrated = kind.is_calibrated and gaussians.has_spread
        if is_calibrated:
            calibration = Calibration(priors=gaussians.counts / gaussians.rows)
        else:
            calibration = calibrate(kind, rule, gaussians, record)
        if calibration.source == "none" and not is_calibrated:
            warn(CalibrationWarning(_UNCALIBRATED.format(spec.name)))
        revealed = "" if total.small_classes is None else total.small_classes.revealed
        sites, rows = len(total.roster), total.moments.rows
        return cls(
            total.recipe, spec.name, rule, spec.options, sites, rows, total.guarantee, revealed, calibration, {},
            Novelty.of(gaussians) if novelty else None, total=total.moments.sha256 if adapt is None else "", _features=features,
        )  # fmt: skip

    @property
    def classes_(self) -> Shaped[np.ndarray, " classes"]:
        """The names of the classes, in the order of the columns of `predict_proba`."""
        return np.array(self.recipe.classes)

    def scores(self, rows: Data) -> Float[np.ndarray, "n classes"]:
        """The rule's numbers, one per row and class, before calibration and priors.

        The prediction is the most probable class, whose score need not be the largest where some classes are rarer.
        """
        return self.rule.scores(self._values(rows))

    def predict(self, rows: Data, reject: float | None = None) -> Shaped[np.ndarray, " n"]:
        """The class name of each row, or an empty text for a row of none of the classes (see `predict_numbers`)."""
        return np.array([*self.recipe.classes, ""])[self.predict_numbers(rows, reject)]

    def predict_numbers(self, rows: Data, reject: float | None = None) -> Int64[np.ndarray, " n"]:
        """The position of each row's class in the list of classes, from 0.

        It is the most probable class or, with thresholds, the one that `decide` chooses. With `reject`, a share such as
        0.05, a row gets −1 if it is further from all classes than all but that share of the rows that belong to them.
        """
        rows = embeddings_of(rows, self.recipe.table)
        found = self.decide(self.predict_proba(rows))
        return found if reject is None else np.where(self.is_novel(rows, reject), -1, found)

    def predict_proba(self, rows: Data) -> Float[np.ndarray, "n classes"]:
        """Probabilities of every class under the priors in force, calibrated as `calibration` says."""
        return self.calibration.probabilities(self.scores(rows))

    def score(self, rows: Data, labels: Any, labels_are_numbers: bool = False) -> float:
        """The share of rows whose label is predicted; labels are class names, or numbers where classes are 0, 1, 2 …"""
        y = class_numbers(labels_of(labels), self.recipe.classes, labels_are_numbers)
        found = self.predict_numbers(rows)
        if len(y) != len(found) or not len(y):
            raise EmbeddingsError(f"{len(y)} labels for {len(found)} rows; give one label per row, and at least one.")
        return float(np.mean(found == y))

    def novelty(self, rows: Data) -> Float[np.ndarray, " n"]:
        """How far each row is from all classes: its relative Mahalanobis distance (`ghofl.heads.novelty`)."""
        return self._novelty().scores(self._values(rows))

    def is_novel(self, rows: Data, rate: float) -> Bool[np.ndarray, " n"]:
        """Whether a row is further from all classes than all but this share of the rows that belong to them."""
        return self.novelty(rows) > self.novelty_threshold(rate)

    def novelty_threshold(self, rate: float) -> float:
        """The novelty that this share of the rows of the classes exceeds, measured on draws or on the sites' rows."""
        return self._novelty().threshold(rate)

    def _novelty(self) -> Novelty:
        if self.novelty_rule is None:
            raise HeadError(
                f"this head, {self.head}, was made without novelty, so it does not recognise rows that belong to none of its "
                "classes; make it again with novelty, as ghofl.fit(total, head, novelty=True) does."
            )
        return self.novelty_rule

    def decide(self, probabilities: Float[np.ndarray, "n classes"]) -> Int64[np.ndarray, " n"]:
        """The class of each row by its probabilities and the thresholds in force (`ghofl.heads.decision.decide`)."""
        return decide(probabilities, limits_of(self.thresholds, self.recipe.classes))

    def with_priors(self, priors: str | Mapping[str, float] | Sequence[float]) -> "Classifier":
        """The classifier for data in which classes have other shares than in the total.

        `priors` are the word "uniform", or one number per class, at least 0: a sequence in the order of the recipe, or a
        mapping from names in which classes that are left out have 0. Only proportions matter.
        """
        return replace(self, calibration=self.calibration.with_priors(priors_of(priors, self.recipe.classes)))

    def with_thresholds(self, thresholds: Mapping[str, float]) -> "Classifier":
        """The classifier that predicts these classes where they have at least these probabilities (see `decide`)."""
        return replace(self, thresholds=check_thresholds(thresholds, self.recipe.classes))

    def _values(self, rows: Data) -> Float[np.ndarray, "n features"]:
        return self.features.values(embeddings_of(rows, self.recipe.table))

    @property
    def warning(self) -> str:
        """What to know before a personal head is given to anybody; empty for any other."""
        return PERSONAL.format(self.personal) if self.personal else ""

    def _facts(self) -> dict[str, object]:
        return {
            "head": written(self.head, self.options),
            "classes": abbreviate(self.recipe.classes),
            "from": f"{self.rows:,} rows of {self.sites:,} site{'' if self.sites == 1 else 's'}",
            **({} if self.guarantee is None else {"privacy": str(self.guarantee).splitlines()[0]}),
            **({"personal": self.personal} if self.personal else {}),
            "temperature": f"{self.temperature:.3g}",
            "recipe": f"{self.recipe.fingerprint[:12]}…",
        }

    @property
    def temperature(self) -> float:
        """T, by which scores are divided before they become probabilities."""
        return self.calibration.temperature

    @property
    def features(self) -> Features:
        """The recipe's map from embeddings to features."""
        if self._features is None:
            object.__setattr__(self, "_features", Features.of(self.recipe))
        assert self._features is not None
        return self._features

    def to_bytes(self) -> bytes:
        """The classifier as a safetensors file: the head's arrays, with recipe and options in the metadata."""
        return self._file().to_bytes()

    def save(self, path: str | Path) -> None:
        """Write the classifier to a file, a piece at a time where it is larger than memory; a personal one for its owner."""
        self._file().write(path)

    def _file(self) -> HeadFile:
        arrays = self.rule.arrays() | ({} if self.novelty_rule is None else self.novelty_rule.arrays())
        return HeadFile(
            self.head, self.rule.form, arrays, self.recipe, self.options, self.sites, self.rows, self.guarantee,
            self.revealed, self.calibration.to_header(), self.thresholds, self.personal, self.total,
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> "Classifier":
        """The classifier in some bytes; anything else raises `MessageError`."""
        return cls._of_file(HeadFile.from_bytes(data))

    @classmethod
    def load(cls, path: str | Path) -> "Classifier":
        """Read a classifier from a file; matrices that are too large for memory stay there, so leave it in its place."""
        return cls._of_file(HeadFile.read(path))

    @classmethod
    def _of_file(cls, file: HeadFile) -> "Classifier":
        recipe, arrays = file.recipe, file.arrays
        try:
            own = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
            rule = read_rule(file.rule, own, len(recipe.classes), recipe.dim)
            novelty = Novelty.from_arrays(arrays, recipe.dim)
            thresholds = check_thresholds(file.thresholds, recipe.classes)
        except HeadError as error:
            raise damage(error) from None
        calibration = Calibration.of_header(file.calibration, len(recipe.classes))
        return cls(
            recipe, file.head, rule, file.options, file.sites, file.rows, file.guarantee, file.revealed, calibration,
            thresholds, novelty, file.personal, file.total,
        )  # fmt: skip


def _check_form(rule: Any, gaussians: Gaussians, spec: HeadSpec) -> None:
    """Raise where a head of somebody's own gives what no file could hold."""
    wanted = "return a rule of ghofl.heads.rules, with one score per class."
    if not isinstance(rule, Rule):
        raise HeadError(f"head {spec.name!r} gives a {type(rule).__name__}; {wanted}")
    try:
        read_rule(rule.form, rule.arrays(), *gaussians.means.shape)
    except HeadError as error:
        raise HeadError(
            f"head {spec.name!r} gives a rule that its file could not be read with: {error}; {wanted}"
        ) from None


def _check_scores(rule: Rule, gaussians: Gaussians, spec: HeadSpec) -> None:
    """Raise where options give scores that are not finite, so that nothing could be predicted."""
    present = gaussians.counts > 0
    tried = np.vstack([gaussians.centre, gaussians.means[present][:TRIED]])
    with np.errstate(all="ignore"):
        is_finite = bool(np.isfinite(rule.scores(tried)[:, present]).all())
    if not is_finite:
        options = written("", spec.options)[1:-1] or "its default options"
        raise HeadError(
            f"head {spec.name!r} with {options} gives scores that are not finite numbers; "
            "choose options nearer to their defaults."
        )


_UNCALIBRATED = (
    "the probabilities of head {!r} are not calibrated: the total does not say how rows of a class vary. It holds none of the "
    "statistics D, B and S, or every class has one row, or the same row again and again. Predictions are not affected."
)


def _empty_classes(total: Total, gaussians: Gaussians) -> list[str]:
    """The names of classes without a row, except those already named by a minimum count."""
    known = set() if total.small_classes is None else set(total.small_classes.small)
    return [total.recipe.classes[c] for c in np.flatnonzero(gaussians.counts == 0).tolist() if c not in known]


def _never_predicted(names: list[str], is_noisy: bool) -> str:
    first = ", ".join(map(repr, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    have = "class has" if len(names) == 1 else "classes have"
    where = "left after noise" if is_noisy else "in the total"
    return f"{len(names)} {have} no row {where} and will never be predicted: {first}."
