"""A service answers what the head says, within its limits, and repeats nothing of a wrong request."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
from fastapi.testclient import TestClient
from test_cli import ghofl

from exported_heads import CLASSES, DIM, RECIPE, classifier_of, rows
from ghofl.errors import HeadError, MessageError
from ghofl.export.exported import Exported
from ghofl.export.model import export_head
from ghofl.export.service import MOST_PIXELS, ServiceLimits, service


@pytest.fixture(scope="module")
def classifier():
    return classifier_of("rda", RECIPE, np.random.default_rng(5))


@pytest.fixture(scope="module")
def file(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "rda.onnx"
    path.write_bytes(export_head(classifier).SerializeToString())
    return path


@pytest.fixture(scope="module")
def client(file):
    return TestClient(service(Exported.load(file), reject=0.05, limits=ServiceLimits(samples=50, body=20_000)))


def test_predictions_are_the_head_s_own(client, classifier, rng):
    x = rows(rng, 40)[0]
    answer = client.post("/predict", json={"rows": x.tolist()}).json()
    expected = classifier.predict_proba(x)
    found = np.array([one["probabilities"] for one in answer["predictions"]])
    assert np.abs(found - expected).max() < 1e-7
    assert answer["classes"] == list(CLASSES)
    assert [one["probability"] for one in answer["predictions"]] == found.max(axis=1).tolist()
    is_novel = classifier.novelty(x) > classifier.novelty_threshold(0.05)
    labels = [None if new else CLASSES[c] for new, c in zip(is_novel, expected.argmax(axis=1), strict=True)]
    assert [one["label"] for one in answer["predictions"]] == labels
    assert answer["novelty_threshold"] == pytest.approx(classifier.novelty_threshold(0.05))


def test_a_sample_far_from_every_class_has_no_label_under_reject_and_one_without(client, file):
    far = {"rows": [[1000.0] * DIM]}
    assert client.post("/predict", json=far).json()["predictions"][0]["label"] is None
    plain = TestClient(service(Exported.load(file)))
    answer = plain.post("/predict", json=far).json()
    assert answer["predictions"][0]["label"] in CLASSES
    assert answer["novelty_threshold"] is None


def test_it_tells_its_health_its_model_and_its_own_description(client, classifier):
    assert client.get("/health").json() == {"status": "ok"}
    about = client.get("/model").json()
    assert about["recipe"] == classifier.recipe.fingerprint
    assert about["classes"] == list(CLASSES)
    assert about["takes"] == "rows"
    assert about["limits"] == {"samples": 50, "body": 20_000}
    assert "novelty_levels" not in about
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {"/predict", "/model", "/health"}
    assert described["components"]["schemas"]["Samples"]["properties"]["rows"]["maxItems"] == 50
    assert client.get("/docs").status_code == 200


SECRET = 987654.321
WRONG = {
    "too few numbers": ({"rows": [[1.0]]}, "body.rows.0: List should have at least 12 items"),
    "too many numbers": ({"rows": [[1.0] * 13]}, "body.rows.0: List should have at most 12 items"),
    "a text": ({"rows": [["a"] * DIM]}, "body.rows.0.0: Input should be a valid number"),
    "no rows": ({"rows": []}, "body.rows: List should have at least 1 item"),
    "too many rows": ({"rows": [[SECRET] * DIM] * 51}, "body.rows: List should have at most 50 items"),
    "another name": ({"images": []}, "body.rows: Field required"),
    "a key too many": ({"rows": [[1.0] * DIM], "model": "x"}, "body.model: Extra inputs are not permitted"),
    "a long key": ({"rows": [[1.0] * DIM], "k" * 9000: 1}, "Extra inputs are not permitted"),
    "a list": ([1.0], "Input should be a valid dictionary"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_told_what_is_wrong_and_nothing_is_repeated(client, case):
    sent, says = WRONG[case]
    refused = client.post("/predict", json=sent)
    assert refused.status_code == 422
    assert says in refused.json()["detail"]
    assert str(SECRET) not in refused.text
    assert len(refused.text) < 1000


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(client, number):
    text = '{"rows": [[' + ", ".join([number] * DIM) + "]]}"
    refused = client.post("/predict", content=text, headers={"content-type": "application/json"})
    assert refused.status_code == 422
    assert "finite number" in refused.json()["detail"]


def test_what_is_not_json_is_refused(client):
    refused = client.post("/predict", content=b"\xff\xfe{", headers={"content-type": "application/json"})
    assert refused.status_code in (400, 422)


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(client):
    large = json.dumps({"rows": [[SECRET] * DIM] * 400})
    assert client.post("/predict", content=large).status_code == 413

    def in_pieces():
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000].encode()

    refused = client.post("/predict", content=in_pieces(), headers={"content-type": "application/json"})
    assert refused.status_code == 413
    assert refused.json() == {"detail": "the body is larger than 20,000 bytes; send less at once."}


def test_two_requests_do_not_know_of_each_other(client, rng):
    x = rows(rng, 3)[0].tolist()
    first = client.post("/predict", json={"rows": x}).json()
    client.post("/predict", json={"rows": [[5.0] * DIM]})
    client.post("/predict", json={"rows": "wrong"})
    assert client.post("/predict", json={"rows": x}).json() == first


def test_a_file_that_export_did_not_write_or_that_was_tampered_with_is_refused(file, classifier, tmp_path):
    import onnx
    from onnx import helper

    model = onnx.load(file)
    for said in ("not json", "[]", json.dumps({"classes": ["a"]})):
        helper.set_model_props(model, {"ghofl.classifier": said})
        onnx.save(model, tmp_path / "changed.onnx")
        with pytest.raises(MessageError, match="metadata that cannot be read"):
            Exported.load(tmp_path / "changed.onnx")
    helper.set_model_props(model, {})
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(MessageError, match="was not written by 'ghofl export'"):
        Exported.load(tmp_path / "changed.onnx")


@pytest.mark.parametrize("said", [{"classes": 5}, {"dim": 1e400}, {"novelty_levels": [10**400]}, {"dim": []}])
def test_odd_metadata_is_refused_in_a_sentence(file, said, tmp_path):
    import onnx
    from onnx import helper

    model = onnx.load(file)
    about = json.loads({prop.key: prop.value for prop in model.metadata_props}["ghofl.classifier"])
    helper.set_model_props(model, {"ghofl.classifier": json.dumps(about | said)})
    onnx.save(model, tmp_path / "changed.onnx")
    with pytest.raises(MessageError, match="metadata that cannot be read"):
        Exported.load(tmp_path / "changed.onnx")


def _network(*, inputs=1, metadata=b"", output=(1, 3)):
    from onnx import TensorProto, helper

    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])][:inputs]
    value = helper.make_tensor("v", TensorProto.FLOAT, output, [0.0] * int(np.prod(output)))
    node = helper.make_node("Constant", [], ["y"], value=value)
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if metadata:
        helper.set_model_props(made, {"note": "x" * len(metadata)})
    return made.SerializeToString().replace(b"x" * len(metadata), metadata) if metadata else made.SerializeToString()


@pytest.mark.parametrize("read", ["export", "encoder"])
@pytest.mark.parametrize("network", [{"inputs": 0}, {"metadata": b"\xff" * 20}], ids=["no inputs", "metadata not text"])
def test_a_network_that_cannot_be_used_is_refused_in_a_sentence(network, read, tmp_path):
    from ghofl.encoders import Runtime, from_onnx
    from ghofl.errors import EncoderError

    (tmp_path / "x.onnx").write_bytes(_network(**network))
    load = Exported.load if read == "export" else lambda path: from_onnx.load(path, Runtime())
    with pytest.raises(EncoderError, match=r"x\.onnx is not an ONNX file that ONNX Runtime can run"):
        load(tmp_path / "x.onnx")


def test_rejecting_needs_a_head_that_can_tell(classifier, tmp_path):
    from dataclasses import replace

    path = tmp_path / "plain.onnx"
    path.write_bytes(export_head(replace(classifier, novelty_rule=None)).SerializeToString())
    with pytest.raises(HeadError, match="leave out --reject"):
        service(Exported.load(path), reject=0.05)
    answer = TestClient(service(Exported.load(path))).post("/predict", json={"rows": [[0.0] * DIM]}).json()
    assert answer["predictions"][0]["novelty"] is None


def test_a_sample_that_reaches_no_threshold_has_no_label(classifier, tmp_path):
    careful = classifier.with_thresholds(dict.fromkeys(classifier.recipe.classes, 1.0))
    (path := tmp_path / "careful.onnx").write_bytes(export_head(careful).SerializeToString())
    answer = TestClient(service(Exported.load(path))).post("/predict", json={"rows": [[0.0] * DIM]}).json()
    assert answer["predictions"][0]["label"] is None


def image_model() -> Exported:
    """A file that takes images, without its network: the mean of each colour is the answer."""

    def run(images):
        means = np.array([image.reshape(-1, 3).mean(axis=0) for image in images], dtype=np.float64)
        shares = means / means.sum(axis=1, keepdims=True)
        return [np.array(["red", "green", "blue"], dtype=object)[shares.argmax(axis=1)], shares, shares]

    return Exported("image", 3, ("red", "green", "blue"), {"head": "colours"}, None, run)


def png(shape, value) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.full((*shape, 3), value, dtype=np.uint8)).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_images_are_sent_in_base64_and_bad_ones_are_named(monkeypatch):
    client = TestClient(service(image_model()))
    sent = [png((4, 5), (200, 10, 10)), png((9, 3), (0, 0, 90))]
    answer = client.post("/predict", json={"images": sent}).json()
    assert [one["label"] for one in answer["predictions"]] == ["red", "blue"]
    for bad, says in (
        ("%%%", "image 1 is not base64"),
        (base64.b64encode(b"no image").decode(), "image 1 is not an image that can be read"),
    ):
        refused = client.post("/predict", json={"images": [sent[0], bad]})
        assert refused.status_code == 422
        assert says in refused.json()["detail"]
    monkeypatch.setattr("ghofl.export.service.MOST_PIXELS", 10)
    refused = client.post("/predict", json={"images": sent[:1]})
    assert "it has 20 pixels, and 10 are allowed" in refused.json()["detail"]
    assert MOST_PIXELS > 10


def test_images_of_a_request_are_held_one_at_a_time_however_small_their_files_are():
    import tracemalloc

    client, pixels = TestClient(service(image_model())), 1000 * 1000
    sent = {"images": [png((1000, 1000), (9, 200, 9))] * 20}
    assert len(json.dumps(sent)) < 2**20
    tracemalloc.start()
    try:
        answer = client.post("/predict", json=sent)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [one["label"] for one in answer.json()["predictions"]] == ["green"] * 20
    assert most < 10 * 3 * pixels


def test_a_port_that_is_taken_is_bad_input(file, capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ghofl("serve", file, "--port", port, code=2)
    assert "choose another --port" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_serves_until_ctrl_c(file):
    environment = {**os.environ, "COLUMNS": "300"}
    command = [sys.executable, "-m", "ghofl", "serve", str(file), "--port", "0", "--json", "-"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        url = json.loads(text)["url"]
        body = json.dumps({"rows": [[0.0] * DIM]}).encode()
        asked = urllib.request.Request(f"{url}/predict", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["predictions"][0]["label"] in CLASSES
            assert answer.headers.get("server") is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), "its normal end is not an error"


def test_a_service_that_ends_by_ctrl_c_says_so(file, capsys, monkeypatch):
    class Stopped:
        def run(self, sockets):
            raise KeyboardInterrupt

    monkeypatch.setattr("ghofl.web.server.server_of", lambda app: Stopped())
    assert ghofl("serve", file, "--port", 0).endswith("Stopped serving.\n")
    assert capsys.readouterr().err == ""
