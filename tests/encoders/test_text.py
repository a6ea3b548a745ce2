"""Text encoders against pooling written out by hand."""

import numpy as np
import pytest
import torch

from ghofl import encoders
from ghofl.encoders import cosines
from ghofl.errors import EncoderError, SampleError

TEXTS = ["the cat sat", "a dog ran on the very long road far away home", "cat", "unknown words here", "the dog"]


def rows(encoder, batch):
    return next(iter(encoder.encode([batch])))


def by_hand(folder, text, pooling):
    """One text at a time, no padding: the plain definition of mean and CLS pooling."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.inference_mode():
        hidden = AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state[0]
    return (hidden.mean(dim=0) if pooling == "mean" else hidden[0]).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_is_the_mean_of_tokens_or_the_first_of_them(language_model, pooling):
    encoder = encoders.load(f"hf:{language_model}", pooling=pooling)
    expected = np.stack([by_hand(language_model, text, pooling) for text in TEXTS])
    assert np.allclose(rows(encoder, TEXTS), expected, atol=1e-5)


def test_a_text_s_embedding_does_not_depend_on_the_texts_beside_it(language_model):
    encoder = encoders.load(f"hf:{language_model}")
    many = [TEXTS[i % len(TEXTS)] for i in range(300)]
    together = rows(encoder, many)
    assert np.allclose(together[:5], rows(encoder, TEXTS), atol=1e-5)
    assert np.allclose(together[5:10], together[:5], atol=1e-5)


def test_a_long_text_is_cut_where_the_model_ends(language_model):
    encoder = encoders.load(f"hf:{language_model}")
    assert encoder.tokens.longest == 24
    long = " ".join(["cat"] * 500)
    assert np.allclose(rows(encoder, [long]), rows(encoder, [long + " dog"]), atol=1e-6)


def test_the_fingerprint_changes_with_pooling_and_not_with_the_folder(language_model, tmp_path):
    import shutil

    copy = shutil.copytree(language_model, tmp_path / "copy")
    one, other = encoders.load(f"hf:{language_model}"), encoders.load(f"hf:{copy}")
    assert one.fingerprint == other.fingerprint
    assert other.name == "hf:copy"
    assert encoders.load(f"hf:{language_model}", pooling="cls").fingerprint != one.fingerprint


def test_what_is_not_a_text_or_a_pooling_is_refused(language_model):
    with pytest.raises(EncoderError, match="^pooling is 'max'; write one of mean, cls"):
        encoders.load(f"hf:{language_model}", pooling="max")
    with pytest.raises(SampleError, match="1 of 2 samples are not texts"):
        rows(encoders.load(f"hf:{language_model}"), ["a", np.zeros(3)])


def test_a_network_for_images_is_refused_with_the_way_to_load_it(language_model, tmp_path):
    import shutil

    folder = shutil.copytree(language_model, tmp_path / "seen")
    (folder / "preprocessor_config.json").write_text("{}")
    with pytest.raises(
        EncoderError, match=r"^hf:seen takes images .* and hf: is for texts; .* write e.g. timm:vit_base"
    ):
        encoders.load(f"hf:{folder}")


def test_a_model_that_cannot_be_reached_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EncoderError) as caught:
        encoders.load("hf:nobody/no-such-model")
    assert "\n" not in str(caught.value)
    assert "Give a folder that holds config.json" in str(caught.value)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EncoderError, match="could not be loaded"):
        encoders.load(f"hf:{tmp_path}")


@pytest.mark.slow
def test_the_real_minilm_puts_like_texts_side_by_side(minilm):
    encoder = encoders.load(f"hf:{minilm}")
    assert (encoder.dim, encoder.pooling, encoder.tokens.longest) == (384, "mean", 256)
    texts = ["My card has not arrived yet.", "I am still waiting for my new card.", "What is the capital of Peru?"]
    x = rows(encoder, texts)
    assert np.allclose(x[0], by_hand(minilm, texts[0], "mean"), atol=1e-4)
    like, unlike = cosines(x[:1], x[1:2])[0], cosines(x[:1], x[2:])[0]
    assert like > 0.7 > 0.3 > unlike
