"""
A head of its own for every site
================================

Scanners differ: what is dark at one clinic is pale at the next. Each clinic can turn the common head towards its own rows. It
takes its rows out of the total again to see, honestly, what that is worth; nothing more leaves the clinic.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl
from ghofl.evaluation.leave_out import OwnRows, assign_folds
from ghofl.personal.choice import personal_head

x, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
SCANNERS = {"north": (1.0, 0.0), "south": (0.6, 6.0), "west": (-1.0, 16.0), "hill": (1.2, -3.0)}  # west scans negatives
order = rng.permutation(len(y))[:1200]
clinics = {}
for (clinic, (contrast, brightness)), rows in zip(SCANNERS.items(), np.array_split(order, 4)):
    clinics[clinic] = contrast * x[rows] + brightness + rng.normal(0, 1.5, size=(len(rows), 64)), y[rows]

recipe = ghofl.recipe_for([str(n) for n in range(10)], clinics["north"][0], statistics=("B",), scale=5.0)
train = {clinic: (x[:200], y[:200]) for clinic, (x, y) in clinics.items()}
total = ghofl.total(ghofl.message(recipe, clinic, *rows) for clinic, rows in train.items())
common = ghofl.fit(total, "lda")

# %%
# At each clinic: own priors, means and covariance are tried on its rows, every row predicted by a head without it. Where
# none is better by more than chance, the clinic keeps the common head.

accuracy = {"the common head": [], "a head of its own": []}
for clinic, (x_own, y_own) in train.items():
    own = OwnRows.of(total, x_own, y_own)
    found = personal_head(own, ghofl.HeadSpec("lda"), assign_folds(own.y, 4))
    print(f"{clinic}: {found.chosen.adaptation}")
    x_test, y_test = clinics[clinic][0][200:], clinics[clinic][1][200:]
    for name, classifier in zip(accuracy, (common, found.classifier)):
        accuracy[name].append(100 * np.mean(classifier.predict_numbers(x_test) == y_test))

figure, axis = plt.subplots(figsize=(5.6, 3.2))
for i, (name, shares) in enumerate(accuracy.items()):
    bars = axis.bar(np.arange(4) + 0.4 * i, shares, width=0.36, label=name)
    axis.bar_label(bars, [f"{share:.0f}" for share in shares], padding=2, fontsize=8)
axis.set_xticks(np.arange(4) + 0.2, list(SCANNERS))
axis.set(ylabel="test accuracy %", ylim=(0, 112), title="On rows of the clinic that nobody trained on")
axis.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.1))
