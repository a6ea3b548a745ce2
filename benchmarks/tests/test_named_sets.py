"""The paper's data sets by name; the hub itself is not asked."""

import pytest
from corruptions import Corruption
from named_sets import NAMED, NAMES, load
from PIL import Image

from ghofl.errors import DatasetError


def test_the_paper_s_nine_are_known_and_each_asks_the_hub_for_its_own_split(monkeypatch):
    import datasets as library

    assert len(NAMES) == 9
    asked = []

    def load_dataset(repository, configuration, split):
        asked.append((repository, configuration, split))
        source = next(s for s in NAMED.values() if s.data.split(":")[1] == repository)
        column = [Image.new("RGB", (9, 9), (10, 200, 30))] if source.sample in ("img", "image") else ["a text"]
        return library.Dataset.from_dict({source.sample: column, source.label: [0]})

    monkeypatch.setattr(library, "load_dataset", load_dataset)
    for name in NAMED:
        assert len(load(name, "test")) == 1
    assert ("stanfordnlp/sst2", None, "validation") in asked
    assert ("clinc/clinc_oos", "plus", "test") in asked
    assert len({repository for repository, _, _ in asked}) == 8
    asked.clear()
    bright = load("cifar100-c", corruption=Corruption("brightness", 5))
    assert asked == [("uoft-cs/cifar100", None, "test")]
    assert bright.read(0).max() > 200


def test_statistics_never_come_from_corrupted_test_images_by_accident():
    with pytest.raises(DatasetError, match="come from the clean cifar100, never from these"):
        load("cifar100-c")


def test_a_name_that_is_not_one_of_them_is_refused():
    with pytest.raises(DatasetError, match="'mnist' is not one of cifar10, cifar100, "):
        load("mnist")
