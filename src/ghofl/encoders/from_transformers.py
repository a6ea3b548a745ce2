"""Encoders of texts by Hugging Face transformers: ``hf:NAME`` from the hub, ``hf:FOLDER`` from disk."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from transformers import AutoConfig, AutoModel, AutoTokenizer

from ghofl.encoders.base import Runtime
from ghofl.encoders.text import TextEncoder
from ghofl.encoders.tokens import Tokens
from ghofl.encoders.torch_forward import TokenForward, fingerprint_of
from ghofl.errors import EncoderError
from ghofl.rows import hub

POOLINGS = ("mean", "cls")
LONGEST = 512
# What affects a forward pass besides the weights, under the names in most configurations.
CONFIGURED = ("model_type", "hidden_act", "activation", "num_attention_heads", "n_heads", "layer_norm_eps")


def load(source: str, runtime: Runtime, pooling: str | None = None) -> TextEncoder:
    """The encoder of texts in a folder or under a hub name (``NAME`` or ``NAME@REVISION``)."""
    is_local = Path(source).is_dir()
    name, _, revision = (source, "", "") if is_local else source.partition("@")
    where: dict[str, Any] = {"local_files_only": is_local or not hub.is_reachable()}
    if revision:
        where["revision"] = revision
    shown = f"hf:{Path(source).resolve().name if is_local else source}"
    transformers.utils.logging.disable_progress_bar()
    try:
        if _file(name, "preprocessor_config.json", where) is not None:
            raise EncoderError(
                f"{shown} takes images (it has a preprocessor_config.json), and hf: is for texts; timm has most such networks: "
                "write e.g. timm:vit_base_patch16_clip_224.openai."
            )
        config = AutoConfig.from_pretrained(name, **where)
        # Weights come from safetensors, or through torch's weights-only reader; the model's own code is not run.
        model = AutoModel.from_pretrained(name, dtype=torch.float32, trust_remote_code=False, **where).eval()
        return _text(shown, name, model, config, runtime, pooling, where)
    except EncoderError:
        raise
    except (OSError, ValueError) as error:
        raise EncoderError(_unreachable(source, error)) from None


class Pooled(torch.nn.Module):
    """One vector per text: the mean of its tokens' last hidden states, or the first token's."""

    def __init__(self, model: torch.nn.Module, pooling: str) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooling == "cls":
            return hidden[:, 0]
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def _text(
    shown: str, name: str, model: Any, config: Any, runtime: Runtime, pooling: str | None, where: dict[str, Any]
) -> TextEncoder:
    pooling = pooling or _stated_pooling(name, where)
    if pooling not in POOLINGS:
        raise EncoderError(f"pooling is {pooling!r}; write one of {', '.join(POOLINGS)}.")
    tokenizer = AutoTokenizer.from_pretrained(name, **where)
    if not tokenizer.is_fast:
        raise EncoderError(
            f"{shown} has no tokenizer.json, without which sites could split texts differently; choose another model."
        )
    longest = _longest(name, tokenizer, config, where)
    tokens = Tokens.of(tokenizer.backend_tokenizer.to_str(), longest)
    module = Pooled(model, pooling)
    settings = {"pooling": pooling, "longest": longest, "tokenizer": tokens.definition, **_configured(config)}
    forward = TokenForward(module, runtime)
    return TextEncoder(shown, config.hidden_size, fingerprint_of(module, settings), pooling, tokens, forward)


def _configured(config: Any) -> dict[str, Any]:
    return {key: getattr(config, key) for key in CONFIGURED if getattr(config, key, None) is not None}


def _stated_pooling(name: str, where: dict[str, Any]) -> str:
    """The pooling that a sentence-transformers folder states; the mean where it states none."""
    stated = _read(name, "1_Pooling/config.json", where)
    return "cls" if stated.get("pooling_mode_cls_token") and not stated.get("pooling_mode_mean_tokens") else "mean"


def _longest(name: str, tokenizer: Any, config: Any, where: dict[str, Any]) -> int:
    stated = _read(name, "sentence_bert_config.json", where).get("max_seq_length")
    limits = (stated, tokenizer.model_max_length, getattr(config, "max_position_embeddings", None), LONGEST)
    return min(int(limit) for limit in limits if limit)


def _file(name: str, file: str, where: dict[str, Any]) -> Path | None:
    """A file of the folder or the hub's repository, if there is one."""
    if Path(name).is_dir():
        return Path(name, file) if Path(name, file).is_file() else None
    try:
        return Path(hf_hub_download(name, file, **where))
    except (EntryNotFoundError, LocalEntryNotFoundError):
        return None


def _read(name: str, file: str, where: dict[str, Any]) -> dict[str, Any]:
    path = _file(name, file, where)
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))


def _unreachable(source: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"hf:{source} could not be loaded ({first.rstrip('.')}). Give a folder that holds config.json, the tokenizer "
        "and model.safetensors, or a name of the Hugging Face hub while the hub can be reached."
    )
