from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, gaussians_of, recipe_of
from ghofl.heads import Student
from ghofl.heads.calibration import temperature_of


def test_a_student_heads_temperature_does_not_depend_on_its_tails(rng):
    """Wide draws lie in heavy tails, where the head is never sure: T would come out too small, 2 instead of 9."""
    gaussians = gaussians_of(recipe_of(), *blobs(rng, spread=1.0))
    heavy = Student.fit(gaussians, Student.Options(dof=5.0))
    light = replace(heavy, dof=np.asarray(1e9))
    assert temperature_of(heavy, gaussians) == pytest.approx(temperature_of(light, gaussians))
