"""The paper's nine data sets by name: where each lies on the Hugging Face hub, and which of its columns are read."""

from dataclasses import dataclass

from corruptions import Corruption, corrupt

from ghofl.errors import DatasetError
from ghofl.rows import Columns, Samples, load_samples


@dataclass(frozen=True, slots=True)
class Named:
    """A data set of the hub, its column of samples and of labels, and what it calls its test split."""

    data: str
    sample: str
    label: str = "label"
    test: str = "test"


NAMED = {
    "cifar10": Named("hf:uoft-cs/cifar10", "img"),
    "cifar100": Named("hf:uoft-cs/cifar100", "img", "fine_label"),
    "svhn": Named("hf:ufldl-stanford/svhn:cropped_digits", "image"),
    "ag_news": Named("hf:fancyzhx/ag_news", "text"),
    "dbpedia_14": Named("hf:fancyzhx/dbpedia_14", "content"),
    # The test split of SST-2 has no labels; everyone reports the development split.
    "sst2": Named("hf:stanfordnlp/sst2", "sentence", test="validation"),
    "banking77": Named("hf:legacy-datasets/banking77", "text"),
    "clinc_oos": Named("hf:clinc/clinc_oos:plus", "text", "intent"),
}
CORRUPTED = "cifar100-c"
NAMES = (*NAMED, CORRUPTED)


def load(name: str, split: str = "", corruption: Corruption | None = None) -> Samples:
    """A split (train unless given) of one of the nine; a corruption, if any, is generated from its images."""
    if name == CORRUPTED:
        if corruption is None:
            raise DatasetError(
                f"{CORRUPTED} holds corrupted test images: say which corruption. Statistics come from the clean "
                "cifar100, never from these."
            )
        name, split = "cifar100", "test"
    if name not in NAMED:
        raise DatasetError(f"{name!r} is not one of {', '.join(NAMES)}; check the name.")
    source = NAMED[name]
    samples = load_samples(
        source.data, source.test if split == "test" else split, Columns(path=source.sample, label=source.label)
    )
    return samples if corruption is None else corrupt(samples, corruption)
