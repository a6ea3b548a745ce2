"""Who may join a round: under which name, with which key of the round, and whose key vouches for it."""

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ghofl.custody.known_sums import Known
from ghofl.errors import MessageError
from ghofl.names import WHY_NO_SITE_NAME, is_site_name, shorten
from ghofl.secure import Participant, node_keys
from ghofl.wire.letter import Letter

UNKNOWN_PEER = (
    "is not in the file of peers, or its key there did not sign its round key; check its auth_key, and that file."
)
NOT_SIGNED = (
    "its round key is not signed by the key that its node is registered with, or is signed by another key; give the site "
    "that auth_key, or run with authenticated=false where nodes have no keys."
)


def check_join(name: str, letter: Letter) -> None:
    """Raise unless a site of this name may be on a list of participants: others will read what it says of itself."""
    key, signature = letter.fields.get("key"), letter.fields.get("signature", b"")
    if not isinstance(key, bytes) or not isinstance(signature, bytes):
        raise MessageError(
            f"its key ({type(key).__name__}) or signature ({type(signature).__name__}) is not bytes; the site must join again."
        )
    if not is_site_name(name):
        raise MessageError(f"it calls itself {shorten(name)!r}, which is not allowed: {WHY_NO_SITE_NAME}")
    Participant(name, key)
    Known.from_text(letter.fields.get("known", ""))  # what sites could not read would end the round for all of them


def check_peer(
    name: str, letter: Letter, recipe: str, round_id: str, peers: Mapping[str, EllipticCurvePublicKey]
) -> None:
    """Raise unless the key of this name in the file of peers signed the site's key of this round.

    A site's keeper has its own key, which its node, and whatever app runs there, cannot read.
    """
    if name not in peers or not _is_signed(peers[name], name, letter, recipe, round_id):
        raise MessageError(f"{name!r} {UNKNOWN_PEER}")


def check_registered(name: str, letter: Letter, recipe: str, round_id: str, registered: bytes) -> None:
    """Raise unless the key that the site's node is registered with signed the site's key of this round."""
    key = node_keys.load_public_key(registered, name) if registered else None
    if key is None or not _is_signed(key, name, letter, recipe, round_id):
        raise MessageError(NOT_SIGNED)


def _is_signed(key: EllipticCurvePublicKey, name: str, letter: Letter, recipe: str, round_id: str) -> bool:
    content = node_keys.statement(recipe, round_id, name, letter.fields["key"], letter.fields.get("known", ""))
    return node_keys.is_signed(key, letter.fields.get("signature", b""), content)
