"""The data of a site: images, texts and tables one sample at a time, or rows of embeddings with their labels.

::

    load_samples   a folder, a table or a set of the Hugging Face hub → Samples, in one fixed order
    load_rows      a file of embeddings → Rows; class_numbers turns its labels into positions in the recipe
    rows_for       a file under a recipe: embeddings, or a table through the recipe's schema
    embed          samples → rows, through an encoder (in ghofl.samples.embed)
"""

from ghofl.recipe.labels import class_numbers, classes_of
from ghofl.samples.anchor import load_anchor
from ghofl.samples.base import Samples
from ghofl.samples.from_schema import rows_for, table_rows
from ghofl.samples.loading import Columns, load_encoder, load_samples
from ghofl.samples.public import load_public
from ghofl.samples.rows import Rows, check_encoder, drop_bad, load_rows, save_rows

__all__ = [
    "Columns",
    "Rows",
    "Samples",
    "check_encoder",
    "class_numbers",
    "classes_of",
    "drop_bad",
    "load_anchor",
    "load_encoder",
    "load_public",
    "load_rows",
    "load_samples",
    "rows_for",
    "save_rows",
    "table_rows",
]
