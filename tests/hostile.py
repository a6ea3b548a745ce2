"""Bytes that somebody changed, by the hundred thousand: ``python tests/hostile.py 100000``.

A case is a real file or letter with a few bytes changed, cut or put in, or with a header rewritten by someone who knows
the format and the checksum. Whatever reads it either raises the library's own error, or gives something that is written
as the very bytes that came (for rewritten headers: something that survives being written and read again).
"""

import atexit
import base64
import copy
import io
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from safetensors.numpy import load, save

import golden_files
from exported_heads import RECIPE, classifier_of
from ghofl import Classifier, Message, Recipe, Total, secure
from ghofl.custody.site import Site
from ghofl.encoders import Runtime, from_onnx
from ghofl.errors import GhoflError
from ghofl.export.model import export_head
from ghofl.federation.round import Options, Round
from ghofl.outbox.site_rows import load_persons
from ghofl.planning.public_files import load_anchor
from ghofl.recipe import Privacy
from ghofl.rows.embeddings import load_rows, open_rows
from ghofl.rows.loading import load_samples
from ghofl.rows.tables import read_table
from ghofl.secure import client, messages, node_keys, server, wire
from ghofl.secure.rounds import Agreement, Participant
from ghofl.wire.envelope import Tensor, seal
from ghofl.wire.letter import Letter

GOLDEN = Path(__file__).parent / "golden"
VALUES = [
    None, True, -1, 0, 3, 2**63, 10**30, 0.5, 1e308, -0.0, "", "x", "\u202e", "0" * 64, [], [1], [[]], {}, {"a": 1},
    "../../etc/passwd", ["N"], "1e9", 1.5,
]  # fmt: skip


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes with one to three changes."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, length = int(rng.integers(len(out) + 1)), int(rng.integers(1, 9))
        kind = int(rng.integers(6))
        if kind == 0 and out:
            out[at % len(out)] ^= int(rng.integers(1, 256))
        elif kind == 1 and out:
            out[at % len(out)] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = rng.bytes(length)
        elif kind == 4:
            out[at : at + 8] = int(rng.choice([0, 1, 2**31, 2**40, 2**62, 2**63])).to_bytes(8, "little")
        else:
            out = out[:at]
    return bytes(out)


def rewritten(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with other values in its header, sealed anew."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ghofl"])
    tensors = load(data)
    for _ in range(int(rng.integers(1, 3))):
        _rewrite(header, rng)
    if rng.random() < 0.2:
        name = str(rng.choice(sorted(tensors)))
        shorter = np.atleast_1d(tensors[name])[:-1]
        tensors[name] = [shorter, tensors[name].astype(np.uint8), np.zeros(3, np.uint8)][int(rng.integers(3))]
    return seal({name: Tensor.of(np.ascontiguousarray(t)) for name, t in tensors.items()}, header)


def _rewrite(value: dict, rng: np.random.Generator) -> None:
    key = str(rng.choice(sorted(value)))
    if isinstance(value[key], dict) and value[key] and rng.random() < 0.7:
        return _rewrite(value[key], rng)
    if isinstance(value[key], list) and value[key] and rng.random() < 0.7:
        value[key] = [*value[key][:-1], _odd(rng)]
    elif isinstance(value[key], str) and value[key] and rng.random() < 0.4:
        at = int(rng.integers(len(value[key])))
        value[key] = value[key][:at] + chr(int(rng.choice([0, 27, 48, 97, 0x202E, 0x3A9]))) + value[key][at + 1 :]
    else:
        value[key] = _odd(rng)
    return None


def _odd(rng: np.random.Generator) -> object:
    return copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])


def files(pattern: str, read: Callable[[bytes, str], object], write: Callable[[object], bytes]):
    """A case of the golden files of a name: changed bytes, or a rewritten header."""
    paths = sorted(GOLDEN.glob(pattern))
    whole = {path: path.read_bytes() for path in paths}

    def case(rng: np.random.Generator) -> bool:
        path = paths[int(rng.integers(len(paths)))]
        is_rewritten = rng.random() < 0.5
        data = (rewritten if is_rewritten else changed)(whole[path], rng)
        name = path.stem.split("-", 1)[1]
        try:
            value = read(data, name)
        except GhoflError as error:
            if not str(error).isprintable():
                raise AssertionError(f"an error with control characters: {error!r}") from error
            return False
        if is_rewritten:
            assert write(read(write(value), name)) == write(value), f"{path.name} does not survive"
        else:
            assert data == whole[path], f"{path.name} was changed and accepted"
        return True

    return case


def _round() -> list[tuple[type, bytes]]:
    """One letter of each kind, and the states, of a real round."""
    vectors = {name: np.arange(5) * i for i, name in enumerate(("ann", "bob", "cem", "dan", "eva"))}
    identities = {name: secure.Identity.fresh() for name in vectors}
    participants = tuple(Participant(name, identities[name].public) for name in vectors)
    agreement = Agreement("0" * 32, participants, bytes(32), 5, secure.plan(5, 1000, 0.2))
    found: dict[type, bytes] = {Agreement: agreement.to_bytes()}
    state, clients = server.open_round(agreement), {}
    kinds = [messages.Advertisement, messages.Shares, messages.MaskedVector, messages.Endorsement, messages.Reveal]
    letters_of = [messages.KeyList, messages.Inbox, messages.Survivors, messages.Endorsements]
    rules = secure.RoundRules(corruption=0.0, sigma=0)
    letters = dict.fromkeys(vectors, b"")
    for stage, kind in enumerate(kinds):
        for name in letters:
            step = (
                (client.advertise, (agreement, name, identities[name], (), rules)),
                (client.share, (clients.get(name), letters[name])),
                (client.mask, (clients.get(name), letters[name], vectors[name])),
                (client.endorse, (clients.get(name), letters[name], identities[name])),
                (client.reveal, (clients.get(name), letters[name])),
            )[stage]
            clients[name], reply = step[0](*step[1])
            found[kind] = reply
            state = server.receive(state, name, reply)
        found[secure.ClientState], found[secure.ServerState] = clients["ann"].to_bytes(), state.to_bytes()
        if stage < len(letters_of):
            state, letters = server.advance(state)
            found[letters_of[stage]] = letters["ann"]
    return list(found.items())


def round_letters():
    """A case of the letters and states of a secure round."""
    known = _round()

    def case(rng: np.random.Generator) -> bool:
        kind, whole = known[int(rng.integers(len(known)))]
        data = changed(whole, rng)
        try:
            value = wire.from_bytes(kind, data, limit=2**30)
        except secure.SecureError:
            return False
        assert wire.to_bytes(value) == data, f"a {kind.__name__} is not written as it came"
        return True

    return case


def readers(*given: tuple[str, bytes, Callable[[Path], object]]):
    """A case of files that others write: (name, content, what reads it); whatever is not refused is read to its end."""
    folder = Path(tempfile.mkdtemp(prefix="ghofl-hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    def case(rng: np.random.Generator) -> bool:
        name, whole, read = given[int(rng.integers(len(given)))]
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(changed(whole, rng))
        try:
            read(path)
        except GhoflError as error:
            if not str(error).isprintable():
                raise AssertionError(f"an error with control characters: {error!r}") from error
            return False
        return True

    return case


def _blocks(path: Path, ids: str = "") -> list:
    with open_rows(path, 7, ids=ids) as file:
        return list(file.blocks)


def _bytes_of(write: Callable[..., object], *given: object, **named: object) -> bytes:
    out = io.BytesIO()
    write(out, *given, **named)
    return out.getvalue()


X, Y = np.arange(60.0).reshape(20, 3), np.array(list("ab") * 10)


def archives():
    """A case of archives of arrays, plain and compressed, by everything that reads them."""
    plain = _bytes_of(np.savez, x=X, y=Y)
    packed = _bytes_of(np.savez_compressed, x=X, y=Y, ids=np.arange(20), person=np.arange(20), anchor=X[0])
    return readers(
        ("a.npz", plain, load_rows), ("b.npz", plain, _blocks), ("c.npz", packed, load_rows), ("d.npz", packed, _blocks),
        ("e.npz", packed, lambda path: _blocks(path, "ids")), ("g.npz", packed, lambda path: load_anchor(str(path))),
        ("f.npz", packed, lambda path: load_persons(path, "person", "", 20)),
        ("h.npy", _bytes_of(np.save, X), lambda path: load_rows(path, labelled=None)),
        ("i.npy", _bytes_of(np.save, X), _blocks), ("j.safetensors", save({"x": X, "y": np.arange(20)}), load_rows),
    )  # fmt: skip


def columns():
    """A case of Parquet and Arrow files, as rows and as tables of texts."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    table = pa.table({"embedding": pa.array(X.tolist()), "label": Y.tolist(), "text": [f"té {i}" for i in range(20)]})

    def arrow(out):
        with ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)

    whole = _bytes_of(lambda out: parquet.write_table(table, out, compression="none"))
    return readers(
        ("a.parquet", whole, lambda path: load_rows(path, labelled=None)), ("b.parquet", whole, _blocks),
        ("c.parquet", whole, lambda path: load_samples(str(path))), ("d.parquet", whole, read_table),
        ("e.arrow", _bytes_of(arrow), lambda path: load_rows(path, labelled=None)),
    )  # fmt: skip


def networks():
    """A case of an exported head, read as an encoder."""
    classifier = classifier_of("nearest_mean", RECIPE, np.random.default_rng(5))
    whole = export_head(classifier).SerializeToString()
    return readers(("a.onnx", whole, lambda path: from_onnx.load(path, Runtime())))


def keys():
    """A case of public keys of nodes, as the bytes inside an OpenSSH line, and private ones."""
    key = ec.derive_private_key(12345, ec.SECP384R1())
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())

    def read(path: Path) -> object:
        return node_keys.load_public_key(b"ecdsa-sha2-nistp384 " + base64.b64encode(path.read_bytes()), "peers.toml")

    return readers(
        ("point", base64.b64decode(line.split()[1]), read), ("key", private, lambda path: node_keys.sign(path, b"x"))
    )


def rounds():
    """A case of the folder of a round by files."""
    recipe = replace(next(iter(golden_files.RECIPES.values())), privacy=Privacy(secure=True))
    folder = Path(tempfile.mkdtemp(prefix="ghofl-hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Round.open(folder, recipe, Options()).receive("a", "join", Letter({"key": bytes(32)}))
    names = ("round.json", "joined.json", "came.json", "recipe.toml")

    def read(path: Path) -> object:
        for name in set(names) - {path.name}:
            shutil.copy(folder / name, path.parent / name)
        (path.parent / "peers.toml").touch()
        return Round(path.parent)

    return readers(*((f"round/{name}", (folder / name).read_bytes(), read) for name in names))


def texts():
    """A case of TOML files."""
    recipe = next(iter(golden_files.RECIPES.values())).to_toml().encode()
    return readers(
        ("recipe.toml", recipe, Recipe.load), ("site.toml", b'name = "a"\nembeddings = "x.npz"\n', Site.load)
    )


def _message(data: bytes, name: str) -> Message:
    return Message.from_bytes(data, golden_files.RECIPES[name])


CASES = {
    "messages": lambda: files("message-*", _message, lambda message: message.to_bytes()),
    "totals": lambda: files("[tr]*l*-*", lambda data, _: Total.from_bytes(data), lambda total: total.to_bytes()),
    "heads": lambda: files("head-*", lambda data, _: Classifier.from_bytes(data), lambda head: head.to_bytes()),
    "letters": round_letters,
    "archives": archives,
    "columns": columns,
    "networks": networks,
    "keys": keys,
    "rounds": rounds,
    "texts": texts,
}


def run(kind: str, cases: int, seed: int = 0) -> Counter:
    """How many of so many cases were refused and accepted; anything else raises."""
    case, rng = CASES[kind](), np.random.default_rng(seed)
    return Counter("accepted" if case(rng) else "refused" for _ in range(cases))


if __name__ == "__main__":
    for kind in CASES:
        print(kind, dict(run(kind, int(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)), flush=True)
