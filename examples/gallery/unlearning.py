"""
A site leaves
=============

West has mixed up its labels, and everybody suffers. The total minus its message is the total that it never sent to, to the
bit; nothing is trained again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
test, (north, south, west) = order[:500], np.array_split(order[500:], 3)
wrong = (y + 1) % 10  # west calls every zero a one, every one a two …

recipe = ghofl.recipe_for([str(n) for n in range(10)], x[north], statistics=("B",))
messages = {
    "north": ghofl.message(recipe, "north", x[north], y[north]),
    "south": ghofl.message(recipe, "south", x[south], y[south]),
    "west": ghofl.message(recipe, "west", x[west], wrong[west]),
}
total = ghofl.total(messages.values())

# %%
# Whole numbers add and subtract exactly:

without_west = total - messages["west"]
never_west = ghofl.total([messages["north"], messages["south"]])
assert without_west.to_bytes() == never_west.to_bytes()

# %%
# The means in the total show what happened, digit by digit.


def mean_digits(total):
    """The mean of each class in a total, one beside the other."""
    means = total.moments.sums / total.moments.counts[:, None]
    return means.reshape(10, 8, 8).transpose(1, 0, 2).reshape(8, 80)


figure, axes = plt.subplots(2, 1, figsize=(6.4, 2.3))
for axis, (name, each) in zip(axes, {"with west": total, "after west has left": without_west}.items()):
    accuracy = ghofl.fit(each, "lda").score(x[test], y[test])
    print(f"{name}: {100 * accuracy:.1f} % of test digits are right")
    axis.imshow(mean_digits(each), cmap="gray_r")
    axis.set_axis_off()
    axis.set_title(f"{name}: accuracy {100 * accuracy:.1f} %, means of 0 to 9")
