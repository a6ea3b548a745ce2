"""What the golden files hold, built anew: ``python tests/golden_files.py FOLDER`` writes them.

Everything is small, made of whole numbers by a formula, and goes through the public functions; ids and noise are given
instead of drawn. The fingerprints of recipes, and what messages and totals say once their streams are inflated, are the same
on every platform; the streams themselves depend on the build of zlib. The numbers in heads come out of a BLAS, so of those the
form is pinned to the byte and the numbers to a tolerance.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ghofl import (
    HEADS,
    Classifier,
    Encoder,
    Features,
    Grid,
    Layout,
    Lift,
    Message,
    Moments,
    Privacy,
    Projection,
    Recipe,
    Sketch,
    Total,
    Transform,
)
from ghofl.privacy import NoiseStream
from ghofl.recipe import Basis, Column, Table

BASE = Recipe(("cat", "dog", "bird", "ünïcode"), Encoder(6, "golden", "0123456789abcdef"), ("S",), grid=Grid(8, 16.0))
TABLE = Table(
    (
        Column("age", "number", low=0, high=100, breaks=(20, 35, 50, 80)),
        Column("dose", "log", low=1, high=1000, breaks=(3, 40)),
        Column("income", "quantiles", breaks=(0, 10, 1000)),
        Column("ward", "category", levels=("a", "b")),
        Column("smoker", "yes/no"),
    ),
    site_rows=100,
)
NOISE = Privacy(radius=4.0, epsilon=2.0, delta=1e-5)

RECIPES = {
    "N": replace(BASE, statistics=()),
    "D": replace(BASE, statistics=("D",)),
    "B": replace(BASE, statistics=("B",)),
    "S": BASE,
    "Z": replace(BASE, statistics=("B",), sketch=Sketch(dim=3, seed=5)),
    "transform": replace(
        BASE, transform=Transform(power=0.5, unit_length=True, anchor=(0.5, 0.25, -1.0, 0.0, 2.0, 1e-3))
    ),
    "projection": replace(BASE, projection=Projection(dim=4, seed=9)),
    "matrix": replace(BASE, projection=Projection.of_matrix(np.arange(12).reshape(6, 2) - 5, shift=2)),
    "lift": replace(BASE, statistics=("B",), lift=Lift(dim=9, seed=2, keep=True), sketch=Sketch(dim=6, kept=True)),
    "basis": Recipe(BASE.classes, TABLE.encoder, ("B",), grid=Grid(12, 2047.0), table=TABLE, basis=Basis(3, 8, seed=4)),
    "rounding": replace(BASE, statistics=("B",), privacy=Privacy(rounding=3)),
    "min-count": replace(BASE, privacy=Privacy(min_count=13, merge_into="bird")),
    "central": replace(BASE, statistics=("B",), privacy=NOISE),
    "local": replace(BASE, statistics=("D",), privacy=replace(NOISE, noise="local")),
    "client": replace(BASE, statistics=("B",), privacy=replace(NOISE, unit="client", client_rows=3)),
    "secure": replace(BASE, privacy=replace(NOISE, noise="distributed", secure=True, min_cohort=3)),
}
SITES = ("north", "south", "")
TOTALS = ("N", "D", "B", "S", "Z", "projection", "lift", "basis", "rounding", "min-count", "central", "local", "client")


def rows(site: int) -> tuple[np.ndarray, np.ndarray]:
    """Twenty embeddings of one site, and their class numbers."""
    i, j = np.arange(20)[:, None] + 20 * site, np.arange(6)[None]
    y = (3 * i[:, 0] + i[:, 0] // 4) % 4
    return ((i * i * (3 * j + 1) + 5 * i * j * j + 11 * j) % 37 - 18) / 8.0 + 2.0 * np.eye(4, 6)[y], y


def message(name: str, site: int) -> Message:
    """The message of a site under one of the recipes."""
    recipe, (x, y) = RECIPES[name], rows(site)
    features, layout = Features.of(recipe), Layout.of(recipe)
    moments = Moments.of(features.rows(x)[0], y, layout, features.sketch if layout.sketch else None)
    made = Message.of(moments, recipe, SITES[site], NoiseStream(f"golden {site}".encode()))
    return replace(made, id=f"{site:032x}")


def total(name: str) -> Total:
    """The total of three sites under one of the recipes."""
    return Total.of((message(name, site) for site in range(3)), RECIPES[name])


def released(name: str) -> Total:
    """The same total as others may see it."""
    return total(name).release(NoiseStream(b"golden release"))


def recipe_of_head(name: str) -> str:
    """The name of the recipe that a head is built under."""
    need = HEADS[name].needs[0]
    return "Z" if "Z" in need else need[0] if need else "N"


def head(name: str) -> Classifier:
    """A head of each kind, with few steps where it is trained, and variances as they are."""
    specs = {"fisher_mix": "fisher_mix(epochs=2)", "proto_hyper": "proto_hyper(epochs=2, rank=2)"}
    specs |= {"nb": "nb(shrinkage=0.0)"}
    recipe = recipe_of_head(name)
    return Classifier.fit(total(recipe), specs.get(name, name), novelty=recipe != "N")


def files() -> dict[str, bytes]:
    """Every golden file by name."""
    out = {"recipes.json": (json.dumps({k: r.fingerprint for k, r in RECIPES.items()}, indent=1) + "\n").encode()}
    for name in TOTALS:
        out[f"message-{name}.safetensors"] = message(name, 0).to_bytes()
        out[f"total-{name}.safetensors"] = total(name).to_bytes()
    for name in ("min-count", "central", "client"):
        out[f"released-{name}.safetensors"] = released(name).to_bytes()
    for name in HEADS:
        out[f"head-{name}.safetensors"] = head(name).to_bytes()
    return out


if __name__ == "__main__":
    for file_name, content in files().items():
        Path(sys.argv[1], file_name).write_bytes(content)
