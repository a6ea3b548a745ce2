"""
Tables: what the server knows of them
=====================================

Three growers have tables of wines, with thirteen measurements each. The server gets sums of columns and of their products,
and no row.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import ghofl

wine = load_wine()
names = [name.replace("_", " ").replace("/od315 of diluted wines", " by od315") for name in wine.feature_names]
table = dict(zip(names, wine.data.T)) | {"kind": np.array(["first", "second", "third"])[wine.target]}


def part(rows):
    """Some rows of the table; a pandas or polars DataFrame will do as well."""
    return {name: values[rows] for name, values in table.items()}


order = np.random.default_rng(0).permutation(len(wine.target))
test, growers = order[:60], {name: order[60 + i :: 3] for i, name in enumerate(("hill", "lake", "valley"))}

# %%
# A schema says what the columns are and where their values lie, and a recipe follows from it. It should come from a data
# dictionary; this one is drafted from the table, which is public.

schema = ghofl.schema_for(table, "kind")
recipe = ghofl.recipe_for(schema=schema)
messages = {name: ghofl.message(recipe, name, part(rows)) for name, rows in growers.items()}
total = ghofl.total(messages.values())
classifier = ghofl.fit(total)
print(f"{100 * classifier.score(part(test), table['kind'][test]):.1f} % of {len(test)} new wines are right")

# %%
# From the sums follow the means of every kind, and with them how the kinds differ: this picture is drawn from the total.

gaussians = ghofl.Gaussians.of_total(total, ghofl.Features.of(recipe))
apart = (gaussians.means - gaussians.centre)[:, :13] / np.sqrt(np.diag(gaussians.total_covariance()))[:13]
figure, axis = plt.subplots(figsize=(6.4, 2.8))
shown = axis.imshow(apart, cmap="RdBu_r", vmin=-1.5, vmax=1.5, aspect="auto")
axis.set_xticks(range(13), names, rotation=40, ha="right")
axis.set_yticks(range(3), recipe.classes)
axis.set_title("Mean of each kind of wine, in spreads from the mean of all")
figure.colorbar(shown)
