"""What a site says to each query, as functions from fields and bytes to fields and bytes.

::

    message     plain: the site's one message, or that it is counted already
    join        secure: name, identity for this round, and the node's word for it
    advertise, share, mask, endorse, reveal      the stages of `ghofl.secure`

Every stage of a round is answered once: asked the same again, a site gives the very bytes it gave before, and asked
something else, it refuses. Nothing about rows is in a refusal: details stay in the site's own log.
"""

import hashlib
import logging
from collections.abc import Callable

from ghofl import secure
from ghofl.errors import GhoflError, PolicyError
from ghofl.flower import binding
from ghofl.flower.letter import Letter
from ghofl.flower.memory import Memory
from ghofl.flower.parcel import ready
from ghofl.flower.site import SimulatedSite, Site
from ghofl.recipe import Recipe
from ghofl.secure import STAGES, Agreement, ClientState, Identity, SecureError

log = logging.getLogger("flwr")


def answer(action: str, query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    """A site's answer to a query; what it refuses, it refuses by name and without a word about its rows."""
    try:
        with memory.alone():
            return _ANSWERS[action](query, site, memory)
    except Exception as error:  # an engine would send the text of any that is left to it
        return refusal(error, site.name)


def refusal(error: Exception, name: str = "") -> Letter:
    """What leaves a site when something went wrong; the whole of it goes to the site's own log."""
    is_expected = isinstance(error, GhoflError | OSError)
    log.error("%s does not answer: %s", name or "This node", error, exc_info=None if is_expected else error)
    return Letter({"status": "refused", "why": told_outside(error)} | ({"site": name} if name else {}))


def told_outside(error: Exception) -> str:
    """What others may know of an error: the texts of policies and rounds, and of all else only the kind."""
    if isinstance(error, PolicyError | SecureError):
        return str(error)
    if isinstance(error, GhoflError):
        return f"{type(error).__name__}: {(type(error).__doc__ or '').splitlines()[0]} The site's log has the details."
    if isinstance(error, OSError):
        return "its files could not be read or written. The site's log has the details."
    return f"an error that nobody expected ({type(error).__name__}). The site's log has the details."


def _message(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    recipe = _recipe(query)
    parcel = ready(site, recipe, memory)
    if parcel.message_id in query.fields.get("counted", []):
        return Letter({"status": "counted", "site": site.name})
    _tell(site, parcel.sentences, len(parcel.content))
    return Letter({"status": "sent", "site": site.name}, parcel.content)


def _join(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    recipe, round_id = _recipe(query), _round_id(query)
    if memory.is_lasting:  # what is wrong with the rows is found before the round, not in the middle of it
        parcel = ready(site, recipe, memory)
        _tell(site, parcel.sentences, len(parcel.content))
    else:
        site.check_recipe(recipe)
    kept = memory.get(f"round/{round_id}/identity")
    identity = Identity(kept) if kept else Identity.fresh()
    if kept is None:
        memory.forget("round")  # an older round is over when a new one begins
        memory.put(f"round/{round_id}/identity", identity.secret)
        memory.put(f"round/{round_id}/recipe", recipe.to_toml().encode())
    fields = {"status": "joined", "site": site.name, "key": identity.public}
    if isinstance(site, Site) and site.auth_key:
        content = binding.statement(recipe.fingerprint, round_id, site.name, identity.public)
        fields["signature"] = binding.sign(site.auth_key, content)
    return Letter(fields)


def _advertise(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    agreement = Agreement.from_bytes(query.content)
    recipe = _kept_recipe(memory, agreement.round_id)
    _check_agreement(query, agreement, site, recipe)

    identity, used = _identity(memory, agreement.round_id), _used_rounds(memory)
    earlier = [round_id for round_id in used if round_id != agreement.round_id]
    made = _once(
        query,
        agreement.round_id,
        "advertise",
        memory,
        lambda: secure.advertise(agreement, site.name, identity, earlier, site.conditions().in_rounds),
    )
    memory.put("used-rounds", "\n".join([*earlier, agreement.round_id]).encode())
    return made


def _share(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    return _stage(query, "share", memory, lambda state: secure.share(state, query.content))


def _mask(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    recipe = _kept_recipe(memory, _round_id(query))
    return _stage(
        query, "mask", memory, lambda state: secure.mask(state, query.content, ready(site, recipe, memory).vector)
    )


def _endorse(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    identity = _identity(memory, _round_id(query))
    return _stage(query, "endorse", memory, lambda state: secure.endorse(state, query.content, identity))


def _reveal(query: Letter, site: Site | SimulatedSite, memory: Memory) -> Letter:
    return _stage(query, "reveal", memory, lambda state: secure.reveal(state, query.content))


def _check_agreement(query: Letter, agreement: Agreement, site: Site | SimulatedSite, recipe: Recipe) -> None:
    if agreement.seed != binding.seed_of(agreement.round_id, agreement.participants):
        raise PolicyError("the round's public seed does not follow from its participants' keys; it may be chosen.")
    peers = site.conditions().peer_keys()
    if not peers:
        return
    signatures = query.fields.get("signatures", [])
    if len(signatures) != len(agreement.participants):
        raise PolicyError("this site joins rounds with its peers only, and the participants' signatures did not come.")
    for participant, signature in zip(agreement.participants, signatures, strict=True):
        content = binding.statement(recipe.fingerprint, agreement.round_id, participant.name, participant.key)
        key = peers.get(participant.name)
        if key is None or not binding.is_signed(key, signature, content):
            raise PolicyError(f"{participant.name!r} is not one of this site's peers, or did not sign its key.")


def _stage(
    query: Letter, stage: str, memory: Memory, step: Callable[[ClientState], tuple[ClientState, bytes]]
) -> Letter:
    round_id, before = _round_id(query), STAGES[STAGES.index(stage) - 1]

    def from_state() -> tuple[ClientState, bytes]:
        state = memory.get(f"round/{round_id}/state/{before}")
        if state is None:
            raise PolicyError(f"this site has not come to {stage!r} in round {round_id!r}, or has left it.")
        return step(ClientState.from_bytes(state))

    return _once(query, round_id, stage, memory, from_state)


def _once(
    query: Letter, round_id: str, stage: str, memory: Memory, step: Callable[[], tuple[ClientState, bytes]]
) -> Letter:
    """The reply to a stage: computed once, and after that the same bytes to the same question.

    The state is written before the reply. A site that dies in between computes both again, and nothing was sent.
    """
    asked, kept = hashlib.sha256(query.content).digest(), memory.get(f"round/{round_id}/reply/{stage}")
    if kept is not None:
        if kept[:32] != asked:
            raise PolicyError(f"this site answered another {stage!r} of round {round_id!r}; each stage has one answer.")
        return Letter({"status": "sent"}, kept[32:])
    state, reply = step()
    if stage != STAGES[-1]:
        memory.put(f"round/{round_id}/state/{stage}", state.to_bytes())
    if memory.is_lasting:
        memory.put(f"round/{round_id}/reply/{stage}", asked + reply)
    if stage == STAGES[-1]:
        memory.forget(f"round/{round_id}/state")  # its secrets are of use to nobody but others now
    return Letter({"status": "sent"}, reply)


def _recipe(query: Letter) -> Recipe:
    return Recipe.from_toml(str(query.fields["recipe"]))


def _round_id(query: Letter) -> str:
    round_id = str(query.fields.get("round", ""))
    if not (len(round_id) == 32 and all(c in "0123456789abcdef" for c in round_id)):
        raise PolicyError(f"round {round_id[:40]!r} has no proper id; ids are 32 hexadecimal digits.")
    return round_id


def _identity(memory: Memory, round_id: str) -> Identity:
    kept = memory.get(f"round/{round_id}/identity")
    if kept is None:
        raise PolicyError(f"this site has not joined round {round_id!r}.")
    return Identity(kept)


def _kept_recipe(memory: Memory, round_id: str) -> Recipe:
    kept = memory.get(f"round/{round_id}/recipe")
    if kept is None:
        raise PolicyError(f"this site has not joined round {round_id!r}.")
    return Recipe.from_toml(kept.decode())


def _used_rounds(memory: Memory) -> tuple[str, ...]:
    return tuple((memory.get("used-rounds") or b"").decode().split())


def _tell(site: Site | SimulatedSite, sentences: tuple[str, ...], size: int) -> None:
    if sentences:
        log.info("%s sends %s bytes. What they would reveal:", site.name, format(size, ","))
    for sentence in sentences:
        log.info("  - %s", sentence)


_ANSWERS: dict[str, Callable[[Letter, Site | SimulatedSite, Memory], Letter]] = {
    "message": _message,
    "join": _join,
    "advertise": _advertise,
    "share": _share,
    "mask": _mask,
    "endorse": _endorse,
    "reveal": _reveal,
}
ACTIONS = tuple(_ANSWERS)
