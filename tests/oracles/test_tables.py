"""Tables against scikit-learn: standardised columns, LDA and QDA, over several splits."""

import numpy as np
import pytest

from ghofl import HeadSpec
from ghofl.encoders.from_schema import table_rows
from ghofl.planning.assembly import assemble
from ghofl.planning.drafting import schema_of_rows
from ghofl.recipe import RecipeOptions
from ghofl.simulation.simulate import Dataset, simulate

datasets = pytest.importorskip("sklearn.datasets")
from sklearn.discriminant_analysis import (  # noqa: E402
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

SPLITS = {"breast_cancer": 8, "wine": 8, "digits": 2, "covertype-like": 3}
REGULARISED = 1e-3  # scikit-learn's QDA refuses columns that are constant in a class, or sums of others, without any


def like_covertype(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Terrain in metres and degrees, a soil of twelve, a yes/no: seven classes from half of the rows to a hundredth."""
    classes, rows = 7, 5000
    y = rng.choice(classes, rows, p=[0.36, 0.48, 0.06, 0.01, 0.02, 0.03, 0.04])
    shapes = 0.3 * rng.normal(size=(classes, 8, 8)) + np.eye(8)
    z = 0.8 * rng.normal(size=(classes, 8))[y] + np.einsum("nij,nj->ni", shapes[y], rng.normal(size=(rows, 8)))
    terrain = np.array([2900, 155, 14, 46, 2350, 212, 223, 142]) + z * np.array([300, 110, 7, 58, 1500, 27, 20, 38])
    columns = {f"terrain{j}": terrain[:, j] for j in range(8)}
    columns["soil"] = np.array([f"type {k}" for k in (rng.integers(0, 8, rows) + y) % 12])
    columns["wild"] = np.where(rng.random(rows) < 0.2 + 0.08 * y, "yes", "no")
    return columns, y


def columns_of(name: str, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    if name == "covertype-like":
        return like_covertype(np.random.default_rng(seed))
    data = getattr(datasets, f"load_{name}")()
    return {f"column{j}": data.data[:, j] for j in range(data.data.shape[1])}, data.target


def as_scikit_learn_has_them(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Numbers as they are; of each other column an entry per value but the first, which the others tell."""
    parts = [
        values[:, None] if values.dtype.kind == "f" else values[:, None] == np.unique(values)[1:]
        for values in columns.values()
    ]
    return np.hstack(parts).astype(np.float64)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ghofl.errors.ClippingWarning")  # test rows beyond what the draft saw
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
@pytest.mark.parametrize("name", SPLITS)
def test_heads_of_a_drafted_table_are_within_a_point_of_scikit_learn(name):
    """Mean accuracy over splits, from the messages of two sites: LDA as it comes, QDA regularised as much as theirs."""
    rules = {
        "lda": LinearDiscriminantAnalysis(),
        f"qda(shrinkage={REGULARISED})": QuadraticDiscriminantAnalysis(reg_param=REGULARISED),
    }
    ours, theirs = {head: [] for head in rules}, {head: [] for head in rules}
    for seed in range(SPLITS[name]):
        columns, y = columns_of(name, seed)
        train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y)
        table = schema_of_rows({key: values[train].tolist() for key, values in columns.items()}).table
        x = table_rows({key: values.tolist() for key, values in columns.items()}, table, labelled=False).x
        classes = tuple(map(str, range(int(y.max()) + 1)))
        recipe = assemble(RecipeOptions(statistics=("S",)), classes, table.encoder, table=table).recipe
        data = Dataset(x[train], y[train].astype(np.int64), x[test], y[test].astype(np.int64), classes)
        sites = [np.arange(0, len(train), 2), np.arange(1, len(train), 2)]
        for head, result in simulate(data, sites, recipe, HeadSpec.parse_list(",".join(rules))).heads.items():
            ours[head].append(result.accuracy)
        raw = as_scikit_learn_has_them(columns)
        for head, rule in rules.items():
            theirs[head].append(
                make_pipeline(StandardScaler(), rule).fit(raw[train], y[train]).score(raw[test], y[test])
            )
    for head in ours:
        assert np.mean(ours[head]) >= np.mean(theirs[head]) - 0.01, (head, np.mean(ours[head]), np.mean(theirs[head]))
