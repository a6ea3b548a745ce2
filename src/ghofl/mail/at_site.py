"""A site's side of a round by files: one letter in, one letter out, answered by the same code as on Flower.

So policy, approval and the ledger of reveals apply here too. A letter that was written once is kept in the site's folder,
and the same question gives the same bytes again.
"""

import hashlib

from ghofl.errors import MessageError, PolicyError
from ghofl.mail import letters
from ghofl.secure import STAGES, Identity
from ghofl.site.answers import answer
from ghofl.site.letter import Letter
from ghofl.site.memory import Memory
from ghofl.site.site import Custodian

ACTIONS = ("join", *STAGES)


def answer_letter(action: str, query: Letter, site: Custodian, memory: Memory) -> Letter:
    """The letter that a site sends back; a refusal raises `PolicyError` and leaves nothing to send.

    Guarantees
    ----------
    The same question gives the same letter, to the bit, also after the site's process was killed in between.
    """
    asked = letters.text_of(query, "action")
    if asked != action:
        raise MessageError(
            f"this letter asks for {asked!r}, and the command is {action!r}; use 'ghofl secure {asked}'."
        )
    if action != "join" and letters.text_of(query, "site") != site.name:
        raise MessageError(
            f"this letter is for {letters.text_of(query, 'site')[:64]!r}, and this site is {site.name!r}; "
            "give the letter that the server wrote for this site."
        )
    round_id, digest = letters.text_of(query, "round"), hashlib.sha256(letters.to_bytes(query)).digest()
    reply = answer(action, query, site, memory)  # refuses a malformed round id before it becomes part of a path
    if reply.fields.get("status") not in ("joined", "sent"):
        raise PolicyError(str(reply.fields.get("why", "this site does not answer.")))
    with memory.alone():
        kept = memory.get(_key(round_id, action))
        if kept is not None and kept[:32] == digest:
            return letters.from_bytes(kept[32:])
        identity = {key: reply.fields[key] for key in ("key", "signature") if key in reply.fields}
        letter = Letter({"action": action, "round": round_id, "site": site.name, **identity}, reply.content)
        signature = Identity(memory.get(f"round/{round_id}/identity") or b"").sign(letters.signed_content(letter))
        letter = Letter({**letter.fields, letters.SIGNED: signature}, letter.content)
        memory.put(_key(round_id, action), digest + letters.to_bytes(letter))
        return letter


def _key(round_id: str, action: str) -> str:
    return f"round/{round_id}/letter/{action}"
