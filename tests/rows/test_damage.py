"""Files that are small and become large, and files that are damaged, by the sentence that refuses them."""

import base64
import io
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pyarrow import parquet

from federations import recipe_of
from ghofl.errors import DatasetError, EmbeddingsError, FederationError, SiteError
from ghofl.federation.round import Options, Round
from ghofl.mail.round_folder import RoundFolder
from ghofl.outbox.site_rows import load_persons
from ghofl.planning.public_files import load_anchor
from ghofl.recipe import Privacy
from ghofl.rows import from_arrow, reader, tables
from ghofl.rows.embeddings import load_rows, open_rows
from ghofl.secure.node_keys import load_public_key

ARCHIVE_READERS = {
    "rows": load_rows,
    "blocks": lambda path: _blocks(path),
    "persons": lambda path: load_persons(path, "x", "", 20),
    "anchor": lambda path: load_anchor(str(path)),
}


@pytest.mark.parametrize("member", ["x", "x.npy"])
@pytest.mark.parametrize("read", ARCHIVE_READERS.values(), ids=ARCHIVE_READERS)
def test_a_member_of_an_archive_that_is_not_an_array_is_refused(read, member, tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, "hello")
        archive.writestr(member.replace("x", "anchor", 1), "hello")
    with pytest.raises(EmbeddingsError, match=r"is not an \.npz of plain arrays|has no|holds"):
        read(path)


def _blocks(path, size=7):
    with open_rows(path, size) as file:
        return [x for x, _, _ in file.blocks]


def repeated(values, rows):
    """A column in which texts are listed once, and rows have their numbers."""
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % len(values), pa.int32()), pa.array(values))


def test_a_text_that_many_rows_have_is_kept_once(tmp_path):
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"text": repeated(["x" * 60_000], 5_000), "n": pa.array(range(5_000))}), path)
    assert path.stat().st_size < 100_000
    read = tables.read_table(path)
    assert read["n"] == list(range(5_000))
    assert len(read["text"]) == 5_000
    assert len({id(text) for text in read["text"]}) == 1


def test_a_cell_that_is_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(from_arrow, "LONGEST_CELL", 10)
    parquet.write_table(pa.table({"text": ["short", "much too long"]}), tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match=r"column 'text' has a cell of 13 bytes, and at most 10 are read"):
        tables.read_table(tmp_path / "x.parquet")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_labels_that_would_fill_the_memory_are_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MOST_NAMES", 4 * 50 * 20)
    path, labels = tmp_path / f"x.{kind}", ["l" * 51, *["a"] * 19]
    table = {"text": ["t"] * 20, "label": labels}
    if kind == "parquet":
        parquet.write_table(pa.table(table), path)
    else:
        path.write_text("text,label\n" + "".join(f"t,{label}\n" for label in labels))
    with pytest.raises(DatasetError, match="the longest of 20 names has 51 characters"):
        tables.read_labels(tables.read_table(path), "", path)


def test_rows_of_many_equal_numbers_are_decoded_a_few_at_a_time(tmp_path, monkeypatch):
    path, x = tmp_path / "x.parquet", np.zeros((512, 100))
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 100)
    parquet.write_table(pa.table({"embedding": column, "label": repeated(["a", "b"], 512)}), path)
    assert path.stat().st_size < x.nbytes / 50
    monkeypatch.setattr(from_arrow, "BATCH_BYTES", 16 * 100 * 8)
    assert max(map(len, _blocks(path, 512))) == 16
    rows = load_rows(path)
    assert np.array_equal(rows.x, x)
    assert rows.y.tolist() == ["a", "b"] * 256


def archive(write=np.savez, **arrays):
    out = io.BytesIO()
    write(out, **(arrays or {"x": np.arange(60.0).reshape(20, 3), "y": np.arange(20), "anchor": np.zeros(3)}))
    return bytearray(out.getvalue())


def _with(data, change):
    change(data)
    return bytes(data)


def _version(data):
    """Every member needs another version of zip, in its own header and in the directory."""
    for mark, place in ((b"PK\x03\x04", 4), (b"PK\x01\x02", 6)):
        at = data.find(mark)
        while at >= 0:
            data[at + place] = 99
            at = data.find(mark, at + 1)


def _flag(bit):
    def change(data):
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = data.find(mark)
            while at >= 0:
                data[at + place] |= bit
                at = data.find(mark, at + 1)

    return change


def _deflated(data):
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as file:
        starts = [info.header_offset for info in file.infolist()]
    for start in starts:
        begin = start + 30 + int.from_bytes(data[start + 26 : start + 28], "little")
        begin += int.from_bytes(data[start + 28 : start + 30], "little")
        data[begin : begin + 8] = b"\xff" * 8


DAMAGE = {
    "a compressed member": _with(archive(np.savez_compressed), _deflated),
    "another version of zip": _with(archive(), _version),
    "an encrypted archive": _with(archive(), _flag(1)),
    "strong encryption": _with(archive(), _flag(64)),
    "a header that is not closed": bytes(archive()).replace(b"}", b"{"),
    "a place before the start": _with(archive(), lambda data: data.__setitem__(slice(-6, -2), b"\xff\xff\xff\x7f")),
}


@pytest.mark.parametrize("reader", ARCHIVE_READERS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_archive_is_refused_by_everything_that_reads_it(damage, reader, tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(DAMAGE[damage])
    with pytest.raises(EmbeddingsError, match=r"x\.npz"):
        ARCHIVE_READERS[reader](path)


@pytest.mark.parametrize("reader", ARCHIVE_READERS)
def test_a_file_that_is_not_there_is_not_called_damaged(reader, tmp_path):
    with pytest.raises((FileNotFoundError, EmbeddingsError)) as told:
        ARCHIVE_READERS[reader](tmp_path / "x.npz")
    assert "damaged" not in str(told.value)


def test_what_goes_wrong_with_a_block_outside_the_reader_is_not_called_damage(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(archive())

    def use():
        with open_rows(path, 7) as file:
            raise ValueError(f"mine: {len(next(file.blocks)[0])}")

    with pytest.raises(ValueError, match="mine: 7"):
        use()


def test_a_compressed_point_of_a_key_is_refused():
    key = ec.derive_private_key(12345, ec.SECP384R1()).public_key()
    parts = (b"ecdsa-sha2-nistp384", b"nistp384", key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint))
    content = base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts))
    with pytest.raises(SiteError, match="peers: not a public key"):
        load_public_key(parts[0] + b" " + content, "peers")


BROKEN = [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("content", [*BROKEN, b"{}", b'{"round": 1, "options": {"x": 1}}'], ids=range(8))
def test_a_damaged_state_of_a_round_is_named(content, tmp_path):
    RoundFolder.open(tmp_path / "r", recipe_of(privacy=Privacy(secure=True)), Options())
    (tmp_path / "r" / "round.json").write_bytes(content)
    with pytest.raises(FederationError, match=r"round.json is damaged; restore it"):
        Round(tmp_path / "r")


@pytest.mark.parametrize("content", BROKEN, ids=range(6))
def test_a_damaged_list_of_who_joined_is_named(content, tmp_path):
    opened = RoundFolder.open(tmp_path / "r", recipe_of(privacy=Privacy(secure=True)), Options())
    (tmp_path / "r" / "joined.json").write_bytes(content)
    with pytest.raises(FederationError, match=r"joined.json is damaged; restore it"):
        opened.take([])
