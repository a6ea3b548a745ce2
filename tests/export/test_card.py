"""The model card says who is in a classifier, and nothing in a name becomes markup."""

import numpy as np

from exported_heads import RECIPE, classifier_of
from ghofl.export.card import model_card


def test_the_card_names_sites_rows_recipe_and_the_missing_guarantee(rng):
    text = model_card(classifier_of("rda", RECIPE, rng), {"accuracy": 0.9125}, "animals")
    assert text.startswith("---\nlibrary_name: ghofl\n")
    assert "type: accuracy\n        value: 0.9125" in text
    for told in ("# animals", "| rows behind it | 600 |", "| sites | 1 |", RECIPE.fingerprint, "91.25 %", "`Füchse`"):
        assert told in text
    assert "there is no differential privacy guarantee" in text


def test_a_hostile_class_name_stays_text(rng):
    from dataclasses import replace

    classifier = classifier_of("lda", RECIPE, rng)
    bad = ("<script>alert(1)</script>", "a|b", "[x](http://evil)", "`", "fine")
    text = model_card(replace(classifier, recipe=replace(classifier.recipe, classes=bad)))
    assert "<script" not in text
    assert "](http" not in text
    assert np.all([line.count("|") == 3 for line in text.splitlines() if line.startswith("| classes")])
