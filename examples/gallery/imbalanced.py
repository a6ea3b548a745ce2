"""
A rare class
============

One digit in forty is an eight, and missing one costs more than a false alarm. A threshold says how sure the classifier has to
be; it is chosen after training, without asking the sites again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl
from ghofl.evaluation import Metrics

x, number = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
x = x + rng.normal(0, 3, size=x.shape)  # noisy scans, so that there is something to decide
keep = np.flatnonzero((number != 8) | (rng.random(len(number)) < 0.25))
y = np.where(number == 8, "eight", "other")
order = rng.permutation(keep)
test, sites = order[:600], np.array_split(order[600:], 4)

# %%
# Four sites send one message each.

recipe = ghofl.recipe_for(["other", "eight"], x[order[600:]])
messages = [ghofl.message(recipe, f"site {i}", x[rows], y[rows]) for i, rows in enumerate(sites)]
classifier = ghofl.fit(ghofl.total(messages))

# %%
# Of two classes, ``Metrics`` has the share of eights that is found (recall) and the share of alarms that is right (precision).

metrics = Metrics.of(classifier.predict_proba(x[test]), (y[test] == "eight").astype(int))
print(f"average precision {metrics.average_precision:.2f}; guessing would give {np.mean(y[test] == 'eight'):.2f}")

limits = np.geomspace(0.002, 0.9, 30)
recall, precision = [], []
for limit in limits:
    found = classifier.with_thresholds({"eight": limit}).predict(x[test]) == "eight"
    right = np.sum(found & (y[test] == "eight"))
    recall.append(100 * right / np.sum(y[test] == "eight"))
    precision.append(100 * right / max(1, found.sum()))

figure, axis = plt.subplots(figsize=(5.2, 3.6))
axis.semilogx(limits, recall, label="recall: eights that are found")
axis.semilogx(limits, precision, label="precision: alarms that are eights")
axis.axvline(0.5, color="#808890", linestyle=":", label="the more probable class")
axis.set(xlabel="threshold for an eight", ylabel="%", title="A lower threshold finds more, and is wrong more often")
axis.set_xticks([0.01, 0.1, 0.5], ["0.01", "0.1", "0.5"])
figure.legend(ncols=2, loc="outside lower center")
