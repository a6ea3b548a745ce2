"""How fine must the grid be: accuracy and bytes by number of bits."""

import data
import numpy as np

from ghofl import HeadSpec
from ghofl.simulation import partition
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

BITS = (4, 5, 6, 7, 8, 9, 10, 12)


def run() -> list[dict]:
    """LDA and naive Bayes at each number of bits, ten even clients of 5,000 rows."""
    results = []
    for name, classes in data.CLASSES.items():
        arrays = data.embeddings(name)
        dataset = Dataset(**arrays, classes=tuple(map(str, range(classes))))
        parts = partition.iid(dataset.y_train, 10, np.random.default_rng(0))
        specs = HeadSpec.parse_list("nb,lda", "paper")
        for power in (1.0, 0.5):
            for bits in BITS:
                recipe = recipe_for(dataset, specs.values(), power=power, bits=bits)
                heads = simulate(dataset, parts, recipe, specs).heads
                row = {"dataset": name, "power": power, "bits": bits, "scale": recipe.grid.scale}
                for head, statistic in (("nb", "D"), ("lda", "B")):
                    row[f"{head}_accuracy"] = heads[head].accuracy
                    row[f"{head}_bytes"] = heads[head].payload_bytes
                    row[f"{head}_of_paper"] = heads[head].payload_bytes / data.paper_bytes(statistic, classes, 1280)
                results.append({**row, "recipe": recipe.fingerprint})
                print(row, flush=True)
    return results


def table(results: list[dict]) -> str:
    """The results as Markdown."""
    lines = [
        "| dataset | power | bits | scale | NB % | NB bytes / paper | LDA % | LDA bytes / paper |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['dataset']} | {r['power']:g} | {r['bits']} | {r['scale']:g} | {100 * r['nb_accuracy']:.2f} "
        f"| {r['nb_of_paper']:.2f} | {100 * r['lda_accuracy']:.2f} | {r['lda_of_paper']:.2f} |"
        for r in results
    ]
    return "\n".join(lines)
