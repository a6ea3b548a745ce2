"""The data of a site: images, texts and tables one sample at a time, or rows of embeddings with their labels.

::

    load_samples   a folder, a table or a set of the Hugging Face hub → Samples, in one fixed order
    load_rows      a file of embeddings → Rows; class_numbers turns its labels into positions in the recipe
"""

from ghofl.recipe.labels import class_numbers, classes_of
from ghofl.rows.base import Samples
from ghofl.rows.embeddings import Rows, drop_bad, load_rows, save_rows
from ghofl.rows.loading import Columns, load_samples

__all__ = [
    "Columns",
    "Rows",
    "Samples",
    "class_numbers",
    "classes_of",
    "drop_bad",
    "load_rows",
    "load_samples",
    "save_rows",
]
