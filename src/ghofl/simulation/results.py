"""How one head is judged: on the test rows, with what it costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ghofl.classifier import Classifier, HeadSpec, show_warning
from ghofl.errors import CalibrationWarning
from ghofl.evaluation import Metrics
from ghofl.simulation.dataset import Dataset
from ghofl.wire.total import Total


@dataclass(frozen=True, slots=True)
class HeadResult:
    """One head or baseline on the test rows: its measures, the mean bytes a client sends in all its rounds, its times."""

    metrics: Metrics
    payload_bytes: int
    fit_seconds: float
    ms_per_sample: float
    rounds: int = 1

    @property
    def accuracy(self) -> float:
        """The share of test rows whose class was predicted."""
        return self.metrics.confusion.accuracy


Judge = Callable[[Total, HeadSpec, Dataset], HeadResult]


def judge_head(total: Total, spec: HeadSpec, data: Dataset) -> HeadResult:
    """Fit a head to a total and score it on the test rows; `payload_bytes`, not known here, is 0."""
    started = time.perf_counter()
    classifier = Classifier.fit(total, spec, warn=_warn)
    fitted = time.perf_counter()
    probabilities = classifier.predict_proba(data.x_test)
    scored = time.perf_counter()
    metrics = Metrics.of(probabilities, data.y_test)
    per_sample = 1000.0 * (scored - fitted) / max(1, len(data.y_test))
    return HeadResult(metrics, 0, fitted - started, per_sample)


def _warn(warning: Warning) -> None:
    """Show a warning; probabilities that are not calibrated are judged here, by the log loss."""
    if not isinstance(warning, CalibrationWarning):
        show_warning(warning)


def remembering(digest: Callable[[Dataset], str]) -> Judge:
    """`judge_head`, once for all totals that are equal to the bit."""
    judged: dict[tuple[str, ...], HeadResult] = {}

    def judge(total: Total, spec: HeadSpec, data: Dataset) -> HeadResult:
        key = (total.recipe.fingerprint, total.moments.sha256, str(spec), digest(data))
        if key not in judged:
            judged[key] = judge_head(total, spec, data)
        return judged[key]

    return judge
