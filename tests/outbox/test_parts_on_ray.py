"""The page on big sites, run on a local Ray: parts of several processes are the message of one."""

import re
from pathlib import Path

import numpy as np
import pytest

from ghofl import Features
from ghofl.outbox import Embedded, count

ray = pytest.importorskip("ray")
PAGE = Path(__file__).parents[2] / "docs" / "how-to-big-sites.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_example_on_ray_gives_the_moments_of_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    src = str(Path(__file__).parents[2] / "src")
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": src}, "working_dir": None})
    try:
        names: dict = {"__name__": "example"}
        exec(compile(example.replace('f"shard-', f'f"{tmp_path}/shard-'), PAGE.name, "exec"), names)
    finally:
        ray.shutdown()
    loaded = [np.load(path) for path in names["shards"]]
    rows = Embedded(*(np.concatenate([arrays[name] for arrays in loaded]) for name in ("x", "y")))
    whole = count(Features.of(names["recipe"]), rows)
    assert names["message"].moments.sha256 == whole.moments.sha256
    assert names["message"].rows == 3000
