"""
Texts: teams that know a part each
==================================

Every paragraph of scikit-learn's own documentation is about one of four parts of it. Eight teams have a few paragraphs each,
too few to learn from alone.
"""

import importlib
import inspect

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

import ghofl

PARTS = ["cluster", "linear_model", "metrics", "tree"]
texts, labels = [], []
for part in PARTS:
    module = importlib.import_module(f"sklearn.{part}")
    for name in sorted(module.__all__):
        paragraphs = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")
        own = [text for text in paragraphs if text.count(" ") > 15 and ">>>" not in text]
        texts, labels = texts + own, labels + [part] * len(own)

# %%
# Rows need a public encoder that looks at nobody's texts. A frozen network is best, ``ghofl.encode(texts, "hf:FOLDER")``;
# hashed words need no download.

x = HashingVectorizer(n_features=512, stop_words="english").transform(texts).toarray()
y = np.array(labels)
order = np.random.default_rng(0).permutation(len(y))
test, train = order[:700], order[700:]
teams = {f"team {i + 1}": rows for i, rows in enumerate(np.array_split(train[:640], 8))}

# %%
# Rows of length 1 need no fitted grid, so the recipe depends on no text at all.

recipe = ghofl.recipe_for(PARTS, x, unit_length=True, scale=127.0, statistics=("B",))
messages = [ghofl.message(recipe, team, x[rows], y[rows]) for team, rows in teams.items()]
accuracy = [ghofl.fit(ghofl.total([sent])).score(x[test], y[test]) for sent in messages]
together = [ghofl.fit(ghofl.total(messages[: n + 1])).score(x[test], y[test]) for n in range(8)]
print(f"a team alone {100 * np.mean(accuracy):.0f} %, all together {100 * together[-1]:.0f} %")

figure, axis = plt.subplots(figsize=(5.2, 3.2))
axis.bar(range(1, 9), [100 * share for share in accuracy], color="#c8641e", width=0.5, label="the team alone")
axis.plot(range(1, 9), [100 * share for share in together], "o-", label="all teams up to here together")
axis.set(
    xlabel="team", ylabel="test accuracy %", ylim=(0, 100), title="Which part of scikit-learn is a paragraph about?"
)
figure.legend(ncols=2, loc="outside lower center")
