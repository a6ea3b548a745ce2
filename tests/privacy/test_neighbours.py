"""Under an epsilon a site gives the same answer with and without any one row.

`CASES` are the refusals that a row could reach while a site reads, adds up and sends its rows. `RAISES` lists every
`raise` on that way, so that a new one has to be looked at: does a row decide about it?
"""

import ast
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from test_cli import ghofl

import ghofl as package
from ghofl import Encoder, Grid, Message, Privacy, Recipe, Total
from ghofl.custody.policy import Policy
from ghofl.custody.site import Site
from ghofl.errors import ClippingWarning, MomentsOverflowError, PolicyError, SiteError
from ghofl.keeper.answers import answer
from ghofl.moments import CutBuilder, Layout, Moments
from ghofl.recipe import Column, Limits, Table
from ghofl.wire.letter import Letter

pytestmark = pytest.mark.filterwarnings("ignore::ghofl.errors.ClippingWarning")

PROMISE = Privacy(radius=2.0, epsilon=1.0, delta=1e-5)
KINDS = {
    "central": PROMISE,
    "local": replace(PROMISE, noise="local"),
    "distributed": replace(PROMISE, noise="distributed", secure=True, min_cohort=2),
}
AGE = Column("age", "number", low=0, high=100)
CLASSES = ("ill", "well")
ROWS = 24


@dataclass(frozen=True)
class Stub:
    """An encoder of texts or images that gives NaN for the sample 'nan'."""

    kind: str
    name: str = "stub"
    dim: int = 2
    fingerprint: str = ""
    sample_bytes: int = 8

    def encode(self, batches):
        for batch in batches:
            rows = [[np.nan if isinstance(one, str) and one == "nan" else len(one), 1.0] for one in batch]
            yield np.array(rows, dtype=np.float32).reshape(-1, 2)


def plain(**parts):
    return Recipe(CLASSES, Encoder(dim=2), ("B",), grid=Grid(8, 16.0), **parts)


def table_recipe(*columns, **parts):
    table = Table(columns, label="state")
    return Recipe(CLASSES, table.encoder, ("B",), grid=Grid(8, 16.0), table=table, **parts)


def embeddings(extra_x=None, extra_y="ill", start=ROWS):
    """Rows of a file, with one more where it is given."""
    x, y = np.tile([[0.5, -0.25]], (start, 1)), np.array([CLASSES[i % 2] for i in range(start)], dtype=np.str_)
    return (x, y) if extra_x is None else (np.vstack([x, [extra_x]]), np.append(y, extra_y))


def npz(extra_x=None, extra_y="ill", start=ROWS, whole_numbers=False):
    def write(folder, is_there):
        x, y = embeddings(extra_x if is_there else None, extra_y, start)
        if whole_numbers:
            y = np.array([{"ill": 0, "well": 1}.get(label, 7) for label in y])
        np.savez(folder / "rows.npz", x=x, y=y)
        return {"embeddings": "rows.npz"} | ({"labels_are_numbers": True} if whole_numbers else {})

    return write


def csv(row, *, outside=0, header="age,state", start=ROWS, **site):
    """A table with one more line; `outside` of the other lines have an age that nobody has."""

    def write(folder, is_there):
        lines = [f"{400 if i < outside else 30},{CLASSES[i % 2]}" for i in range(start)]
        if header.startswith("who"):
            lines = [f"p{i},{line}" for i, line in enumerate(lines)]
        (folder / "rows.csv").write_text("\n".join([header, *lines, *([row] if is_there else []), ""]))
        return {"embeddings": "rows.csv", **site}

    return write


def json_lines(values, others=ROWS, encoder="", **site):
    def write(folder, is_there):
        first = [{"age": 30, "state": "ill"}, {"text": "aa", "label": "ill"}][bool(encoder)]
        lines = [json.dumps(v) for v in [*[first] * others, *([values] if is_there else [])]]
        (folder / "rows.jsonl").write_text("\n".join(lines))
        source = {"data": "rows.jsonl", "encoder": encoder} if encoder else {"embeddings": "rows.jsonl"}
        return {**source, **site}

    return write


def parquet(embedding, label, others=ROWS):
    def write(folder, is_there):
        import pyarrow
        from pyarrow import parquet as file

        x, y = [[0.5, 0.25]] * others + [embedding] * is_there, ["ill"] * others + [label] * is_there
        kinds = pyarrow.list_(pyarrow.float32()), pyarrow.string()
        table = {"embedding": pyarrow.array(x, kinds[0]), "label": pyarrow.array(y, kinds[1])}
        file.write_table(pyarrow.table(table), folder / "rows.parquet")
        return {"embeddings": "rows.parquet"}

    return write


def missing_number(kind):
    """Labels (or persons) that are whole numbers; beside a missing one, pandas and numpy write all of them as 1.0."""

    def write(folder, is_there):
        numbers = np.array([0, 1] * (ROWS // 2) + [np.nan] * is_there)
        numbers, x = numbers if is_there else numbers.astype(np.int64), np.full((len(numbers), 2), 0.5)
        if kind == "parquet":
            import pyarrow
            from pyarrow import parquet as file

            file.write_table(pyarrow.table({"embedding": list(x), "label": numbers}), folder / "rows.parquet")
            return {"embeddings": "rows.parquet", "labels_are_numbers": True}
        y = np.array(["ill"] * len(x)) if kind == "person" else numbers
        np.savez(folder / "rows.npz", x=x, y=y, who=numbers)
        return {"embeddings": "rows.npz"} | (WHO if kind == "person" else {"labels_are_numbers": True})

    return write


def late(unit):
    """A table with a column of times that no schema names; Python knows no year 10000."""

    def write(folder, is_there):
        import pyarrow
        from pyarrow import parquet as file

        seen = pyarrow.array([0] * ROWS + [2**30 if unit == "day" else 2**62] * is_there, pyarrow.int64())
        kind = pyarrow.date32() if unit == "day" else pyarrow.timestamp(unit)
        seen = seen.cast(pyarrow.int32()).cast(kind) if unit == "day" else seen.cast(kind)
        table = {"age": [30] * len(seen), "state": ["ill"] * len(seen), "seen": seen}
        file.write_table(pyarrow.table(table), folder / "rows.parquet")
        return {"embeddings": "rows.parquet"}

    return write


def images(name, content, others=4):
    def write(folder, is_there):
        from PIL import Image

        for i in range(others):
            (folder / "photos" / CLASSES[i % 2]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (3, 3)).save(folder / "photos" / CLASSES[i % 2] / f"{i}.png")
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_there:
            path.write_bytes(content) if content else Image.new("RGB", (3, 3)).save(path)
        return {"data": "photos", "encoder": "torchvision:stub"}

    return write


def precomputed(folder, is_there):
    """The first row of a bare array is not finite."""
    x, y = embeddings()
    np.save(folder / "rows.npy", np.vstack([[[np.nan, 1.0]], x])[0 if is_there else 1 :])
    np.save(folder / "rows.labels.npy", np.append("ill", y)[0 if is_there else 1 :])
    return {"data": "rows.npy", "encoder": "precomputed:clip"}


STRICT = 'disclosure = "strict"\n'
WHO = {"person": "who", "rows_per_person": 1}
CASES = {
    "most values of a column outside": (table_recipe(AGE), csv("400,ill", outside=ROWS // 2)),
    "a value that is not a number": (table_recipe(AGE), csv("old,ill")),
    "a value outside that the schema refuses": (table_recipe(replace(AGE, outside="refuse")), csv("101,ill")),
    "a missing value that the schema refuses": (table_recipe(AGE), csv(",ill")),
    "a label of a table not in the list": (table_recipe(AGE), csv("30,dead")),
    "a row of a table without a label": (table_recipe(AGE), csv("30,")),
    "a row without a person": (table_recipe(AGE), csv(",30,ill", header="who,age,state", **WHO)),
    "a bad row beside persons": (table_recipe(AGE), csv("ann,old,ill", header="who,age,state", **WHO)),
    "a person that is null": (
        table_recipe(AGE),
        json_lines({"age": 30, "state": "ill", "who": None}, others=0, **WHO),
    ),
    "a table of one row": (table_recipe(AGE), csv("30,ill", start=0)),
    "one line of JSON": (table_recipe(AGE), json_lines({"age": 30, "state": "ill"}, others=0)),
    "a label not in the list": (plain(), npz([0.5, 0.5], "dead")),
    "a number that is not a class": (plain(), npz([0.5, 0.5], "dead", whole_numbers=True)),
    "an empty label": (plain(), npz([0.5, 0.5], "")),
    "a number that is not finite": (plain(), npz([np.nan, 0.5])),
    "an embedding beyond the grid": (plain(), npz([1e9, 0.5])),
    "a site of one row": (plain(), npz([0.5, 0.5], start=0)),
    "more rows than the recipe allows": (plain(limits=Limits(max_rows=ROWS)), npz([0.5, 0.5])),
    "a missing label beside whole numbers": (plain(), missing_number("npz")),
    "a missing label beside whole numbers in a table": (plain(), missing_number("parquet")),
    "a missing person beside whole numbers": (plain(), missing_number("person")),
    "a time after the year 9999": (table_recipe(AGE), late("us")),
    "a day after the year 9999": (table_recipe(AGE), late("day")),
    "a null label": (plain(), parquet([0.5, 0.5], None)),
    "a list of another length": (plain(), parquet([0.5], "ill")),
    "a list with a null": (plain(), parquet([None, 0.5], "ill")),
    "a null list": (plain(), parquet(None, "ill")),
    "a file of one list": (plain(), parquet([0.5, 0.5], "ill", others=0)),
    "an empty text": (plain(), json_lines({"text": " ", "label": "ill"}, encoder="hf:stub")),
    "a text that is a number": (plain(), json_lines({"text": 3, "label": "ill"}, encoder="hf:stub")),
    "a text whose label is null": (plain(), json_lines({"text": "a", "label": None}, encoder="hf:stub")),
    "a text whose label is a number": (plain(), json_lines({"text": "a", "label": 1}, encoder="hf:stub")),
    "a text whose label is not in the list": (plain(), json_lines({"text": "a", "label": "x"}, encoder="hf:stub")),
    "a text whose embedding is not finite": (plain(), json_lines({"text": "nan", "label": "ill"}, encoder="hf:stub")),
    "a single text": (plain(), json_lines({"text": "a", "label": "ill"}, others=0, encoder="hf:stub")),
    "a damaged image": (plain(), images("ill/x.png", b"not an image")),
    "an image outside of the folders of classes": (plain(), images("x.png", b"")),
    "an image of an unknown class": (plain(), images("dead/x.png", b"")),
    "a single image": (plain(), images("ill/x.png", b"", others=0)),
    "a folder that looks like splits": (plain(), images("train/ill/x.png", b"", others=0)),
    "a first row that is not finite": (plain(), precomputed),
    "a class with few rows": (plain(), npz([0.5, 0.5], start=19), STRICT),
    "too few rows for a matrix": (plain(), npz([0.5, 0.5], start=6), STRICT),
}


@pytest.fixture
def stub(monkeypatch):
    """Encoders of texts and images that need no weights."""
    load, kinds = package.encoders.load, {"hf:stub": "text", "torchvision:stub": "image"}
    monkeypatch.setattr(
        package.encoders, "load", lambda spec, *a, **o: Stub(kinds[spec]) if spec in kinds else load(spec, *a, **o)
    )


def make_site(folder, case, kind, is_there):
    recipe, write, policy = (*CASES[case], "")[:3]
    min_cohort = 5 if policy else KINDS[kind].min_cohort
    recipe = replace(recipe, privacy=replace(KINDS[kind], min_cohort=min_cohort))
    folder.mkdir()
    recipe.save(folder / "recipe.toml")
    (folder / "policy.toml").write_text("any_peers = true\n" + policy)
    lines = {"name": "north", "folder": "keep", "policy": "policy.toml", "recipe": "recipe.toml"}
    lines |= write(folder, is_there)
    (folder / "site.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return Site.load(folder / "site.toml"), recipe


def reply_of(site, recipe):
    query = Letter({"recipe": recipe.to_toml(), "round": "0" * 32})
    return answer("join" if recipe.privacy.secure else "message", query, site, site.storage())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_one_row_more_or_less_never_changes_whether_a_site_answers(tmp_path, stub, case, kind):
    counts = []
    for is_there in (False, True):
        site, recipe = make_site(tmp_path / str(is_there), case, kind, is_there)
        reply = reply_of(site, recipe)
        assert reply.fields["status"] == ("joined" if recipe.privacy.secure else "sent"), reply.fields
        counts.append(site.count(recipe).moments.counts)
        if kind == "central":  # and the server takes it, and releases a total of it
            message = Message.from_bytes(reply.content, recipe)
            total = Total.from_bytes(Total.of([message], recipe).to_bytes())
            assert recipe.privacy.min_cohort > 1 or total.release().guarantee is not None
    assert np.abs(counts[1] - counts[0]).sum() <= 1, "what becomes of a row depends on that row alone"


@pytest.mark.parametrize("case", [case for case in CASES if len(CASES[case]) == 2 and "person" not in case])
def test_the_command_that_writes_messages_refuses_no_row_either(tmp_path, stub, case, monkeypatch):
    for is_there in (False, True):
        site, _ = make_site(tmp_path / str(is_there), case, "local", is_there)
        monkeypatch.chdir(tmp_path / str(is_there))
        options = ["--labels-are-numbers"] if site.labels_are_numbers else []
        source = [site.embeddings] if site.embeddings else ["--data", site.data, "--encoder", site.encoder]
        ghofl("moments", *source, *options, "-r", "recipe.toml", "--site", "north", "-o", "north.ghofl")


def test_sums_that_leave_the_64_bit_integers_stay_at_their_ends():
    """2⁶² per row: MomentsBuilder refuses the third, which would say how many rows there are."""
    layout = Layout(2, 1, ("D",), bound=2**31 - 1)
    rows, y = np.full((5, 1), layout.bound), np.zeros(5, dtype=np.int64)
    with pytest.raises(MomentsOverflowError):
        Moments.of(rows, y, layout)
    for sign in (1, -1):
        builder = CutBuilder(layout)
        for some in (slice(0, 3), slice(3, 5)):
            builder.add(sign * rows[some], y[some])
        found = builder.moments()
        assert found.counts.tolist() == [5, 0]
        assert found.sums.ravel().tolist() == [sign * 5 * layout.bound, 0]
        assert found.squares.ravel().tolist() == [2**63 - 1, 0]
    few = CutBuilder(layout)
    few.add(rows[:2], y[:2])
    assert few.moments() == Moments.of(rows[:2], y[:2], layout), "what fits is exact"


def test_rows_given_in_python_are_left_out_one_by_one():
    recipe = table_recipe(AGE, privacy=KINDS["local"])
    rows = {"age": [30, "old", 400, 50, 60], "state": ["ill", "ill", "well", "dead", None]}
    with pytest.warns(ClippingWarning, match="3 rows do not fit the recipe"):
        package.message(recipe, "north", rows, "state")


def test_the_administrator_sees_what_was_left_out_and_nobody_else_does(tmp_path, stub, monkeypatch):
    site, recipe = make_site(tmp_path / "site", "a label not in the list", "local", True)
    assert "dead" not in str(reply_of(site, recipe).fields)
    monkeypatch.chdir(tmp_path / "site")
    told = " ".join(ghofl("flower", "check", "site.toml", "-r", "recipe.toml").split())
    assert f"1 rows are not in it, beside {ROWS} that are" in told
    assert "never decide whether it leaves" in told
    assert json.loads(ghofl("flower", "check", "site.toml", "-r", "recipe.toml", "--json", "-"))["left_out"] == 1


def test_clipped_entries_do_not_advise_against_sending_under_an_epsilon(tmp_path, stub, monkeypatch):
    _ = make_site(tmp_path / "site", "an embedding beyond the grid", "local", True)
    monkeypatch.chdir(tmp_path / "site")
    assert "Do not send" not in ghofl("moments", "rows.npz", "-r", "recipe.toml", "-o", "north.ghofl")
    assert "should not be sent" not in ghofl("flower", "check", "site.toml", "-r", "recipe.toml")


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_does_not_answer_any_recipe_under_an_epsilon(tmp_path, stub, kind):
    """An exact median was found in 89 questions, each with another range of a column."""
    site, recipe = make_site(tmp_path / "site", "a label not in the list", kind, False)
    (tmp_path / "site" / "policy.toml").write_text("any_peers = true\nany_recipe = true\n")
    site = replace(site, recipe="")
    assert "any_recipe answers every recipe" in reply_of(site, recipe).fields["why"]
    (tmp_path / "site" / "policy.toml").write_text("any_peers = true\nany_recipe = true\nconfirm = true\n")
    assert "any_recipe" not in reply_of(site, recipe).fields["why"], "it asks for an approval"
    for budget in (
        {"epsilon": 1.0, "delta": 1e-5, "noise": (recipe.privacy.noise,)},
        {"max_epsilon": 1.0, "max_delta": 1e-5},
    ):
        with pytest.raises(SiteError, match="any_recipe answers every recipe"):
            Policy(any_recipe=True, **budget)
    with pytest.raises(PolicyError, match="any_recipe"):
        Policy(any_recipe=True).check_agreed(recipe)


# What decides about each `raise` on the way of rows to an answer, by module and function, and how many there are.
#   public   recipe, site file, policy or code decide: no row does
#   file     the form of a file as a whole: missing, damaged, without a column (docs/threat-model.md, "What remains")
#   spared   a row decides, and not under an epsilon: `CASES` has it
#   caught   it is caught where rows are read, and the row is left out
#   person   somebody at the site reads it, and no server does
#   server   about what others sent; what an honest site sends passes, whatever its rows
RAISES = {
    "recipe/labels": {
        "labels_of": ("spared", 4), "classes_of": ("person", 1), "class_numbers": ("spared", 1),
        "check_present": ("spared", 1), "_names": ("spared", 2),
    },
    "encoders/__init__": {"load": ("public", 2), "_check_options": ("public", 1), "spec_for": ("public", 1)},
    "encoders/from_table": {
        "TableEncoder.encode": ("person", 2), "TableEncoder.embed": ("file", 1), "_numbers.number": ("caught", 2),
        "_answers.answer": ("caught", 1), "_check_unit": ("spared", 1),
    },
    "encoders/given": {
        "embeddings_of": ("person", 1), "columns_of": ("person", 1), "column_of": ("person", 1), "_encode_table": ("spared", 1),
        "_array": ("person", 1), "_matrix": ("person", 1),
    },
    "rows/base": {
        "of_texts.read": ("caught", 2), "bytes_of": ("caught", 2), "of_rows": ("file", 1),
        "of_rows.read": ("caught", 1), "Samples.labelled.read": ("spared", 1),
    },
    "encoders/embed": {"_encode": ("spared", 1), "_check_bad": ("spared", 1), "_class_numbers": ("file", 1)},
    "encoders/from_schema": {
        "rows_for": ("public", 1), "check_encoder": ("public", 1), "encode_blocks": ("spared", 1),
        "columns_of": ("file", 2), "labels_of": ("spared", 2),
    },
    "rows/huggingface": {
        "from_hub": ("file", 1), "from_disk": ("file", 3), "_samples": ("file", 1), "_samples.data": ("caught", 1),
        "_library": ("public", 1),
    },
    "rows/images": {
        "decode": ("caught", 2), "bad_sample": ("caught", 1), "pixels_of": ("caught", 3), "as_bytes": ("caught", 4),
    },
    "rows/loading": {
        "load_samples": ("spared", 2), "_folder": ("file", 3), "_images": ("spared", 2), "_check_split": ("spared", 1),
        "_file": ("public", 3), "samples_in": ("file", 1), "Columns.__post_init__": ("public", 1),
    },
    "rows/embeddings": {
        "load_rows": ("spared", 3), "open_rows": ("file", 2), "_row_file": ("file", 4), "_blocks": ("spared", 3),
        "suffix_in": ("file", 1),
    },
    "rows/from_arrays": {
        "open_arrays": ("file", 1), "_member.take": ("file", 2), "_header": ("file", 2), "damage_as": ("file", 3),
    },
    "rows/from_arrow": {"open_arrow": ("file", 2), "_opened": ("file", 1), "_values": ("file", 1)},
    "rows/from_text": {"_lines": ("file", 1), "_delimited": ("file", 4), "_json_lines": ("file", 2)},
    "rows/reader": {"number_of": ("caught", 1), "name_array": ("spared", 1), "labels_in": ("spared", 1)},
    "rows/tables": {"read_labels": ("file", 1), "open_table": ("file", 1)},
    "features/features": {"check_width": ("file", 1), "check_rows": ("spared", 1)},
    "features/radius": {"grid_radius": ("public", 1), "check_radius": ("public", 1), "_check_squares": ("public", 1)},
    "moments/builder": {
        "BlockBuilder.__init__": ("public", 1), "BlockBuilder.add": ("public", 1), "BlockBuilder._check_room": ("spared", 1),
        "check_rows": ("spared", 6),
    },
    "moments/moments": {
        "Moments.restrict": ("public", 2), "Moments.check_has": ("public", 1), "Moments._check_sum": ("spared", 2),
    },
    "privacy/plan": {
        "noise_plan": ("public", 1), "add_noise": ("public", 1), "_scales": ("public", 1),
        "_check_sigmas": ("public", 1),
    },
    "privacy/release": {},
    "privacy/rounding": {"restore": ("public", 1), "_check_shifts": ("public", 2)},
    "custody/disclosure": {"Disclosure.__post_init__": ("public", 2), "_check": ("spared", 1)},
    "outbox/counting": {"Counted.__add__": ("public", 1)},
    "custody/custody": {
        "Custody.pack": ("spared", 1), "Custody.parcel_to_send": ("public", 1), "Custody.check_not_declined": ("public", 1),
        "Custody.record_evaluation": ("person", 2),
    },
    "custody/inspection": {
        "rows_now": ("spared", 1), "reopen": ("person", 1), "approve": ("person", 1), "_check_shown": ("person", 1),
        "Decision.heeding_ctrl_c.stop": ("person", 1),
    },
    "outbox/parcel": {"Parcel.from_files": ("file", 1)},
    "custody/policy": {
        "Policy.__post_init__": ("public", 11), "Policy.check_recipe": ("public", 6), "Policy.check_agreed": ("public", 2),
        "Policy._check_hand_out": ("public", 1),
        "Policy.check_moments": ("spared", 1), "Policy.peer_keys": ("public", 1), "load_peers": ("public", 2),
    },
    "outbox/site_rows": {
        "limit_persons": ("public", 1), "load_persons": ("spared", 4), "rows_per_person": ("public", 2),
        "check_persons": ("public", 1), "load_encodable": ("public", 1),
    },
    "wire/message": {
        "Message.of": ("public", 2), "message_bytes": ("server", 1), "check_not_secure": ("public", 1),
        "check_row_count": ("spared", 1), "check_header": ("server", 3),
    },
    "wire/plausible": {
        "check_rows": ("spared", 1), "check_possible": ("server", 1), "_check_scatters.check": ("spared", 1),
        "_check_entries": ("server", 2), "_check_squares": ("spared", 1), "_check_large": ("spared", 1),
        "_check_lengths": ("spared", 1), "_check_within": ("server", 1),
    },
}  # fmt: skip


def raises_in(node, where=()):
    """How many times each function of a module raises, by its name."""
    found: dict[str, int] = {}
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        for name, count in raises_in(child, (*where, child.name) if is_named else where).items():
            found[name] = found.get(name, 0) + count
        if isinstance(child, ast.Raise) and child.exc is not None:
            found[".".join(where)] = found.get(".".join(where), 0) + 1
    return found


@pytest.mark.parametrize("module", RAISES)
def test_every_refusal_on_the_way_of_rows_has_been_looked_at(module):
    """A new `raise` here needs a line in RAISES, and a case in CASES where a row decides about it."""
    source = Path(package.__file__).parent / f"{module}.py"
    assert raises_in(ast.parse(source.read_text(encoding="utf-8"))) == {f: n for f, (_, n) in RAISES[module].items()}
