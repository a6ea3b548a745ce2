"""Exported encoders: the same rows, the same fingerprint, and a seal that damage breaks."""

import json
import sys

import numpy as np
import pytest

from deadlines import run
from ghofl import encoders
from ghofl.encoders import Runtime
from ghofl.encoders.export import export, seal
from ghofl.encoders.onnx_file import HEADER, Description, description_of, seal_of
from ghofl.errors import EncoderError

TEXTS = ["the cat sat", "a dog ran on the very long road far away home", "cat"]


def rows(encoder, batch):
    return next(iter(encoder.encode([batch])))


@pytest.fixture(scope="module")
def original(weights):
    return encoders.load("torchvision:resnet18", weights=weights["resnet18"])


@pytest.fixture(scope="module")
def file(original, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "resnet18.onnx"
    assert export(original, path) < 1e-4
    return path


def test_an_exported_image_encoder_gives_the_same_rows_under_the_same_fingerprint(original, file, images):
    exported = encoders.load(f"onnx:{file}")
    expected = rows(original, images)
    assert np.abs(rows(exported, images) - expected).max() < 1e-3
    assert exported.fingerprint == original.fingerprint
    assert (exported.dim, exported.kind, exported.name) == (512, "image", "onnx:resnet18.onnx")
    assert rows(exported, images[:1] * 7).shape == (7, 512)


def test_rows_are_the_same_to_the_bit_however_many_cores_make_them(file, images, monkeypatch):
    batch, found = images * 5, []
    for count in (1, 3):
        monkeypatch.setattr("ghofl.encoders.from_onnx.cores", lambda count=count: count)
        found.append(rows(encoders.load(f"onnx:{file}"), batch))
    assert np.array_equal(*found)


def test_an_exported_text_encoder_carries_its_tokenizer(language_model, tmp_path):
    original = encoders.load(f"hf:{language_model}", pooling="cls")
    export(original, tmp_path / "text.onnx")
    exported = encoders.load(f"onnx:{tmp_path / 'text.onnx'}")
    assert np.abs(rows(exported, TEXTS) - rows(original, TEXTS)).max() < 1e-4
    assert exported.fingerprint == original.fingerprint


def test_an_onnx_site_needs_no_torch(file):
    code = (
        "import sys\nimport numpy as np\nfrom ghofl import encoders\n"
        f"e = encoders.load('onnx:{file}')\nprint(next(e.encode([[np.zeros((9, 9, 3), np.uint8)]])).shape)\n"
        "print(sorted({'torch', 'torchvision', 'transformers', 'onnx'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code).stdout.split("\n")[:2] == ["(1, 512)", "[]"]


def test_onnx_s_own_checker_reads_the_file_and_its_description(file):
    import onnx

    model = onnx.load(file)
    onnx.checker.check_model(model)
    assert [entry.key for entry in model.metadata_props][-2:] == ["ghofl", "ghofl.seal"]


@pytest.mark.parametrize("at", [1000, -3000, -400, -70])
def test_a_changed_byte_is_found(file, tmp_path, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    (tmp_path / "changed.onnx").write_bytes(data)
    with pytest.raises(EncoderError, match="damaged|changed|not an ONNX file"):
        encoders.load(f"onnx:{tmp_path / 'changed.onnx'}")


def test_a_file_written_again_by_another_tool_is_not_believed(file, tmp_path):
    import onnx

    model = onnx.load(file)
    model.producer_name = "someone else"
    model.metadata_props.add(key="zz", value="more")
    onnx.save(model, tmp_path / "again.onnx")
    with pytest.raises(EncoderError, match="was changed after 'ghofl export' wrote it; export it again"):
        encoders.load(f"onnx:{tmp_path / 'again.onnx'}")


def test_a_description_comes_back_whatever_its_length(tmp_path):
    """A length is written as bytes before the JSON, and one of 123 is a brace."""
    for length in (*range(1, 300), *range(15_600, 15_800), 40_000):
        description = Description("a" * length + "Σ", 3, "f" * 64, "text", tokenizer="{}", longest=8)
        assert description_of(seal(b"network", description), tmp_path) == description
    assert description_of(b"network", tmp_path) is None
    assert description_of(b"", tmp_path) is None


def test_a_foreign_network_is_taken_under_the_fingerprint_of_its_file(tmp_path, images):
    from onnx import TensorProto, helper, save

    def write(value, shape=("n", 3, 8, 8)):
        nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("axes", TensorProto.INT64, [1], [value])],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        save(model, tmp_path / "f.onnx")
        return encoders.load(f"onnx:{tmp_path / 'f.onnx'}")

    one, other = write(2), write(3)
    assert one.dim == 3 * 8
    planes = one.preprocessing.planes(images[0][None])
    assert np.allclose(rows(one, images[:1]), planes.mean(axis=2).reshape(1, -1), atol=1e-5)
    assert one.fingerprint != other.fingerprint
    with pytest.raises(EncoderError, match=r"expected one input \(n, 3, size, size\)"):
        write(1, ("n", 5))


@pytest.mark.parametrize("described", [{}, {"name": "a"}, {"kind": "image", "name": "a", "dim": 3, "fingerprint": "f"}])
def test_a_sealed_description_that_says_too_little_is_refused(described, tmp_path):
    network, entry = b"network", json.dumps(described).encode()
    body = network + entry
    data = body + HEADER + seal_of(body, f"{len(network):016x}").encode()
    with pytest.raises(EncoderError, match="has a description that cannot be read .*; export it again"):
        description_of(data, tmp_path)


def test_weights_in_a_file_of_their_own_are_refused(tmp_path, monkeypatch):
    """The checksum and the fingerprint cover one file: other weights beside it would pass under the same fingerprint."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((1, 3, 8, 8), np.float32), "w")
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 8, 8])] for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", inputs, outputs, [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "one.onnx")
    assert encoders.load("onnx:one.onnx").dim == 3 * 8 * 8
    onnx.save(model, "two.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    with pytest.raises(EncoderError, match=r"not an ONNX file that ONNX Runtime can run \(.*[Ee]xternal data"):
        encoders.load("onnx:two.onnx")


def test_what_cannot_be_run_or_exported_is_refused(file, tmp_path, original, monkeypatch):
    (tmp_path / "bad.onnx").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match="not an ONNX file that ONNX Runtime can run"):
        encoders.load(f"onnx:{tmp_path / 'bad.onnx'}")
    with pytest.raises(FileNotFoundError):
        encoders.load("onnx:missing.onnx")
    with pytest.raises(EncoderError, match="leave out `precision` bf16"):
        encoders.load(f"onnx:{file}", Runtime(precision="bf16"))
    with pytest.raises(EncoderError, match="ONNX Runtime has no device 'cuda' here"):
        encoders.load(f"onnx:{file}", Runtime(device="cuda"))
    with pytest.raises(EncoderError, match="is not a torch encoder"):
        export(encoders.load(f"onnx:{file}"), tmp_path / "x.onnx")
    monkeypatch.setattr("ghofl.encoders.export.LARGEST_DIFFERENCE", -1.0)
    with pytest.raises(EncoderError, match="the file was not written"):
        export(original, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()
