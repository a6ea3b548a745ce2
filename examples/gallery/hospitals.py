"""
Four hospitals
==============

Four hospitals want to tell malignant tumours from benign ones, and none may show its patients to another. The university is
sent the severe cases; the island mostly sees healthy people. Each alone learns its own mix of patients.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import ghofl

cancer = load_breast_cancer()
names = np.array(["malignant", "benign"])[cancer.target]
table = {**dict(zip(cancer.feature_names, cancer.data.T)), "tumour": names}
hospitals = {"university": (48, 12), "city": (16, 24), "valley": (5, 20), "island": (2, 13)}  # malignant and benign


def patients(rows):
    """Some rows of the table."""
    return {column: values[rows] for column, values in table.items()}


# %%
# One recipe, as a data dictionary would give it, and ten draws of patients. FedAvg trains a linear head on the same hospitals,
# in fifty rounds instead of one message.

recipe = ghofl.recipe_for(schema=ghofl.schema_for(table, "tumour"), statistics=("B",))
accuracy = {f"{name} alone\n{sum(size)} patients": [] for name, size in hospitals.items()}
accuracy |= {"together\none message": [], "FedAvg\n50 rounds": []}
for seed in range(10):
    rng = np.random.default_rng(seed)
    kinds = [rng.permutation(np.flatnonzero(names == kind)).tolist() for kind in ("malignant", "benign")]
    parts = [[kind.pop() for kind, many in zip(kinds, size) for _ in range(many)] for size in hospitals.values()]
    train, test = np.concatenate(parts), np.concatenate(kinds)
    messages = [ghofl.message(recipe, name, patients(part)) for name, part in zip(hospitals, parts)]
    heads = [ghofl.fit(ghofl.total([sent]), "lda") for sent in messages] + [ghofl.fit(ghofl.total(messages), "lda")]
    ends = np.split(np.arange(len(train)), np.cumsum([len(part) for part in parts])[:-1])
    data = ((cancer.data[train], names[train]), (cancer.data[test], names[test]))
    fedavg = ghofl.simulate(data, ends, heads="lda,fedavg(rounds=50)").heads["fedavg(rounds=50)"]
    shares = [head.score(patients(test), names[test]) for head in heads] + [fedavg.accuracy]
    for name, share in zip(accuracy, shares):
        accuracy[name].append(100 * share)
print(
    f"a hospital sends {len(messages[0].to_bytes()):,} bytes once; with FedAvg {fedavg.payload_bytes:,} bytes in 50 rounds"
)

figure, axis = plt.subplots(figsize=(6.6, 3.2))
means, spreads = ([take(values) for values in accuracy.values()] for take in (np.mean, np.std))
colours = ["#c8641e"] * 4 + ["#2f6fb0", "#808890"]
for name, mean, spread, colour in zip(accuracy, means, spreads, colours):
    axis.errorbar([name], [mean], [spread], fmt="o", color=colour, markersize=7, capsize=4)
axis.grid(axis="y")
axis.tick_params(axis="x", labelsize=7.5)
axis.set(ylabel="test accuracy %", title="Patients that no hospital has seen: mean and spread of ten draws")
