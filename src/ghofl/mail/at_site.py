"""A site's side of a round by files: one letter in, one letter out, answered by the same code as on Flower.

So policy, approval and the ledger of reveals apply here too.
"""

from ghofl.custody.site import Custodian
from ghofl.custody.storage import Storage
from ghofl.errors import MessageError, PolicyError
from ghofl.keeper.answers import answer
from ghofl.names import shorten
from ghofl.secure import STAGES, Identity
from ghofl.wire import letter as letters
from ghofl.wire.letter import Letter, text_of

ACTIONS = ("join", *STAGES)


def answer_letter(query: Letter, site: Custodian, storage: Storage) -> Letter:
    """The letter that a site sends back, whatever stage of a round it is asked for.

    A refusal raises `PolicyError` and leaves nothing to send.

    Guarantees
    ----------
    The same question gives the same letter, to the bit, also after the site's process was killed in between.
    """
    if letters.SIGNED in query.fields:
        raise MessageError(
            f"this letter was written by the site {text_of(query, 'site')[:64]!r}; sites answer letters of the server."
        )
    action, round_id = text_of(query, "action"), text_of(query, "round")
    if action not in ACTIONS:
        raise MessageError(
            f"this letter asks for {shorten(action, 20)!r}, and letters of a round ask for {', '.join(ACTIONS)}; "
            "give one that the server wrote."
        )
    if action != "join" and text_of(query, "site") != site.name:
        raise MessageError(
            f"this letter is for {text_of(query, 'site')[:64]!r}, and this site is {site.name!r}; "
            "give the letter that the server wrote for this site."
        )
    reply = answer(action, query, site, storage)  # refuses a malformed round id before it becomes part of a path
    if reply.fields.get("status") not in ("joined", "sent"):
        raise PolicyError(str(reply.fields.get("why", "this site does not answer.")))
    own = {key: reply.fields[key] for key in ("key", "known", "signature") if key in reply.fields}
    letter = Letter({"action": action, "round": round_id, "site": site.name, **own}, reply.payload)
    return letters.sign_letter(letter, Identity(storage.get(f"round/{round_id}/identity") or b""))
