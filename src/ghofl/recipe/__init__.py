"""What all sites of a federation agree on before anything is computed: `Recipe` and its sections."""

from ghofl.recipe.recipe import MAX_CLASSES, MAX_MATRIX, Recipe
from ghofl.recipe.schema_file import Schema
from ghofl.recipe.sections import MAX_DIM, Encoder, Grid, Lift, Limits, Privacy, Projection, Sketch, Transform
from ghofl.recipe.table import Column, Table

__all__ = [
    "MAX_CLASSES",
    "MAX_DIM",
    "MAX_MATRIX",
    "Column",
    "Encoder",
    "Grid",
    "Lift",
    "Limits",
    "Privacy",
    "Projection",
    "Recipe",
    "Schema",
    "Sketch",
    "Table",
    "Transform",
]
