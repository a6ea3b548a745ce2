"""
Photos: which one is this tile from?
====================================

Two photos that come with scikit-learn are cut into tiles. Three sites have the left, middle and right third of both, and
learn together to tell tiles of the one from tiles of the other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images

import ghofl

SIDE = 32
photos = dict(zip(("temple", "flower"), load_sample_images().images))

# %%
# With photos of your own a frozen network makes the rows, ``x = ghofl.encode(Path("photos"), "torchvision:resnet18")``. To need
# no download, twelve plain numbers stand in for it here: the colours of a tile, how they vary, and how sharp its edges are.


def embed(tile):
    """Means, spreads and mean steps of the three colours."""
    tile = tile / 255.0
    steps = [np.abs(np.diff(tile, axis=axis)).mean(axis=(0, 1)) for axis in (0, 1)]
    return np.concatenate([tile.mean(axis=(0, 1)), tile.std(axis=(0, 1)), *steps])


tiles = [
    (name, row, column, embed(photo[row : row + SIDE, column : column + SIDE]))
    for name, photo in photos.items()
    for row in range(0, photo.shape[0] - SIDE, SIDE)
    for column in range(0, photo.shape[1], SIDE)
]
labels, rows, columns = (np.array(values) for values in list(zip(*tiles))[:3])
x = np.array([tile[3] for tile in tiles])
is_test = (rows + columns) // SIDE % 2 == 1  # every second tile, as on a chessboard
site = columns * 3 // 640

# %%
# One recipe, one message from each site, one classifier:

recipe = ghofl.recipe_for(list(photos), x[~is_test])
sites = {"left": 0, "middle": 1, "right": 2}
own = {name: ~is_test & (site == number) for name, number in sites.items()}
classifier = ghofl.fit(ghofl.total(ghofl.message(recipe, name, x[at], labels[at]) for name, at in own.items()))
found = classifier.predict(x[is_test])
print(f"{100 * np.mean(found == labels[is_test]):.1f} % of {is_test.sum()} tiles that nobody trained on are right")

figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.7))
figure.suptitle("Framed: test tiles that were taken for one of the other photo", fontsize=10)
for axis, (name, photo) in zip(axes, photos.items()):
    axis.imshow(photo)
    axis.set_axis_off()
    axis.set_title(name)
    for at in np.flatnonzero(is_test)[(found != labels[is_test]) & (labels[is_test] == name)]:
        axis.add_patch(plt.Rectangle((columns[at], rows[at]), SIDE, SIDE, fill=False, edgecolor="#ff2d2d", linewidth=2))
