"""The heads as a scikit-learn classifier whose training can be merged, added to and exactly undone."""

from __future__ import annotations

import hashlib
import inspect
import secrets
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from ghofl.classifier import Classifier, HeadSpec
from ghofl.errors import CalibrationWarning, EmbeddingsError, EmptyClassWarning, HeadError, MissingExtraError
from ghofl.features import Features
from ghofl.heads import HEADS
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.moments import Layout, Moments
from ghofl.outbox import Embedded, count
from ghofl.recipe import Encoder, Grid, Recipe
from ghofl.wire.roster import Entry
from ghofl.wire.total import Total

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtraError("ghofl.sklearn needs scikit-learn 1.6 or newer: pip install 'ghofl[sklearn]'") from None

_OPTIONS = tuple(dict.fromkeys(name for head in HEADS.values() for name in head.Options.known()))
HEADROOM = 8.0  # how many times larger than the rows it was fitted to a row may be and still fit the grid


class GaussianHeadClassifier(ClassifierMixin, BaseEstimator):
    """Any ghofl head with scikit-learn's interface: `fit`, `partial_fit`, `merge` and an exact `forget`.

    Parameters
    ----------
    head : the head, e.g. ``"lda"`` or ``"best"``, the strongest for the data; its options may stand in brackets,
        ``"rda(blend=0.9)"``. A head of your own is given as the `Head` itself.
    bits : bits of the grid that features are rounded to, 2 to 16.
    center, scale : numbers to subtract and divide by, one per feature or one for all, so that most values lie within
        ±1. Estimators can be merged only if both are the same. By default they follow from the first rows.
    novelty : whether `classifier_` also recognises rows of none of the classes, for its ``predict(x, reject=0.05)``.
    remember : whether to keep what `forget` needs: a digest of every row and label, under a key of this estimator. Digests
        stay in this process: a pickle or a copy has none, and `merge` takes none from the other estimator.
    **options : every option of every head by its name, such as ``blend=0.9``, for grid searches; None is the head's own
        default. One that the head does not have raises in `fit`.

    Attributes
    ----------
    classes_ : the class labels.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    moments_ : the exact sums that everything is computed from.
    classifier_ : the `Classifier` built from them, in `fit`, or after `partial_fit`, `merge` and `forget` when it is
        first needed.

    Notes
    -----
    `partial_fit` of rows in any batches and order, and `merge` of estimators with one grid, give the moments of one
    `fit` with that grid on all rows, to the bit. `forget` undoes `partial_fit` exactly. A pickle holds sums, and nothing
    that tells whether a row was learned (test_a_pickle_does_not_tell_learned_rows_from_others).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = GaussianHeadClassifier("lda", center=4.0, scale=4.0)
    >>> north = model.partial_fit(x[::2], y[::2], classes=[0, 1, 2])
    >>> south = GaussianHeadClassifier("lda", center=4.0, scale=4.0).partial_fit(x[1::2], y[1::2], classes=[0, 1, 2])
    >>> north.merge(south).score(x, y)
    0.98
    """

    def __init__(
        self,
        head: Any = DEFAULT_HEAD,
        *,
        bits: Any = 16,
        center: Any = None,
        scale: Any = None,
        novelty: Any = False,
        remember: Any = False,
        **options: Any,
    ) -> None:
        self.head = head
        self.bits = bits
        self.center = center
        self.scale = scale
        self.novelty = novelty
        self.remember = remember
        for name in _OPTIONS:
            setattr(self, name, options.pop(name, None))
        if options:
            raise HeadError(f"no head has an option {next(iter(options))!r}; there are {', '.join(_OPTIONS)}.")

    def fit(self, X: Any, y: Any) -> GaussianHeadClassifier:
        """Forget everything and learn from these rows."""
        X, y = self._checked(X, y, reset=True)
        self._start(X, np.unique(y))
        self._learn(X, y)
        self._build()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> GaussianHeadClassifier:
        """Add rows. The first call needs all `classes`, unless the first rows have one of each."""
        first = not hasattr(self, "moments_")
        X, y = self._checked(X, y, reset=first)
        if first:
            self._start(X, np.unique(y if classes is None else classes))
            return self._learn(X, y)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise EmbeddingsError(
                f"classes are {np.asarray(classes).tolist()} and were {self.classes_.tolist()} in the first call; "
                "give the same ones, or none."
            )
        return self._learn(X, y)

    def merge(self, other: GaussianHeadClassifier) -> GaussianHeadClassifier:
        """Add everything that another estimator has learned, as if its rows had been given to this one.

        Only rows that were given to this one can be forgotten here.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if not np.array_equal(self.classes_, other.classes_):
            raise EmbeddingsError(
                f"the classes are {self.classes_.tolist()} here and {other.classes_.tolist()} there; "
                "give both estimators the same `classes`."
            )
        if not (np.array_equal(self._center, other._center) and np.array_equal(self._scale, other._scale)):
            raise EmbeddingsError("the two were fitted on different grids; give both the same center and scale.")
        if self._recipe != other._recipe:
            raise EmbeddingsError(
                f"the two differ in head or bits ({self.head}, {self.bits} and {other.head}, {other.bits}), so their sums do not "
                "add; give both the same ones."
            )
        return self._replace(self.moments_ + other.moments_)

    def forget(self, X: Any, y: Any) -> GaussianHeadClassifier:
        """Take out rows that were learned before: the result is, to the bit, an estimator that never saw them.

        A row that was not learned, or not with this label, or not as often as it is given here, raises. So does an
        estimator without `remember`, and one that was copied or came from a pickle.
        """
        check_is_fitted(self)
        if self._learned is None:
            raise EmbeddingsError(
                "this estimator does not know which rows it has learned; make it with remember=True, and forget in the process "
                "that learned."
            )
        X, y = self._checked(X, y, reset=False)
        sums, numbers = self._sums(X, y)
        self._learned.remove(X, numbers)
        return self._replace(self.moments_ - sums)

    def __getstate__(self) -> dict[str, Any]:
        return dict(super().__getstate__(), _learned=None)  # type: ignore[arg-type]

    @property
    def classifier_(self) -> Classifier:
        """The classifier of everything learned so far."""
        check_is_fitted(self, "moments_")
        return self._built[0] if self._built else self._build()

    def _build(self) -> Classifier:
        total = Total(self._recipe, self.moments_, (Entry.hidden("rows"),))
        with warnings.catch_warnings():  # rows of some `classes` may come later
            warnings.simplefilter("ignore", EmptyClassWarning)
            warnings.simplefilter("ignore", CalibrationWarning)
            self._built = [Classifier.fit(total, self._spec(), novelty=self.novelty)]
        return self._built[0]

    def _spec(self) -> HeadSpec:
        """The head with the options in its text and those that are parameters."""
        spec = HeadSpec.of(self.head)
        given = {name: getattr(self, name) for name in _OPTIONS if getattr(self, name) is not None}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        return replace(spec, options=spec.options | plain)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, which is the argmax of `predict_proba`."""
        rows = self._rows(X)
        return self.classes_[self.classifier_.predict_numbers(rows)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """One probability per row and class, in the order of `classes_`."""
        rows = self._rows(X)
        return self.classifier_.predict_proba(rows)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities up to a term per row; for two classes, how much the second is ahead."""
        rows = self._rows(X)
        scores = self.classifier_.calibration.log_odds(self.classifier_.scores(rows))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "moments_")
        return self._scaled(np.asarray(validate_data(self, X, reset=False, dtype=np.float64)))

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64)
        check_classification_targets(y)
        return X, y

    def _start(self, X: np.ndarray, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise EmbeddingsError(
                f"a classifier needs at least two classes, and there is only 1 class: {classes.tolist()[0]!r}."
            )
        self.classes_ = classes
        dim = X.shape[1]
        center, scale = _fitted_grid(X)
        self._center = np.broadcast_to(np.asarray(center if self.center is None else self.center, float), dim)
        self._scale = np.broadcast_to(np.asarray(scale if self.scale is None else self.scale, float), dim)
        if not (np.isfinite(self._center).all() and (self._scale > 0).all() and np.isfinite(self._scale).all()):
            raise EmbeddingsError(
                f"center is {self.center} and scale {self.scale}; center must be finite and scale positive, one "
                "number per feature "
                "or one for all."
            )
        grid = Grid(bits=self.bits, scale=(2.0 ** (self.bits - 1) - 1) / HEADROOM)
        recipe = Recipe(tuple(map(str, range(len(classes)))), Encoder(dim=dim), ("S",), grid=grid)
        spec = self._spec().choose(Layout.of(recipe), recipe)
        self._recipe = replace(recipe, statistics=tuple(s for s in spec.needs[0] if s != "Z") or ("N", "A"))
        self._learned = _Learned() if self.remember else None
        self._replace(Moments.zeros(Layout.of(self._recipe)))

    def _learn(self, X: np.ndarray, y: np.ndarray) -> GaussianHeadClassifier:
        sums, numbers = self._sums(X, y)
        if self._learned is not None:
            self._learned.add(X, numbers)
        return self._replace(self.moments_ + sums)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return (X - self._center) / self._scale

    def _sums(self, X: np.ndarray, y: np.ndarray) -> tuple[Moments, np.ndarray]:
        """The moments of some rows, and the numbers of their classes."""
        numbers = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[numbers] != y).any():
            odd = y[self.classes_[numbers] != y].tolist()[0]
            raise EmbeddingsError(
                f"label {odd!r} is not one of the classes {self.classes_.tolist()}; name all in `classes`."
            )
        counted = count(Features.of(self._recipe), Embedded(self._scaled(X), numbers.astype(np.int64)))
        counted.clipping.warn(self._recipe)
        return counted.moments, numbers

    def _replace(self, moments: Moments) -> GaussianHeadClassifier:
        self.moments_, self._built = moments, []
        return self


def _with_options(signature: inspect.Signature) -> inspect.Signature:
    """A signature with a parameter for each option of a head, which is how scikit-learn learns of them."""
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    return signature.replace(
        parameters=own + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _OPTIONS]
    )


GaussianHeadClassifier.__init__.__signature__ = _with_options(inspect.signature(GaussianHeadClassifier.__init__))  # type: ignore[attr-defined]


def _fitted_grid(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A centre and a scale per feature; scales are powers of two, so that dividing by them is exact."""
    center, spread = X.mean(axis=0), np.abs(X - X.mean(axis=0)).max(axis=0)
    deviation = np.maximum(X.std(axis=0), spread * 2.0 / HEADROOM)
    safe = np.where(deviation > 0, deviation, np.maximum(1.0, np.abs(center)))
    scale = 2.0 ** np.ceil(np.log2(safe))
    return np.rint(center / scale * 2**20) / 2**20 * scale, scale


class _Learned:
    """Which rows were learned with which labels, and how often, by digests that are nothing without their key."""

    def __init__(self) -> None:
        self._key, self._often = secrets.token_bytes(32), Counter[bytes]()

    def add(self, X: np.ndarray, numbers: np.ndarray) -> None:
        """Remember these rows."""
        self._often.update(self._digests(X, numbers))

    def remove(self, X: np.ndarray, numbers: np.ndarray) -> None:
        """Take these rows out again; raises where some of them are not there."""
        asked = self._digests(X, numbers)
        if missing := (asked - self._often).total():
            raise EmbeddingsError(
                f"{missing} of these {len(X)} rows were never learned with these labels, or were forgotten before; forget "
                "only rows that were learned."
            )
        self._often -= asked

    def _digests(self, X: np.ndarray, numbers: np.ndarray) -> Counter[bytes]:
        rows = np.column_stack([X + 0.0, numbers])  # one zero, whatever its sign
        return Counter(hashlib.blake2b(row.tobytes(), digest_size=16, key=self._key).digest() for row in rows)
