"""Fixed values, for other implementations too: `vectors.json` was written by plain arithmetic, not by this package.

Masks from AES blocks in electronic-codebook mode, shares from powers of x, HKDF from two HMACs, all numbers as the
module docstrings of `masking`, `sharing`, `graph`, `keys`, `wire` and `rounds` define them; bytes are in hexadecimal.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from ghofl.secure import Agreement, Participant, Plan, Ring, arrange, combine, keys, split

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["masks"], ids=lambda vector: str(vector["bits"]))
def test_mask_streams_are_the_fixed_ones(vector):
    ring, expected = Ring(vector["bits"]), [int(value, 16) for value in vector["mask"]]
    zeros = np.zeros(len(expected), dtype=ring.dtype)
    mask = ring.unmask(zeros, [bytes.fromhex(vector["seed"])])
    assert [int(value) % 2**ring.bits for value in mask] == expected


def test_shares_are_the_fixed_ones():
    vector = VECTORS["shamir"]
    secret, noise = bytes.fromhex(vector["secret"]), bytes.fromhex(vector["entropy"])
    holders = [int(holder) for holder in vector["shares"]]
    shares = split(secret, holders, vector["threshold"], entropy=lambda count: noise[:count])
    assert [share.content.hex() for share in shares] == list(vector["shares"].values())
    assert combine(shares[1:], vector["threshold"]) == secret


def test_pair_keys_are_the_fixed_ones_from_either_side():
    vector = {name: bytes.fromhex(value) for name, value in VECTORS["pair_key"].items()}
    assert keys.public_key(vector["one"]) == vector["one_public"]
    for ours, theirs in (("one", "other_public"), ("other", "one_public")):
        assert keys.pair_key(keys.private_key(vector[ours]), vector[theirs], vector["info"]) == vector["key"]


def test_the_graph_is_the_fixed_one():
    vector = VECTORS["graph"]
    identities = [bytes.fromhex(one) for one in vector["identities"]]
    graph = arrange(identities, bytes.fromhex(vector["seed"]), vector["neighbours"])
    assert list(graph.order) == vector["order"]
    assert [list(graph.neighbours_of(seat)) for seat in range(len(identities))] == vector["neighbours_of"]


def test_an_agreement_its_digest_and_its_pair_seeds_are_the_fixed_ones():
    vector, pair = VECTORS["agreement"], VECTORS["pair_key"]
    sites = tuple(Participant(name, bytes.fromhex(key)) for name, key in vector["participants"])
    agreement = Agreement(
        vector["round_id"], sites, bytes.fromhex(vector["seed"]), vector["entries"], Plan(*vector["plan"])
    )
    assert agreement.to_bytes().hex() == vector["bytes"]
    assert agreement.digest.hex() == vector["digest"]
    assert agreement.context("mask", 0, 2).hex() == vector["mask_context_0_2"]
    private, public = keys.private_key(bytes.fromhex(pair["one"])), bytes.fromhex(pair["other_public"])
    assert agreement.pair_seed(private, public, 2, 0).hex() == vector["pair_seed_0_2"]
    assert agreement.bitmap([0, 2]).hex() == vector["bitmap_0_2"]
