"""
A secure round: the server sees the sum only
============================================

Ten sites hide their messages under masks that cancel in the sum. The server learns the total, to the bit, and from single
sites it gets what looks like noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import ghofl
from ghofl.secure import Ring
from ghofl.simulation.cohort import Cohort

x, y = load_digits(return_X_y=True)

# %%
# A simulation plays the whole protocol: keys, shares of secrets, masked vectors. One site in ten vanishes on the way, before
# it has sent its vector, and the others finish without it.

result = ghofl.simulate((x, y), 10, heads="lda", secure=True, cohort=Cohort({"mask": 0.1}, dropout=0.2))
round_ = result.secure_round
print(f"{len(round_.survivors)} of 10 sites finished, {round_.sent_bytes / 1000:.0f} kB sent by each")
print(f"accuracy {100 * result.heads['lda'].accuracy:.1f} %")

# %%
# This is what the server sees. A site's vector begins with counts and sums; the sum of all threes is a blurred three. Under a
# mask every entry is as likely to be any number as any other.

recipe, site = result.total.recipe, np.arange(0, len(y), 10)
rows, _ = ghofl.Features.of(recipe).rows(x[site])
plain = ghofl.Moments.of(rows, y[site], ghofl.Layout.of(recipe)).sums
ring = Ring.for_sum(10, int(np.abs(plain).max()))
masked = ring.unpack(ring.mask(plain.ravel(), int(np.abs(plain).max()), plus=[bytes(range(32))]), plain.size)

pictures = {
    "one site's sum of threes:\nwhat stays at the site": plain[3],
    "the same under a mask:\nwhat the server gets": np.asarray(masked).reshape(plain.shape)[3],
    "the total of all sites:\nwhat the server learns": result.total.moments.sums[3],
}
figure, axes = plt.subplots(1, 3, figsize=(6.4, 2.6))
for axis, (title, picture) in zip(axes, pictures.items()):
    axis.imshow(picture.astype(float).reshape(8, 8), cmap="gray_r")
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(True)
