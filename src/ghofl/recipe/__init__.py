"""What all sites of a federation agree on before anything is computed: `Recipe` and its sections."""

from ghofl.recipe.basis import Basis, usual_basis
from ghofl.recipe.options import DEFAULT_BUDGET, MAX_DIM, OPTIONS, RecipeOptions
from ghofl.recipe.recipe import MAX_CLASSES, MAX_MATRIX, Recipe
from ghofl.recipe.schema_file import Schema
from ghofl.recipe.sections import Encoder, Grid, Lift, Limits, Privacy, Projection, Sketch, Transform
from ghofl.recipe.table import Column, Table

__all__ = [
    "DEFAULT_BUDGET",
    "MAX_CLASSES",
    "MAX_DIM",
    "MAX_MATRIX",
    "OPTIONS",
    "Basis",
    "Column",
    "Encoder",
    "Grid",
    "Lift",
    "Limits",
    "Privacy",
    "Projection",
    "Recipe",
    "RecipeOptions",
    "Schema",
    "Sketch",
    "Table",
    "Transform",
    "usual_basis",
]
