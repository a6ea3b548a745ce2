"""
How much accuracy does a promise cost?
======================================

Noise of a known size bounds what a total tells about any single row: the smaller epsilon, the stronger the promise. Simulations
show what each one costs on rows like yours, before anybody promises anything.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import ghofl
from ghofl.report.runs import draw_runs

x, y = load_digits(return_X_y=True)

# %%
# Every combination of a promise, a head and a seed is one run: ten clients, noise added once to their total. Rows of length 1
# need no grid that is fitted to rows, which epsilon would not cover.

promises = [0.5, 1.0, 2.0, 4.0, 8.0]
runs = ghofl.simulate((x, y), 10, heads="lda,nearest_mean", epsilon=promises, unit_length=True, seed=range(5))
print(runs)

# %%
# Intervals hold the spread over seeds and the error of the test rows.

figure, axes = plt.subplots(figsize=(5, 3))
draw_runs(axes, runs)
