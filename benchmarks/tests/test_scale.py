"""The stages from rows on disk to a scored head, at a size of seconds."""

import json

import pytest
import scale


@pytest.mark.slow
def test_every_stage_by_class_has_its_time_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "DIM", 16)
    found = scale.by_class(tmp_path, 600, 4, ["low_rank_qda", "rda"])
    stages = ["moments", "sum", "fit low_rank_qda", "score low_rank_qda", "fit rda", "score rda"]
    assert [name for name, about in found.items() if isinstance(about, dict)] == stages
    for name in stages:
        about = found[name]
        assert about["cpu_seconds"] > 0
        assert 20 < about["anonymous_mb"] <= about["peak_mb"] < 1000
    assert found["score rda"]["accuracy"] > 0.5
    assert {path.suffix for path in tmp_path.iterdir() if path.stat().st_size > 10**5} <= {".npy"}
    lines = scale.table({"by_class": {"4": json.loads(json.dumps(found))}}).splitlines()
    assert sum("600 × 2,048 rows, 4 classes, S: " in line for line in lines) == len(stages)
