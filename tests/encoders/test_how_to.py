"""The page on photos, texts and embedding is run line by line."""

import http.client
import json
import re
import shlex
import shutil
import sys
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_cli import ghofl

from deadlines import Process
from ghofl import Recipe, cli
from pages import DOCS, ROOT, blocks, lines_of, run_lines, unrolled

PAGE = DOCS / "how-to-embed.md"


def _photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(6):
        kind = folder / ("cat", "dog")[i % 2]
        kind.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(32, 32, 3)).astype(np.uint8)).save(kind / f"{i}.png")


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_walk_throughs_of_embedding_and_photos_run_line_by_line(
    checkpoint, language_model, tmp_path, monkeypatch, capsys
):
    """A line that ends in `# refused: TEXT` must fail, and say TEXT."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.console.err, "width", 1000, raising=False)
    shutil.copy(checkpoint, "mobilenet_v2.safetensors")
    shutil.copytree(language_model, "minilm")
    _photos(tmp_path / "photos")
    shutil.copytree("photos", "photos-with-a-broken-one")
    (tmp_path / "photos-with-a-broken-one" / "dog" / "broken.png").write_bytes(b"broken")
    (tmp_path / "letters.csv").write_text("text,label\nthe cat sat,cat\na dog ran,dog\n")
    lines = lines_of(PAGE, "Embed once, use often")
    assert len(lines) == 16
    for line in lines:
        command, _, refusal = line.partition("# refused: ")
        said = ghofl(*shlex.split(command)[1:], code=2 if refusal else 0) + capsys.readouterr().err
        assert refusal in " ".join(said.split()), f"{command} said {said}"
    _photos_page(lines, tmp_path / "photos-page", monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_walk_through_of_texts_runs_line_by_line(language_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(language_model, "minilm")
    Path("letters.csv").write_text("text,label\n" + "the cat sat,question\na dog ran,complaint\na cat,question\n" * 3)
    Path("new.csv").write_text("number,text\nA-1,the dog sat\nA-2,a cat\n")
    lines = lines_of(PAGE, "Texts")
    assert len(lines) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a network with random weights, and of few rows
        # Rows of unit length have larger entries in the few dimensions of this network.
        run_lines(line.replace("--scale 400", "--scale 200") for line in lines)
    assert "A-2" in Path("labels.csv").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_six_commands_lead_from_a_clone_to_answers_over_http(checkpoint, tmp_path, monkeypatch):
    """But for the first, which installs. A photo as the body and as a form gets the label that `predict` gives it."""
    pytest.importorskip("python_multipart")
    monkeypatch.chdir(tmp_path)
    for site in ("north", "south", "east"):
        _photos(tmp_path / site)
    walk = blocks(PAGE, "sh", "Six commands from a clone to a service")[0].splitlines()
    assert len(walk) == 6
    assert walk[0].startswith("pip install '.[")
    lines = [line for each in walk[1:-1] for line in unrolled(each)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few rows and of a network with random weights
        scale = _scale_of(checkpoint)
        given = f"--weights {checkpoint}"
        run_lines(re.sub("v2 |(?=--data)", rf"\g<0>{given} ", line.replace("--scale 20", scale)) for line in lines)
        run_lines([f"ghofl predict head.safetensors north {given} -o labels.jsonl"])
    told = [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()]
    python, script, file, _ = shlex.split(walk[-1])
    assert python == "python"
    with Process(sys.executable, ROOT / script, file, "0") as server:  # a free port instead of the page's
        port = int(server.says(r"running on http://127\.0\.0\.1:(\d+)")[1])
        for one in told[:2]:
            photo = Path("north", one["file"]).read_bytes()
            for body, kind in ((photo, "application/x-www-form-urlencoded"), _form(photo)):  # the first is curl's habit
                status, answer = _asked(port, body, kind)
                assert (status, answer["label"]) == (200, one["label"])
                assert answer["probabilities"][one["label"]] == pytest.approx(one["probability"], abs=0.01)
        for body, kind in ((photo[:300], "image/png"), (b"", ""), _form(photo, "other")):
            status, answer = _asked(port, body, kind)
            assert (status, "is not an image that can be read" in answer["detail"]) == (422, True)


def _asked(port: int, body: bytes, kind: str) -> tuple[int, dict]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(link):
        link.request("POST", "/predict", body, {"content-type": kind})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())


def _form(photo: bytes, field: str = "photo") -> tuple[bytes, str]:
    """The body of a form with one file, and its content type."""
    head = f'--edge\r\ncontent-disposition: form-data; name="{field}"; filename="a.png"\r\n\r\n'
    return head.encode() + photo + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"


def _scale_of(checkpoint: Path) -> str:
    """The scale for rows of random weights, which are other than those of trained ones."""
    network = ("--encoder", "torchvision:mobilenet_v2", "--weights", checkpoint)
    ghofl("embed", *network, "--data", "north", "-o", "x.npz")
    ghofl("recipe", "x.toml", "--embeddings", "x.npz", "--statistics", "B")
    return f"--scale {Recipe.load('x.toml').grid.scale}"


def _photos_page(done: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the part on photos, but for one that was run before: the export of the network.

    Its weights are random here, so the scale of its rows is that of the recipe which the other part fitted to them.
    """
    lines = lines_of(PAGE, "Photos")
    assert len(lines) == 6
    assert len([line for line in lines if line in done]) == 1
    scale = f"--scale {Recipe.load('recipe.toml').grid.scale}"
    for name in ("photos", "new-photos"):
        shutil.copytree("photos", folder / name)
    shutil.copy("mobilenet_v2.onnx", folder)
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run_lines(line.replace("--scale 20", scale) for line in lines if line not in done)
    assert Path("labels.csv").read_text().count(".png") == 6
