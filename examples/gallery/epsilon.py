"""
How much accuracy does a promise cost?
======================================

Noise of a known size bounds what a total tells about any single row: the smaller epsilon, the stronger the promise. A sweep
shows what each one costs on rows like yours, before anybody promises anything.
"""

from sklearn.datasets import load_digits

import ghofl

x, y = load_digits(return_X_y=True)

# %%
# Every combination of a promise, a head and a seed is one run: ten clients, noise added once to their total. Rows of length 1
# need no grid that is fitted to rows, which epsilon would not cover.

promises = [0.5, 1.0, 2.0, 4.0, 8.0]
runs = ghofl.sweep((x, y), "lda,nearest_mean", epsilon=promises, unit_length=True, clients=10, seed=range(5))
print(runs)

# %%
# The figure fits one column of a paper; ``runs.plot("epsilon.pdf")`` writes it.

figure = runs.plot()
