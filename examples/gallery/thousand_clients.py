"""
From one client to a thousand
=============================

The same digits on 1, 10, 100 and 1,000 clients that have few of the ten digits each. A total is the same however its rows
were split, so a head of one message has the same accuracy everywhere. Training in rounds has not.
"""

import numpy as np
from sklearn.datasets import load_digits

import ghofl

x, y = load_digits(return_X_y=True)

# %%
# ``fedavg`` and ``fedprox`` among the heads are baselines on the same clients: a linear head, trained in rounds.

order = np.random.default_rng(0).permutation(len(y))
data = ((x[order[400:]], y[order[400:]]), (x[order[:400]], y[order[:400]]))
runs = ghofl.sweep(data, "rda,lda,fedavg(rounds=20)", clients=[1, 10, 100, 1000], alpha=0.1, seed=range(3))
print(runs)

# %%
# One total for all of them:

print({row["total_sha256"][:16] for row in runs.rows})

# %%
# Intervals are over seeds, which change the split: heads of one message have none.

figure = runs.plot()
