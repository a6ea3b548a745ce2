import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from federations import blobs
from ghofl.cli import app, console

COMMANDS = [
    "demo", "recipe", "export-encoder", "embed", "moments", "sum", "subtract", "release", "head", "evaluate",
    "select", "predict", "simulate", "inspect", "audit",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two sites' embeddings and a test set, as the current directory."""
    monkeypatch.chdir(tmp_path)
    x, y = blobs(np.random.default_rng(0), rows=400, spread=8.0)
    np.savez("north.npz", x=x[:150], y=y[:150])
    np.savez("south.npz", x=x[150:300], y=y[150:300])
    np.savez("test.npz", x=x[300:], y=y[300:])
    np.savez("all.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
    return tmp_path


def ghofl(*arguments, code=0):
    """Run a command as `main` does, in this process, and return what it wrote to standard output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ghofl", *map(str, arguments)])
        runner = CliRunner()

        def run(arguments):
            return runner.invoke(app, arguments)

        result = run([str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        with pytest.raises(SystemExit) as caught, console.handled():
            raise result.exception
        result.exit_code = caught.value.code
    assert result.exit_code == code, result.output
    return result.output


def process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "ghofl", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def federation(*extra):
    ghofl("recipe", "recipe.toml", "--from-embeddings", "north.npz", "--classes", "4", "--statistics", "S", *extra)
    for site in ("north", "south"):
        ghofl("moments", f"{site}.npz", "-r", "recipe.toml", "--site", site, "-o", f"{site}.ghofl")
    ghofl("sum", "north.ghofl", "south.ghofl", "-r", "recipe.toml", "-o", "total.ghofl")


def test_a_site_and_a_server_do_the_whole_job_with_files(folder):
    federation()
    ghofl("head", "total.ghofl", "--head", "rda(blend=0.5)", "-o", "rda.safetensors")
    result = json.loads(ghofl("evaluate", "rda.safetensors", "test.npz", "--json", "-"))
    assert result["accuracy"] > 0.9
    assert sum(map(sum, result["confusion"])) == 100
    ghofl("predict", "rda.safetensors", "test.npz", "-o", "predictions.csv")
    lines = (folder / "predictions.csv").read_text().splitlines()
    assert lines[0] == "row,label,probability"
    labels = [int(line.split(",")[1]) for line in lines[1:]]
    assert np.mean(labels == np.load("test.npz")["y"]) == result["accuracy"]
    assert not [p for p in os.listdir() if p.endswith(".part")]


def test_sites_choose_between_heads_by_counts(folder):
    federation()
    for name in ("nearest_mean", "student"):
        ghofl("head", "total.ghofl", "--head", name, "-o", f"{name}.safetensors")
        for site in ("north", "south"):
            report = f"{site}-{name}.json"
            ghofl("evaluate", f"{name}.safetensors", f"{site}.npz", "--site", site, "--json", report)
    result = json.loads(ghofl("select", *sorted(map(str, folder.glob("*-*.json"))), "--json", "-"))
    assert {found["head"] for found in result["heads"]} == {"student", "nearest_mean"}
    assert result["heads"][0]["accuracy"] >= result["heads"][1]["accuracy"] > 0.9
    assert result["heads"][0]["rows"] == 300
    assert result["heads"][0]["sites"] == ["north", "south"]


def test_a_budget_gives_a_recipe_and_its_reason(folder):
    text = ghofl("recipe", "small.toml", "--budget", "3kB", "--classes", 4, "--dim", 6, "--site-rows", 150)
    assert "Chosen for 3kB: head" in " ".join(text.split())
    arguments = ["--embeddings", "all.npz", "--clients", 3, "--budget", "10kB", "--heads", "best"]
    assert "Recipe for 10kB" in " ".join(
        process("simulate", *arguments, "--json", "out.json", cwd=folder).stderr.split()
    )
    simulated = json.loads((folder / "out.json").read_text())
    assert simulated["heads"]["best"]["payload_bytes"] < 10_000
    ghofl("recipe", "x.toml", "--budget", "many", "--classes", 4, "--dim", 6, code=2)


def test_unlearning_and_late_joining_with_files_are_exact(folder):
    federation()
    ghofl("sum", "north.ghofl", "-r", "recipe.toml", "-o", "only-north.ghofl")
    ghofl("subtract", "total.ghofl", "south.ghofl", "-o", "without-south.ghofl")
    assert (folder / "without-south.ghofl").read_bytes() == (folder / "only-north.ghofl").read_bytes()
    ghofl("sum", "south.ghofl", "--to", "only-north.ghofl", "-o", "late.ghofl")
    assert (folder / "late.ghofl").read_bytes() == (folder / "total.ghofl").read_bytes()


def test_inspect_knows_every_kind_of_file(folder, capsys):
    federation("--power", "0.5")
    ghofl("moments", "north.npz", "-r", "recipe.toml", "-o", "small.ghofl", "--zstd")
    ghofl("head", "total.ghofl", "-o", "lda.safetensors")
    kinds = {}
    for name in ("recipe.toml", "north.ghofl", "small.ghofl", "total.ghofl", "lda.safetensors"):
        kinds[name] = json.loads(ghofl("inspect", name, "--json", "-"))["kind"]
        assert name in ghofl("inspect", name)
    assert list(kinds.values()) == ["recipe", "message", "message", "total", "head"]
    checked = json.loads(ghofl("inspect", "small.ghofl", "-r", "recipe.toml", "--json", "-"))
    assert checked["rows"] == 150
    total = json.loads(ghofl("inspect", "total.ghofl", "--json", "-"))
    assert [site["site"] for site in total["roster"]] == ["north", "south"]
    ghofl("inspect", "north.npz", code=2)
    assert "not a ghofl file" in capsys.readouterr().err


def test_simulate_keeps_its_contract_with_scripts(folder):
    out = folder / "out.json"
    ghofl(
        "simulate", "--embeddings", "all.npz", "--clients", 7, "--alpha", 0.1, "--power", 0.5, "--sketch", 3,
        "--heads", "all", "--preset", "paper", "--seed", 3, "--json", out,
    )  # fmt: skip
    result = json.loads(out.read_text())
    assert {"total_sha256", "clients", "rows", "heads"} <= set(result)
    assert (result["clients"], result["rows"], len(result["total_sha256"])) == (7, 300, 64)
    assert len(result["heads"]) == 14
    for name, head in result["heads"].items():
        assert set(head) == {"accuracy", "payload_bytes", "fit_seconds", "ms_per_sample"}
        # The released FisherMix starts from random weights and has 320 steps here: it has not arrived anywhere yet.
        assert (0.0 if name == "fisher_mix" else 0.5) < head["accuracy"] <= 1.0
        assert head["payload_bytes"] > 100


@pytest.mark.parametrize(
    "split", [["--alpha", "0.05"], ["--classes-per-client", "1"], ["--classes-per-client", "2"], ["--iid"], []]
)
def test_the_total_of_a_simulation_does_not_depend_on_the_split(folder, split):
    arguments = ["simulate", "--embeddings", "all.npz", "--heads", "lda", "--json", "-"]
    one = json.loads(ghofl(*arguments, "--clients", 1))
    many = json.loads(ghofl(*arguments, "--clients", 20, *split, "--seed", 9))
    assert many["total_sha256"] == one["total_sha256"]
    assert many["heads"]["lda"]["accuracy"] == one["heads"]["lda"]["accuracy"]


@pytest.mark.parametrize("space", [["--project", "3"], ["--lift", "30"], ["--bits", "5"], ["--scale", "2.5"]])
def test_simulate_takes_every_space(folder, space):
    out = json.loads(ghofl("simulate", "--embeddings", "all.npz", "--clients", 3, *space, "--json", "-"))
    assert out["heads"]["lda"]["accuracy"] > 0.5


BAD = [
    (["moments", "missing.npz", "-r", "recipe.toml", "-o", "x"], "missing.npz: No such file"),
    (["moments", "north.npz", "-r", "missing.toml", "-o", "x"], "missing.toml: No such file"),
    (["moments", "north.npz", "-r", "north.npz", "-o", "x"], "not a text file"),
    (["moments", "all.npz", "-r", "recipe.toml", "--split", "dev", "-o", "x"], "expected an array x_dev"),
    (["moments", "wide.npz", "-r", "recipe.toml", "-o", "x"], "the recipe expects rows of 6"),
    (["moments", "nan.npz", "-r", "recipe.toml", "-o", "x"], "not finite"),
    (["moments", "label.npz", "-r", "recipe.toml", "-o", "x"], "label 17 of row 0"),
    (["moments", "north.npz", "-r", "recipe.toml", "-o", "no/such/folder/x"], "no/such/folder: No such folder"),
    (["moments", "north.npz", "-r", "recipe.toml", "-o", "north.ghofl"], "exists already"),
    (["sum", "north.ghofl", "north.ghofl", "-r", "recipe.toml", "-o", "x"], "already in the total"),
    (["sum", "north.npz", "-r", "recipe.toml", "-o", "x"], "north.npz: "),
    (["sum", "north.ghofl", "-r", "other.toml", "-o", "x"], "give this site that file"),
    (["sum", "north.ghofl", "-o", "x"], "either --recipe for a new total or --to"),
    (["subtract", "total.ghofl", "stranger.ghofl", "-o", "x"], "is not in this total"),
    (["subtract", "north.ghofl", "north.ghofl", "-o", "x"], "this file is a 'message'"),
    (["head", "total.ghofl", "--head", "svm", "-o", "x"], "head 'svm' is unknown"),
    (["head", "total.ghofl", "--head", "lda(shrinkage=7)", "-o", "x"], "shrinkage is 7"),
    (["head", "total.ghofl", "--preset", "best", "-o", "x"], "preset 'best' is unknown"),
    (["head", "north.ghofl", "-o", "x"], "a 'total' was expected"),
    (["evaluate", "total.ghofl", "test.npz"], "a 'head' was expected"),
    (["predict", "total.ghofl", "test.npz", "-o", "x"], "a 'head' was expected"),
    (["recipe", "x", "--dim", "4"], "no classes given"),
    (["recipe", "x", "--classes", "a,b"], "no dimension given"),
    (["recipe", "x", "--classes", "a,b", "--dim", "4", "--statistics", "Q"], "known are N, A, D, B, S"),
    (["recipe", "x", "--classes", "a,b", "--dim", "4", "--project", "9"], "goes to fewer"),
    (["recipe", "recipe.toml", "--classes", "a,b", "--dim", "4"], "exists already"),
    (["simulate", "--embeddings", "north.npz", "--clients", "2"], "expected an array x_train"),
    (["simulate", "--embeddings", "all.npz", "--clients", "0"], "0 clients"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--alpha", "-1"], "alpha is -1"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--alpha", "1", "--iid"], "one of --alpha"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--heads", "sketched_qda"], "needs --sketch"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--power", "0"], "transform.power is 0"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--scale", "0"], "grid.scale is 0"),
    (["simulate", "--embeddings", "all.npz", "--clients", "2", "--json", "no/x.json"], "make it first"),
    (["head", "total.ghofl", "--head", "low_rank_qda(rank=1.5)", "-o", "x"], "rank is 1.5"),
    (["head", "total.ghofl", "--head", "low_rank_qda(shrinkage=3)", "-o", "x"], "shrinkage is 3"),
    (["head", "total.ghofl", "--head", "nb(shrinkage=-3)", "-o", "x"], "shrinkage is -3"),
    (["head", "total.ghofl", "--head", "nb(floor=0)", "-o", "x"], "floor is 0"),
    (["head", "total.ghofl", "--head", "ridge(penalty=-1)", "-o", "x"], "penalty is -1"),
    (["inspect", "missing"], "No such file"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished federation with files to go wrong with."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("finished")
        patch.chdir(folder)
        x, y = blobs(np.random.default_rng(0), rows=400, spread=8.0)
        for name, rows in (("north", slice(150)), ("south", slice(150, 300)), ("test", slice(300, 400))):
            np.savez(f"{name}.npz", x=x[rows], y=y[rows])
        np.savez("all.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
        np.savez("wide.npz", x=np.zeros((2, 7)), y=np.zeros(2, int))
        np.savez("nan.npz", x=np.full((2, 6), np.nan), y=np.zeros(2, int))
        np.savez("label.npz", x=np.zeros((2, 6)), y=np.full(2, 17))
        federation()
        ghofl("recipe", "other.toml", "--classes", 4, "--dim", 6, "--scale", 3)
        ghofl("moments", "test.npz", "-r", "recipe.toml", "-o", "stranger.ghofl")
    return folder


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_ends_with_code_two_a_clear_text_and_no_new_file(finished, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(finished)
    monkeypatch.setattr(console.err, "width", 500, raising=False)
    before = sorted(os.listdir())
    output = ghofl(*arguments, code=2)
    text = " ".join((output + capsys.readouterr().err).replace("│", " ").split())
    assert says in text
    assert sorted(os.listdir()) == before


def test_force_replaces_a_file(folder):
    federation()
    ghofl("moments", "south.npz", "-r", "recipe.toml", "-o", "north.ghofl", "--force")
    assert json.loads(ghofl("inspect", "north.ghofl", "-r", "recipe.toml", "--json", "-"))["site"] == ""


def test_clipping_is_told_with_the_scale_to_use(folder):
    ghofl("recipe", "tight.toml", "--classes", 4, "--dim", 6, "--scale", 1000)
    done = process("moments", "north.npz", "-r", "tight.toml", "-o", "x.ghofl", cwd=folder)
    assert done.returncode == 0
    assert "Warning:" in done.stderr
    assert "grid.scale =" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    assert f"Example: ghofl {command}" in " ".join(ghofl(command, "--help").replace("│", " ").split())


@pytest.mark.slow
def test_the_program_is_installed_and_tells_its_version_and_errors():
    import ghofl as package

    assert process("--version").stdout.strip() == package.__version__
    failed = process("inspect", "no-such-file")
    assert failed.returncode == 2
    assert failed.stderr.startswith("Error: no-such-file: No such file or directory.")
    assert process("nonsense").returncode == 2


def _heeding_interrupts():
    """A shell's background jobs ignore Ctrl-C, and so would what tests start from one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_leaves_no_file(folder):
    x = np.random.default_rng(0).normal(size=(4000, 400)).astype(np.float32)
    y = np.arange(4000) % 50
    np.savez("large.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    before = sorted(os.listdir())
    arguments = ["simulate", "--embeddings", "large.npz", "--clients", "500", "--heads", "qda", "--json", "out.json"]
    running = subprocess.Popen(
        [sys.executable, "-m", "ghofl", *arguments], stderr=subprocess.PIPE, text=True,
        preexec_fn=_heeding_interrupts, env={**os.environ, "FORCE_COLOR": "1"},
    )  # fmt: skip
    with running:
        try:
            assert running.stderr is not None
            running.stderr.read(1)  # the progress bar has begun: it is at work
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130, err
    assert "Nothing was left half-written" in err
    assert sorted(os.listdir()) == before


def test_the_demo_shows_heads_invariance_and_unlearning():
    text = ghofl("demo")
    assert "sketched_qda" in text
    assert "exact unlearning" in text
    lines = [line for line in text.splitlines() if "│" in line]
    hashes = [line.split("│")[2].strip() for line in lines if line.split("│")[1].strip() in ("1", "10", "100")]
    assert len(hashes) == 3
    assert len(set(hashes)) == 1
