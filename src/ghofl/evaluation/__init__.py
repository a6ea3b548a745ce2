"""How often predictions are right: additive counts, rates from them, and choosing a head by them."""

from ghofl.evaluation.confusion import Confusion, expected_calibration_error

__all__ = ["Confusion", "expected_calibration_error"]
