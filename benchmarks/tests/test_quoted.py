"""Figures that pages quote are those of the stored files, as far as the pages print them.

Generated pages (docs/defaults.md, docs/cli.md, results/*.md) have tests of their own. A sentence is looked for in all other
pages, so it may move from one to another, but wherever it stands its figures are compared.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import few_shots
import pytest
from ghofl_benchmarks import report

ROOT = report.RESULTS.parents[1]
GENERATED = {"defaults.md", "cli.md", "results.md"}
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: " ".join(page.read_text(encoding="utf-8").split()) for page in PAGES if page.name not in GENERATED}
LINES = [line for page in PAGES if page.name not in GENERATED for line in page.read_text(encoding="utf-8").splitlines()]
NUMBER = r"(\d+(?:\.\d+)?)"
VIEWS = {
    "paper": "one view", "quick": "flip", "default": "flip 160,224,288", "best": "flip 160,224,288 mean+std stages",
    "default bicubic": "flip 160,224,288 bicubic", "best bicubic": "flip 160,224,288 mean+std stages bicubic",
}  # fmt: skip


@cache
def stored(name: str) -> Any:
    return json.loads((report.RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def percent(values: list[float]) -> float:
    return 100 * sum(values) / len(values)


def alarms(statistic: str, without: tuple[str, ...] = ()) -> list[float]:
    """The least and the largest share of rows that are rejected at 0.05, all rows in the total."""
    found = [r for r in stored("false_alarms") if r["rows_per_class"] == "all" and r["statistic"] == statistic]
    shares = [100 * r["turned_away"]["0.05"] for r in found if r["dataset"] not in without]
    return [min(shares), max(shares)]


def alarms_of(name: str) -> float:
    found = [r for r in stored("false_alarms") if r["rows_per_class"] == "all" and r["dataset"] == name]
    return 100 * next(r for r in found if r["statistic"] == "B")["turned_away"]["0.05"]


def area(inside: str, outside: str) -> float:
    rows = stored("novelty")
    return next(r for r in rows if (r["inside"], r["outside"]) == (inside, outside))["relative_mahalanobis"]


def public(name: str, head: str | None, dim: int | None, kind: str, epsilon: float | None) -> float:
    """The best accuracy of such messages."""
    wanted = {"set": name, "head": head, "dim": dim, "public": kind}
    rows = [r for r in stored("public_rows")["accuracy"] if r["epsilon"] == epsilon]
    found = [r for r in rows if all(value in (None, r[key]) for key, value in wanted.items())]
    return max(percent(r["accuracies"]) for r in found)


def trained(name: str, head: str, preset: str) -> float:
    rows = stored("trained")["accuracy"]
    return 100 * next(r for r in rows if (r["dataset"], r["head"], r["preset"]) == (name, head, preset))["mean"]


def private(head: str, projection: int | None, noise: str, epsilon: float | None) -> float:
    wanted = (head, projection, noise, epsilon)
    rows = stored("privacy")["accuracy"]
    return percent(
        next(r for r in rows if (r["head"], r["projection"], r["noise"], r["epsilon"]) == wanted)["accuracies"]
    )


def domains(views: str) -> list[float]:
    found = stored("views")["domains"][views]
    return [100 * found[name] for name in ("art_painting", "cartoon", "photo", "sketch")]


def rounds() -> list[float]:
    """How many rounds FedAvg takes to reach our figure, where it ends, and after how many."""
    found = stored("figure-convergence")
    ends = 100 * found["rounds"]["0.5"]["fedavg"]["accuracy"][-1]
    return [found["fedavg_reaches_ours"]["0.5"]["rounds"], ends, found["fedavg_reaches_ours"]["0.5"]["of"]]


FOUR = " / ".join([NUMBER] * 4)
SENTENCES: dict[str, Callable[[], list[float]]] = {
    f"LDA from one message reaches {NUMBER} %": lambda: [stored("figure-convergence")["ours"]],
    rf"at Dirichlet 0\.5 FedAvg passes that figure after {NUMBER} rounds and reaches {NUMBER} % after {NUMBER} ": rounds,
    rf"{NUMBER} to {NUMBER} % are rejected at 0\.05 where the total has class covariances": lambda: alarms("S"),
    f"it is {NUMBER} to {NUMBER} % on eight sets, but {NUMBER} % on CLINC150": lambda: [
        *alarms("B", without=("clinc150", "cifar100")), alarms_of("clinc150"),
    ],
    rf"on CLINC150 \({NUMBER} % of its test rows\) and {NUMBER} % on CIFAR-100": lambda: [
        100 * stored("novelty")[0]["rejected_inside_at_5_percent"], alarms_of("cifar100"),
    ],
    rf"at most {NUMBER} points\]\(defaults\.md\) below the best single head": lambda: [
        max(few_shots.gap(row) for row in stored("few_shots"))
    ],
    f"is {NUMBER} for CLINC150's out-of-scope questions and {NUMBER} for CIFAR-100 among CIFAR-10": lambda: [
        area("clinc150", "out of scope"), area("cifar10", "cifar100"),
    ],
    f"too few for weights that start small: {NUMBER} %": lambda: [trained("cifar10", "fisher_mix", "paper")],
    rf"No noise: LDA {NUMBER}, ridge {NUMBER}\.": lambda: [
        private("lda", None, "none", None), private("ridge", None, "none", None),
    ],
    f"LDA goes from {FOUR}": lambda: domains(VIEWS["paper"]),
    f"with one view to {FOUR} with the default and {FOUR} with `best`": lambda: [
        *domains(VIEWS["default"]), *domains(VIEWS["best"]),
    ],
    rf"\| LDA, ridge, sketched QDA of that total; scoring 1,000 rows \| {NUMBER}, {NUMBER}, {NUMBER} s;": lambda: [
        stored("scale")["imagenet"][f"fit {head}"]["seconds"] for head in ("lda", "ridge", "sketched_qda")
    ],
}  # fmt: skip


def is_printed(text: str, value: float) -> bool:
    """Whether a text is this value, rounded to as many digits."""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize("sentence", SENTENCES)
def test_figures_in_sentences_are_those_of_the_stored_files(sentence):
    found = [(name, quoted) for name, text in TEXTS.items() for quoted in re.findall(sentence, text)]
    assert found, "no page has this sentence; where it was rewritten, rewrite it here"
    for name, quoted in found:
        texts, values = [quoted] if isinstance(quoted, str) else list(quoted), SENTENCES[sentence]()
        assert len(texts) == len(values)
        assert all(map(is_printed, texts, values)), f"{name} has {texts}, the file {values}"


def cells(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_like(start: str, count: int) -> list[list[str]]:
    """Rows of tables whose first cell matches, with so many cells."""
    found = [cells(line) for line in LINES if line.startswith("| ")]
    return [row for row in found if len(row) == count and re.fullmatch(start, row[0])]


def test_the_table_of_diagnosis_is_the_stored_file():
    """One line stands for the cells of several kinds, sets and α that are equal as printed."""
    found = [r for r in stored("diagnosis") if r["set"] in ("digits", "cifar10")]
    shown: dict[tuple[str, str, float], list[str]] = {}
    for kinds, where, *figures in rows_like("(flipped|padded).*", 4):
        sets = [name for name in ("digits", "cifar10") if name in where or where.startswith("both")]
        for kind in re.findall(r"[a-z]{3,}", kinds):
            shown |= {(kind, name, float(a)): figures for name in sets for a in re.findall(r"0\.\d", where)}
    assert shown == {
        (r["kind"], r["set"], r["alpha"]): [f"{r['flagged']:.0%}", f"{r['mean loss, points']:.2f}"]
        for r in found if r["kind"] != "honest"
    }  # fmt: skip
    assert {r["false alarms per honest site"] for r in found} == {0}


def test_the_table_of_noise_is_the_stored_file():
    rows = rows_like(r"(LDA|ridge|RDA), (none|\d+), (central|distributed|local)", 6)
    assert len(rows) == 4
    for name, *shown in rows:
        head, projection, noise = name.lower().split(", ")
        values = [private(head, None if projection == "none" else int(projection), noise, e) for e in (0.5, 1, 2, 4, 8)]
        assert all(map(is_printed, shown, values)), (name, shown, values)


def test_the_tables_of_public_rows_are_the_stored_file():
    clean, noisy = rows_like("counts and sums, all dimensions|B of .+ dimensions .LDA.", 3), rows_like(
        "(without|public): .+, [0-9]+", 4
    )  # fmt: skip
    assert (len(clean), len(noisy)) == (4, 3)
    for name, *shown in clean:
        head, dim = "lda" if "LDA" in name else "nearest_mean", int((re.findall(r"\d+", name) or ["1280"])[0])
        for kind, pair in zip(("none", "labelled"), shown, strict=True):
            check_pair(pair, head, dim, kind, None)
    for name, *shown in noisy:
        kind, head, dim = re.fullmatch(r"(.+): (.+), (\d+)", name).groups()
        kind = {"without": "none", "public": "labelled"}[kind]
        for epsilon, pair in zip((0.5, 2, 8), shown, strict=True):
            check_pair(pair, "lda" if head == "LDA" else "nearest_mean", int(dim), kind, epsilon)


def check_pair(pair: str, head: str, dim: int, kind: str, epsilon: float | None) -> None:
    """A cell such as `77.2 / 55.3`, of CIFAR-10 and CIFAR-100."""
    if pair:
        values = [public(name, head, dim, kind, epsilon) for name in ("cifar10", "cifar100")]
        assert all(map(is_printed, pair.split(" / "), values)), (pair, head, dim, kind, epsilon, values)


def test_the_table_of_views_is_the_stored_file():
    rows = rows_like("`(paper|quick|default|best)`( with `bicubic`)?", 5)
    assert len(rows) == len(VIEWS)
    rates = stored("views")["rates"]["one H200"]
    for name, *shown, rate in rows:
        views = name.replace("`", "").replace(" with", "")
        for one, pair in zip(stored("views")["sets"], shown, strict=True):
            found = {**one["candidates"], **one["kernels"]}[VIEWS[views]]
            for head, text in zip(("lda", "best"), pair.split(" / "), strict=True):
                assert is_printed(text, 100 * found[head]) if head in found else text == "–", (name, one["set"], pair)
        assert is_printed(rate.replace(",", ""), rates[views]) if views in rates else rate == "not measured"
