"""What commands show people: files in words, whole fingerprints, intervals beside accuracies, who is mistaken for whom."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ghofl
from federations import blobs, recipe_of
from ghofl.cli import app, console, measures
from ghofl.evaluation import Metrics
from ghofl.evaluation.confusion import interval_text, wilson
from ghofl.privacy import NoiseStream
from ghofl.recipe import Column, Privacy, Schema, Table
from ghofl.report.findings import Findings
from ghofl.report.page import page

NAMES = np.array([f"class {c}" for c in range(4)])
NUMBER = r"\d+\.\d+–\d+\.\d+"


@pytest.fixture
def folder(tmp_path, rng, monkeypatch):
    """A recipe, a message, a total, a released total with noise, a head and a test set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.out, "width", 120, raising=False)
    x, y = blobs(rng, rows=400)
    recipe = recipe_of()
    recipe.save("recipe.toml")
    message = ghofl.message(recipe, "north", x[:300], NAMES[y[:300]])
    message.save("north.ghofl")
    total = ghofl.total([message])
    total.save("total.ghofl")
    ghofl.fit(total, "rda(blend=0.5)").save("head.safetensors")
    promise = Privacy(epsilon=8.0, delta=1e-5, radius=8.0)
    noisy = replace(recipe_of(statistics=("B",)), privacy=promise)
    sent = ghofl.message(noisy, "north", x[:300], NAMES[y[:300]])
    ghofl.total([sent]).release(NoiseStream(b"a test")).save("released.ghofl")
    np.savez("test.npz", x=x[300:], y=NAMES[y[300:]])
    np.savez("all.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
    return tmp_path


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    return done.output


FILES = ("recipe.toml", "north.ghofl", "total.ghofl", "released.ghofl", "head.safetensors")


@pytest.mark.parametrize("name", FILES)
def test_inspect_speaks_to_people_and_cuts_no_fingerprint(folder, name):
    words = ("inspect", name, *(("--recipe", "recipe.toml") if name == "north.ghofl" else ()))
    text, values = run(*words), json.loads(run(*words, "--json", "-"))
    assert not re.search(r"[{}\[\]]|'\w+':|True|False|None", text), text
    whole = [value for value in _leaves(values) if re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{32}", str(value))]
    assert whole
    for fingerprint in whole:
        assert fingerprint in text
    assert "class 0" in text


def _leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, list) else [value]


def test_a_narrow_terminal_folds_a_fingerprint_and_loses_none_of_it(folder, monkeypatch):
    monkeypatch.setattr(console.out, "width", 50, raising=False)
    fingerprint = ghofl.Recipe.load("recipe.toml").fingerprint
    digits = "".join(re.findall(r"│ *([0-9a-f]{8,}) *│\n", run("inspect", "recipe.toml")))
    assert fingerprint in digits


def test_inspect_says_rows_by_class_who_took_part_and_what_is_promised(folder):
    text = run("inspect", "total.ghofl")
    counts = ghofl.Total.load("total.ghofl").moments.counts
    for name, count in zip(NAMES, counts, strict=True):
        assert re.search(rf"│ {name} +│ +{count} │", text)
    assert re.search(r"│ north │ [0-9a-f]{32} │ +300 │ +0\.\d{3}% │", text)
    assert re.search(r"is released +│ no ", text)
    text = " ".join(run("inspect", "released.ghofl").replace("│", " ").split())
    assert "(ε = 8, δ = 1e-05)-differential privacy of one record" in text
    assert "guarantee sigmas" in text
    assert re.search("is released yes", text)
    assert "options blend 0.5" in " ".join(run("inspect", "head.safetensors").replace("│", " ").split())


def test_inspect_lists_the_columns_of_a_table_and_cuts_long_lists_with_a_word(folder):
    columns = tuple(Column(f"c{i}", "number", low=0, high=1) for i in range(25))
    ghofl.recipe_for(schema=Schema(Table(columns, "y"), ("a", "b")), statistics=("B",)).save("table.toml")
    text = run("inspect", "table.toml")
    assert re.search(r"│ c19 +│ number", text)
    assert "and 5 more" in text
    many = ghofl.recipe_for([f"k{i}" for i in range(100)], [[1.0, 2.0]], anchor=(0.5, 0.25), statistics=("B",))
    many.save("many.toml")
    text = run("inspect", "many.toml")
    assert "k19, … 100 in all" in " ".join(text.replace("│", " ").split())
    message = ghofl.message(many, "north", np.ones((30, 2)), ["k7"] * 30)
    message.save("many.ghofl")
    assert "the 20 largest of 100 classes" in " ".join(run("inspect", "many.ghofl", "-r", "many.toml").split())


def test_evaluate_shows_intervals_and_who_is_mistaken_for_whom(folder):
    command = ("evaluate", "head.safetensors", "test.npz")
    text, values = run(*command), json.loads(run(*command, "--json", "-"))
    right = int(np.trace(np.array(values["confusion"])))
    assert values["accuracy_interval"] == list(wilson(right, 100))
    low, high = values["balanced_accuracy_interval"]
    assert low < values["balanced_accuracy"] < high
    assert re.search(
        rf"│ accuracy % +│ +{100 * values['accuracy']:.2f} │ +{interval_text(wilson(right, 100), 2)} │", text
    )
    assert re.search(rf"│ balanced accuracy % +│ +\d+\.\d+ │ +{NUMBER} │", text)
    for i, row in enumerate(values["confusion"]):
        cells = " │ +".join(str(count) if count else "·" for count in row)
        assert re.search(rf"│ class {i} +│ +{cells} │", text)


def test_with_many_classes_the_worst_mistakes_are_listed():
    classes = tuple(f"c{i}" for i in range(30))
    y = np.repeat(np.arange(30), 10)
    predicted = np.where((y == 4) & (np.arange(300) % 10 < 6), 9, y)
    predicted[0] = 1
    table = measures.confusion_table(Metrics.of(np.eye(30)[predicted], y, predicted), classes)
    with console.out.capture() as shown:
        console.out.print(table)
    lines = [line.split("│")[1:4] for line in shown.get().splitlines() if "│ c" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [["c4", "c9", "6"], ["c0", "c1", "1"]]
    assert "--json has the whole confusion matrix" in " ".join(shown.get().split())


@pytest.mark.parametrize(("classes", "rows"), [(2, 12), (10, 1000), (20, 40)])
def test_a_confusion_matrix_shows_every_name_and_count_on_80_columns(monkeypatch, classes, rows):
    """Of ten classes of photos the names were cut to 'airp…' and 'auto…', in the matrix and beside it."""
    monkeypatch.setattr(console.out, "width", 80, raising=False)
    kinds = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    names = tuple(f"{kinds[i % 10]}{'' if i < 10 else ' 2'}" for i in range(classes))
    y = np.repeat(np.arange(classes), rows)
    found = Metrics.of(np.eye(classes)[y], y, np.where(np.arange(len(y)) % 3, y, 0))
    with console.out.capture() as shown:
        console.out.print(measures.confusion_table(found, names))
    text = shown.get()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for name, row in zip(names, found.confusion.counts, strict=True):
        cells = r"[ │]+".join(f"{count:,}" if count else "·" for count in row)
        assert re.search(rf"{name}[ │]+{cells}", text)


@pytest.mark.parametrize(("rows", "named"), [([50, 50], ()), ([30, 20, 20], ()), ([30, 30, 20], ("c2",))])
def test_a_class_is_called_the_rarest_where_no_other_has_as_few_rows(rows, named):
    y = np.repeat(np.arange(len(rows)), rows)
    with console.out.capture() as shown:
        console.out.print(measures.measures_table(Metrics.of(np.eye(len(rows))[y], y), "lda", ("c0", "c1", "c2")))
    assert re.findall(r"of (\w+), the rarest", shown.get()) == list(named)


def test_of_many_classes_those_with_the_lowest_recall_are_shown():
    y = np.repeat(np.arange(30), 10)
    predicted = np.where((y == 4) & (np.arange(300) % 10 < 6), 9, y)
    with console.out.capture() as shown:
        found = Metrics.of(np.eye(30)[predicted], y, predicted)
        console.out.print(measures.classes_table(found, tuple(f"c{i}" for i in range(30))))
    lines = [line.split("│") for line in shown.get().splitlines() if "│ c" in line]
    assert [cell.strip() for cell in lines[0][1:5]] == ["c4", "10", "40.00", "100.00"]
    assert len(lines) == measures.WORST


@pytest.fixture
def rare(folder, rng, monkeypatch):
    """Rows of two classes, 5 % of the second, and a head of the first half of them; a terminal of 80 columns."""
    monkeypatch.setattr(console.out, "width", 80, raising=False)
    y = (rng.uniform(size=800) < 0.05).astype(int)
    x, names = rng.normal(size=(800, 4)) + 1.5 * y[:, None], np.array(["well", "ill"])[y]
    np.savez("rare.npz", x_train=x[:400], y_train=names[:400], x_test=x[400:], y_test=names[400:])
    recipe = ghofl.recipe_for(["well", "ill"], x[:400])
    head = ghofl.fit(ghofl.total([ghofl.message(recipe, "north", x[:400], names[:400])], recipe), "lda")
    head.save("rare.safetensors")


def test_for_rare_classes_evaluate_and_simulate_give_average_precision_and_thresholds(rare):
    text = run("evaluate", "rare.safetensors", "rare.npz", "--split", "test")
    values = json.loads(run("evaluate", "rare.safetensors", "rare.npz", "--split", "test", "--json", "-"))
    assert f"{100 * values['average_precision']:.2f}" in text
    assert "of ill, the rarest class" in text
    simulated = ("simulate", "--embeddings", "rare.npz", "--clients", 2, "--heads", "lda,nb")
    head = json.loads(run(*simulated, "--json", "-"))["heads"]["lda"]
    shown = run(*simulated)
    assert f"{100 * head['average_precision']:.2f}" in shown
    for table, lines in ((text, values["by_threshold"]), (shown, head["by_threshold"])):
        for line in lines:
            shares = [100 * line[name] for name in ("recall", "precision", "flagged")]
            cells = " │ +".join(f"{share:.2f}" for share in shares)
            assert not line["flagged"] or re.search(rf"│ +{line['probability']:.3g} │ +{cells} │", table)
    assert max(len(line) for line in (text + shown).splitlines()) <= 80


def test_a_threshold_of_the_table_does_what_the_table_says(rare):
    values = json.loads(run("evaluate", "rare.safetensors", "rare.npz", "--split", "test", "--json", "-"))
    for line in values["by_threshold"]:
        given = ("--threshold", f"ill={line['probability']:.3g}")
        used = json.loads(run("evaluate", "rare.safetensors", "rare.npz", "--split", "test", *given, "--json", "-"))
        counts = np.array(used["confusion"])
        assert counts[1, 1] / counts[1].sum() == pytest.approx(line["recall"])
        assert counts[:, 1].sum() / counts.sum() == pytest.approx(line["flagged"])


def test_a_report_shows_intervals_in_its_tile_table_and_chart(folder):
    head, total = ghofl.Classifier.load("head.safetensors"), ghofl.Total.load("total.ghofl")
    rows = np.load("test.npz")
    y = np.searchsorted(NAMES, rows["y"])
    found = Findings.of_total(total, "A run").judge_heads([head], rows["x"], y)
    expected = Metrics.of(head.predict_proba(rows["x"]), y).confusion.accuracy_interval
    assert found.heads[0].interval == expected
    text = page(found)
    assert f"best accuracy ({interval_text(expected)} with 95 % confidence)" in text
    assert f"<small>{interval_text(expected, 2)}</small>" in text
    balanced = interval_text(tuple(found.heads[0].metrics["balanced_accuracy_interval"]), 2)
    assert f"<small>{balanced}</small>" in text
    assert "Small numbers are 95 % intervals." in text


def test_bars_of_a_chart_reach_to_the_ends_of_the_interval(folder):
    from ghofl.report.charts import BLUE, charts_of
    from ghofl.report.findings import HeadLine

    found = Findings.of_total(ghofl.Total.load("total.ghofl"), "A run")
    lines = (HeadLine("lda", 0.9, 1000, {"accuracy_interval": [0.8, 0.95]}), HeadLine("nb", 0.7, 500))
    drawn = charts_of(replace(found, heads=lines))["payload"]
    number = r"(-?[\d.]+)"
    points = [float(y) for y in re.findall(rf'<use [^>]*y="{number}"[^>]*{BLUE}', drawn)]
    bars = re.findall(rf'd="M {number} {number}\s+L {number} {number}\s+"[^>]*stroke: {BLUE}', drawn)
    unit = (points[1] - points[0]) / 20  # pixels of one per cent: 90 stands above 70
    ends = [
        ((float(low) - y) / unit, (y - float(high)) / unit) for (_, low, _, high), y in zip(bars, points, strict=True)
    ]
    assert ends == [pytest.approx((10.0, 5.0)), pytest.approx((0.0, 0.0))]


def _error_of(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught, console.report_errors():
        app(list(arguments))
    assert caught.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_folder_in_place_of_a_file_is_told(folder, capsys):
    Path("photos").mkdir()
    text = _error_of(capsys, "moments", "photos", "--recipe", "recipe.toml", "-o", "photos.ghofl")
    assert "photos holds no image" in text
    assert "photos is a folder, and a file was expected. Check" in _error_of(capsys, "inspect", "photos")


def test_a_message_without_its_recipe_is_named_once(folder, capsys):
    text = _error_of(capsys, "audit", "north.ghofl")
    assert text.count("north.ghofl") == 1
    assert "give --recipe" in text


def test_a_draft_without_a_label_says_so(folder):
    Path("rows.csv").write_text("age,ill\n" + "".join(f"{30 + i},{'yes' if i % 3 else 'no'}\n" for i in range(40)))
    named, unnamed = (
        CliRunner().invoke(app, ["schema", "rows.csv", *label, "-o", f"{len(label)}.toml"])
        for label in (["--label-column", "ill"], [])
    )
    assert "No column is the label" in unnamed.output
    assert "Wrote 2.toml" in named.output
    assert "No column is the label" not in named.output


def test_embed_that_was_stopped_says_that_the_same_command_continues(folder, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ghofl.encoders.embed.embed_file", stopped)
    with pytest.raises(SystemExit) as ended, console.report_errors():
        app(["embed", "--encoder", "torchvision:resnet18", "--data", "photos", "-o", "new.npz"])
    assert ended.value.code == 130
    assert "the same command continues where this one stopped" in capsys.readouterr().err
