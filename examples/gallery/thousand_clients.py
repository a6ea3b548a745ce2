"""
From one client to a thousand
=============================

The same digits on 1, 10, 100 and 1,000 clients that have few of the ten digits each. A total is the same however its rows
were split, so a head of one message has the same accuracy everywhere. Training in rounds has not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl
from ghofl.report.runs import draw_runs

x, y = load_digits(return_X_y=True)

# %%
# ``fedavg`` and ``fedprox`` among the heads are baselines on the same clients: a linear head, trained in rounds.

order = np.random.default_rng(0).permutation(len(y))
data = ((x[order[400:]], y[order[400:]]), (x[order[:400]], y[order[:400]]))
heads = "rda,lda,fedavg(rounds=20)"
runs = ghofl.simulate(data, [1, 10, 100, 1000], heads=heads, alpha=0.1, seed=range(3))
print(runs)

# %%
# One total for all of them:

print({row["total_sha256"][:16] for row in runs.rows})

# %%
# Seeds change the split, and with it only what is trained in rounds; the rest of an interval is the error of the test rows.

figure, axes = plt.subplots(figsize=(5, 3))
draw_runs(axes, runs)
