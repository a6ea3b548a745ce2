"""A model card: what a classifier is, how many sites are in it and how good it is, as Markdown for Hugging Face."""

from collections.abc import Mapping
from typing import Any

from ghofl.classifier import Classifier
from ghofl.names import shorten

SHOWN = 40  # class names that are listed
TYPES = {1: "float32", 2: "uint8", 7: "int64", 8: "string"}  # ONNX's numbers of those that exported files use


def model_card(
    classifier: Classifier, metrics: Mapping[str, float] | None = None, name: str = "", model: Any = None
) -> str:
    """The card of a classifier; `metrics` are shares between 0 and 1, e.g. ``{"accuracy": 0.91}``.

    With the ONNX `model` that it was exported to, the card also says what goes in and what comes out. Names come from
    other people's files, so whatever could be markup is escaped.
    """
    recipe, head = classifier.recipe, classifier.head
    classes = ", ".join(f"`{_plain(c)}`" for c in recipe.classes[:SHOWN])
    more = len(recipe.classes) - SHOWN
    has_noise = recipe.privacy.epsilon is not None  # and without a guarantee, `revealed` says why there is none
    guarantee = f"{'T' if has_noise else 'No noise was added: t'}here is no differential privacy guarantee."
    if classifier.guarantee is not None:
        guarantee = f"Noise was added: {classifier.guarantee}."
    lines = [
        *_front_matter(classifier, metrics or {}),
        f"# {_plain(name) or 'A one-shot federated classifier'}",
        "",
        f"A `{head}` head on embeddings of `{_plain(recipe.encoder.name)}`, built by ghofl from the sums that "
        f"{classifier.sites:,} {'site' if classifier.sites == 1 else 'sites'} sent, once. No row left a site.",
        "",
        "| | |",
        "|---|---|",
        f"| classes | {len(recipe.classes):,}: {classes}{f' and {more:,} more' if more > 0 else ''} |",
        f"| rows behind it | {classifier.rows:,} |",
        f"| sites | {classifier.sites:,} |",
        f"| encoder | `{_plain(recipe.encoder.name)}`, {recipe.encoder.dim} numbers per row, fingerprint "
        f"`{recipe.encoder.fingerprint or 'none'}` |",
        f"| recipe | `{recipe.fingerprint}` |",
        f"| statistics | {', '.join(recipe.statistics)} |",
        *(f"| {_plain(key)} | {100 * value:.2f} % |" for key, value in (metrics or {}).items()),
        "",
        *([] if model is None else _inputs_and_outputs(model)),
        "## Privacy",
        "",
        " ".join([guarantee, *(_plain(text, 1000) for text in (classifier.revealed, classifier.warning) if text)]),
        "",
        "## Limits",
        "",
        "It distinguishes the classes above and knows no others. Its probabilities are calibrated on synthetic rows of the "
        "Gaussians that the sums describe, not on held-out data, unless the metrics above say so.",
        "",
    ]
    return "\n".join(lines)


def _front_matter(classifier: Classifier, metrics: Mapping[str, float]) -> list[str]:
    found = [f"      - type: {_plain(key)}\n        value: {value:.6g}" for key, value in metrics.items()]
    results = [
        "model-index:",
        "  - name: ghofl",
        "    results:",
        "    - task:",
        "        type: feature-extraction",
        "      dataset:",
        "        type: private",
        "        name: held-out rows",
        "      metrics:",
        *found,
    ]
    tags = ["federated-learning", "one-shot", "ghofl", classifier.head]
    return [
        "---",
        "library_name: ghofl",
        "tags:",
        *(f"  - {tag}" for tag in tags),
        *(results if found else []),
        "---",
        "",
    ]


def _inputs_and_outputs(model: Any) -> list[str]:
    lines = ["## The ONNX file", "", "| | name | type | shape | |", "|---|---|---|---|---|"]
    for side, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            tensor = value.type.tensor_type
            shape = ", ".join(dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim)
            words = _plain(value.doc_string, 300)
            lines.append(f"| {side} | `{_plain(value.name)}` | {TYPES[tensor.elem_type]} | ({shape}) | {words} |")
    return [*lines, "", "Sizes that are not numbers may differ from run to run.", ""]


def _plain(text: str, most: int = 80) -> str:
    """A name as plain text of a Markdown table: no markup, no line breaks."""
    return "".join(f"&#{ord(c)};" if c in "<>|`*_[]&\\\\" else c for c in shorten(text, most))
