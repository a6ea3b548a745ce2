"""What a site has: images, texts and tables one sample at a time, or rows of embeddings with their labels.

::

    load_samples   a folder, a table or a set of the Hugging Face hub → Samples, in one fixed order
    load_rows      a file of embeddings → Rows; class_numbers turns its labels into positions in the recipe
    embed          samples → rows, through an encoder (in ghofl.samples.embed)
"""

from ghofl.samples.anchor import load_anchor
from ghofl.samples.base import Samples
from ghofl.samples.loading import Columns, load_encoder, load_samples
from ghofl.samples.rows import Rows, check_encoder, class_numbers, classes_of, load_rows, save_rows, without_bad

__all__ = [
    "Columns",
    "Rows",
    "Samples",
    "check_encoder",
    "class_numbers",
    "classes_of",
    "load_anchor",
    "load_encoder",
    "load_rows",
    "load_samples",
    "save_rows",
    "without_bad",
]
