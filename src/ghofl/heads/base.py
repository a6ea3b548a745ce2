"""What every head promises."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import scipy.special
from jaxtyping import Float, Int64

from ghofl.gaussians import Gaussians


@runtime_checkable
class Head(Protocol):
    """A rule that scores features for every class; built from Gaussians, never from rows.

    `needs` lists, best first, the sets of statistics that are enough to fit it. A head is a frozen dataclass whose
    fields are arrays, so that it can be saved and loaded without knowing which head it is.

    Guarantees
    ----------
    Scores of a row do not depend on the other rows. A class nobody has scores −∞ and is never predicted; no score
    is NaN. The head fitted on a total is the same however the rows were split over sites.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[tuple[str, ...], ...]]

    @classmethod
    def fit(cls, gaussians: Gaussians, *args: Any, **options: Any) -> "Head":
        """The head of these Gaussians."""
        ...

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """One number a row and class; the largest is the prediction."""
        ...

    def predict(self, x: Float[np.ndarray, "n dim"]) -> Int64[np.ndarray, " n"]:
        """The number of the best class of each row."""
        return self.scores(x).argmax(axis=1)

    def predict_proba(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The softmax of the scores: posteriors for the Gaussian heads, a ranking for the others."""
        return scipy.special.softmax(self.scores(x), axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """The head as named arrays."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {f.name: np.ascontiguousarray(getattr(self, f.name)) for f in fields}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Head":
        """The head that `arrays` came from."""
        return cls(**arrays)


def linear_scores(
    x: Float[np.ndarray, "n dim"], weights: Float[np.ndarray, "classes dim"], bias: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, "n classes"]:
    """w_c·x + b_c for every row and class."""
    return x @ weights.T + bias
