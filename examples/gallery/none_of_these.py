"""
None of these
=============

A classifier of the digits 0 to 7 is shown eights and nines. Its novelty says how far a row is from every class that it
knows, and ``reject`` leaves such rows without a label.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl

x, number = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(number))
test, train = order[:600], order[600:]
known = [str(n) for n in range(8)]
train = train[number[train] < 8]

# %%
# Three sites, one message each. A covariance per class (``statistics=("S",)``) tells best what a class looks like, and
# ``novelty=True`` asks for what no class looks like.

recipe = ghofl.recipe_for(known, x[train], statistics=("S",))
parts = zip(("north", "south", "west"), np.array_split(train, 3))
messages = [ghofl.message(recipe, site, x[rows], number[rows].astype(str)) for site, rows in parts]
classifier = ghofl.fit(ghofl.total(messages), novelty=True)

# %%
# ``reject=0.05`` leaves out about one in twenty rows of the known classes, and many rows of all others.

is_new = number[test] >= 8
labels = classifier.predict(x[test], reject=0.05)
print(f"without a label: {100 * np.mean(labels[~is_new] == ''):.0f} % of the digits 0 to 7,", end=" ")
print(f"{100 * np.mean(labels[is_new] == ''):.0f} % of eights and nines")

novelty = classifier.novelty(x[test])
bins = np.linspace(novelty.min(), np.quantile(novelty, 0.995), 40)
figure, axis = plt.subplots(figsize=(5.6, 3.6))
axis.hist(novelty[~is_new], bins, density=True, alpha=0.75, label="digits 0 to 7, which it knows")
axis.hist(novelty[is_new], bins, density=True, alpha=0.75, label="eights and nines, which it has never seen")
axis.axvline(classifier.novelty_threshold(0.05), color="black", linestyle=":", label="rejected from here on")
axis.set(xlabel="novelty", ylabel="density", title="How little a digit is like any that the sites had")
figure.legend(ncols=2, loc="outside lower center")
