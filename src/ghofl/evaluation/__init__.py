"""How often predictions are right, and how far their probabilities can be trusted."""

from ghofl.evaluation.confusion import Confusion, expected_calibration_error
from ghofl.evaluation.metrics import Metrics

__all__ = ["Confusion", "Metrics", "expected_calibration_error"]
