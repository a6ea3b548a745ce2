"""A site's answers to queries, as functions from fields and bytes to fields and bytes.

::

    message     plain: the site's one message, or the word that it is already counted
    join        secure: the site's name, its identity for this round, and the node's signature on it
    advertise, share, mask, endorse, reveal      the stages of `ghofl.secure`

Every stage of a round is answered once: asked the same again, a site gives the same bytes, and asked something else, it
refuses. A round id is joined once, and a site reveals once (see `history`). A refusal says nothing about rows: details
stay in the site's own log. Every question is a line in the site's ledger with its outcome, and nothing leaves before it
is written there.
"""

import hashlib
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress

from ghofl import secure
from ghofl.custody.history import History
from ghofl.custody.known_sums import Known
from ghofl.custody.ledger import USED
from ghofl.custody.parcel import fewest_bytes, prepare_parcel
from ghofl.custody.records import (
    check_round,
    load_known,
    record_join,
    record_list,
    record_message,
    record_question,
    record_reveal,
    record_vector,
    save_known,
)
from ghofl.custody.site import Custodian
from ghofl.custody.storage import Memory
from ghofl.errors import GhoflError, PolicyError
from ghofl.keeper.kept_round import data_of_round, identity_of, noise_of_round, recipe_of_round, sign_once, used_rounds
from ghofl.keeper.requests import check_fields, recipe_of, with_recipe
from ghofl.moments import Layout
from ghofl.names import shown
from ghofl.outbox.outgoing import add_shared_noise, has_shared_noise
from ghofl.privacy import entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import STAGES, Agreement, ClientState, Identity, RefusedError, WireError, node_keys
from ghofl.wire.letter import Letter

LONGEST_SHOWN = 2000  # characters of an error in the log
log = logging.getLogger("flwr")


def answer(action: str, query: Letter, site: Custodian, memory: Memory) -> Letter:
    """A site's answer to a query; a refusal names the site and says nothing about its rows."""
    try:
        query = with_recipe(query, site)  # before anybody has to wait for it
        with memory.alone():
            try:
                check_fields(query)
                reply = _ANSWERS[action](query, site, memory)
            except Exception as error:
                reply = refusal(error, site.name)
            _record(memory, action, query, reply)
            return reply
    except Exception as error:  # an engine would send the text of any error that reaches it
        return refusal(error, site.name)


def _record(memory: Memory, action: str, query: Letter, reply: Letter) -> None:
    if memory.is_lasting:
        about: dict[str, str] = {}
        with suppress(GhoflError, KeyError, ValueError, OSError):
            about["recipe"] = recipe_of(query).fingerprint
        with suppress(PolicyError):
            about["round"] = _round_id(query)
        record_question(action, query, about, reply, memory)


def refusal(error: Exception, name: str = "") -> Letter:
    """What leaves a site when something went wrong; the details go to the site's own log."""
    is_expected = isinstance(error, GhoflError | OSError)
    steps = "" if is_expected else "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
    # An error may quote what somebody else wrote, which must not look like lines of this log.
    log.error("%s does not answer: %s%s", name or "This node", shown(error, LONGEST_SHOWN) or repr(error), steps)
    return Letter({"status": "refused", "why": text_for_outside(error)} | ({"site": name} if name else {}))


def text_for_outside(error: Exception) -> str:
    """What others may know of an error: the texts of policies and of refused letters, otherwise only the kind."""
    if isinstance(error, PolicyError | RefusedError | WireError):
        return str(error)
    if isinstance(error, secure.RingError):
        return "this site's rows do not fit the recipe's limits."
    if isinstance(error, GhoflError):
        return f"{type(error).__name__}: {(type(error).__doc__ or '').splitlines()[0]} The site's log has the details."
    if isinstance(error, OSError):
        return "its files could not be read or written. The site's log has the details."
    return f"an unexpected error ({type(error).__name__}). The site's log has the details."


def _message(query: Letter, site: Custodian, memory: Memory) -> Letter:
    recipe = recipe_of(query)
    if recipe.privacy.secure:
        raise PolicyError("the recipe has privacy.secure = true; under it, moments leave in secure rounds only.")
    parcel = prepare_parcel(site, recipe, memory)
    if parcel.message_id in query.fields.get("counted", []):
        return Letter({"status": "counted", "site": site.name})
    if memory.is_lasting:
        record_message(site, recipe, parcel, memory)
    _log_sentences(site, parcel.sentences, len(parcel.content))
    return Letter({"status": "sent", "site": site.name}, parcel.content)


def _join(query: Letter, site: Custodian, memory: Memory) -> Letter:
    recipe, round_id = recipe_of(query), _round_id(query)
    if not recipe.privacy.secure:
        raise PolicyError("the recipe has privacy.secure = false; it is not for secure rounds.")
    site.check_recipe(recipe)
    site.conditions().peer_keys()
    kept, data = memory.get(f"round/{round_id}/identity"), ""
    if kept is None and (round_id in used_rounds(memory) or History.load(memory).was_in(round_id)):
        raise PolicyError(f"this site has left round {round_id!r}, or was in it before; open a round with a new id.")
    if kept is not None and recipe_of_round(memory, round_id).fingerprint != recipe.fingerprint:
        # With its signature for another recipe, peers could be made to mask under that one beside this site's vector.
        raise PolicyError(f"this site joined round {round_id!r} with another recipe; a round has one recipe.")
    if memory.is_lasting:  # so that problems with the rows are found before the round, not in the middle of it
        parcel = prepare_parcel(site, recipe, memory, round_id=round_id)
        data = parcel.data
        History.load(memory).check_reveal(round_id, recipe.fingerprint, data)
        _log_sentences(site, parcel.sentences, fewest_bytes(parcel, recipe, site))
    identity = Identity(kept) if kept else Identity.fresh()
    if kept is None:
        if memory.is_lasting:  # before any file shows the round, so that a ledger without the line is a damaged one
            record_join(round_id, recipe, data, memory)
        memory.put(USED, "\n".join([*used_rounds(memory), round_id]).encode())
        memory.forget("round")  # an older round is over when a new one begins
        memory.put(f"round/{round_id}/recipe", recipe.to_toml().encode())
        memory.put(f"round/{round_id}/data", data.encode())
        memory.put(f"round/{round_id}/identity", identity.secret)
    fields = {"status": "joined", "site": site.name, "key": identity.public}
    if known := History.load(memory).known(site.name, data, round_id).to_text():
        fields["known"] = known
    if site.auth_key:
        content = node_keys.statement(recipe.fingerprint, round_id, site.name, identity.public, known)
        fields["signature"] = sign_once(site.auth_key, content, round_id, memory)
    return Letter(fields)


def _advertise(query: Letter, site: Custodian, memory: Memory) -> Letter:
    agreement = Agreement.from_bytes(query.content)
    round_id = _checked_id(agreement.round_id)
    recipe = recipe_of_round(memory, round_id)
    others = _known_to_others(query, agreement)
    _check_agreement(query, agreement, site, recipe)
    if memory.is_lasting:
        check_round(site, agreement, recipe, data_of_round(memory, round_id), memory, others)

    identity, policy = identity_of(memory, round_id), site.conditions().round_rules(recipe)
    earlier = [used for used in used_rounds(memory) if used != round_id]

    def step() -> tuple[ClientState, bytes]:
        state, reply = secure.advertise(agreement, site.name, identity, earlier, policy)
        save_known(round_id, others, memory)
        return state, reply

    return _once(query, round_id, "advertise", memory, step)


def _share(query: Letter, site: Custodian, memory: Memory) -> Letter:
    return _stage(query, "share", memory, lambda state: secure.share(state, query.content))


def _mask(query: Letter, site: Custodian, memory: Memory) -> Letter:
    round_id = _round_id(query)
    recipe = recipe_of_round(memory, round_id)

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        if memory.is_lasting:  # again, as an exact message may have left since this site advertised
            data = data_of_round(memory, round_id)
            check_round(site, state.agreement, recipe, data, memory, load_known(round_id, memory))
        cohort = [p.name for p in state.agreement.participants]
        parcel = prepare_parcel(site, recipe, memory, cohort, round_id)
        if memory.is_lasting and parcel.data != data_of_round(memory, round_id):
            raise PolicyError(f"what this site sends changed after it joined round {round_id!r}; start another round.")
        vector = parcel.vector
        if has_shared_noise(recipe):
            vector = add_shared_noise(vector, recipe, noise_of_round(memory, round_id))
        after = secure.mask(state, query.content, vector)
        if memory.is_lasting:  # from now on it may be in a sum, whether this site is asked again or not
            record_vector(state.agreement, recipe, data_of_round(memory, round_id), memory)
        return after

    return _stage(query, "mask", memory, step)


def _endorse(query: Letter, site: Custodian, memory: Memory) -> Letter:
    round_id = _round_id(query)
    identity, recipe = identity_of(memory, round_id), recipe_of_round(memory, round_id)

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        after, reply = secure.endorse(state, query.content, identity)
        if memory.is_lasting:  # before the signature leaves: with it, others may unmask without this site
            record_list(site, after, recipe, data_of_round(memory, round_id), memory)
        return after, reply

    return _stage(query, "endorse", memory, step)


def _reveal(query: Letter, site: Custodian, memory: Memory) -> Letter:
    round_id = _round_id(query)
    recipe, data = recipe_of_round(memory, round_id), data_of_round(memory, round_id)

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        if memory.is_lasting:
            check_round(site, state.agreement, recipe, data, memory, load_known(round_id, memory))
        after, reply = secure.reveal(state, query.content)
        if memory.is_lasting:  # before the reply leaves: a site that dies in between counts as having revealed
            record_reveal(state, recipe, data, memory)
        return after, reply

    return _stage(query, "reveal", memory, step)


def _check_agreement(query: Letter, agreement: Agreement, site: Custodian, recipe: Recipe) -> None:
    if agreement.plan.bound != entry_bound(recipe) or agreement.entries != Layout.of(recipe).entries:
        raise PolicyError("the round's bound and length do not follow from the recipe; use those that do.")
    if agreement.seed != node_keys.seed_of(agreement.round_id, agreement.participants):
        raise PolicyError(
            "the round's public seed does not follow from its participants' keys; somebody may have chosen it."
        )
    peers = site.conditions().peer_keys()
    if not peers:
        return
    signatures, known = query.fields.get("signatures", []), query.fields.get("known", [])
    if len(signatures) != len(agreement.participants):
        raise PolicyError("this site joins rounds with its peers only, and the participants' signatures did not come.")
    known = known or [""] * len(agreement.participants)
    for participant, signature, text in zip(agreement.participants, signatures, known, strict=True):
        names = (recipe.fingerprint, agreement.round_id, participant.name)
        content = node_keys.statement(*names, participant.key, str(text))
        key = peers.get(participant.name)
        if key is None or not node_keys.is_signed(key, signature, content):
            raise PolicyError(f"{participant.name!r} is not one of this site's peers, or did not sign its key.")


def _known_to_others(query: Letter, agreement: Agreement) -> dict[str, Known]:
    """What every participant of a round knows of earlier sums, as the server relays it."""
    known = query.fields.get("known", [])
    if not isinstance(known, list) or len(known) not in (0, len(agreement.participants)):
        raise PolicyError("what participants know of earlier sums did not come for each of them; send it for all.")
    names = [participant.name for participant in agreement.participants]
    return {name: Known.from_text(text) for name, text in zip(names, known, strict=False)}


def _stage(
    query: Letter, stage: str, memory: Memory, step: Callable[[ClientState], tuple[ClientState, bytes]]
) -> Letter:
    round_id, before = _round_id(query), STAGES[STAGES.index(stage) - 1]

    def from_state() -> tuple[ClientState, bytes]:
        state = memory.get(f"round/{round_id}/state/{before}")
        if state is None:
            raise PolicyError(f"this site has not reached {stage!r} in round {round_id!r}, or has left the round.")
        return step(ClientState.from_bytes(state))

    return _once(query, round_id, stage, memory, from_state)


def _once(
    query: Letter, round_id: str, stage: str, memory: Memory, step: Callable[[], tuple[ClientState, bytes]]
) -> Letter:
    """The reply to a stage: computed once, and after that the same bytes for the same question.

    The state is saved before the reply. A site that dies in between computes both again, as nothing was sent.
    """
    asked, kept = hashlib.sha256(query.content).digest(), memory.get(f"round/{round_id}/reply/{stage}")
    if kept is not None:
        if kept[:32] != asked:
            raise PolicyError(
                f"this site answered another {stage!r} of round {round_id!r}; a site answers each stage only once."
            )
        return Letter({"status": "sent"}, kept[32:])
    state, reply = step()
    if stage != STAGES[-1]:
        memory.put(f"round/{round_id}/state/{stage}", state.to_bytes())
    if memory.is_lasting:
        memory.put(f"round/{round_id}/reply/{stage}", asked + reply)
    if stage == STAGES[-1]:
        memory.forget(f"round/{round_id}/state")  # the site does not need its secrets any more
    return Letter({"status": "sent"}, reply)


def _round_id(query: Letter) -> str:
    return _checked_id(str(query.fields.get("round", "")))


def _checked_id(round_id: str) -> str:
    """A round id that may become the name of a file."""
    if not (len(round_id) == 32 and all(c in "0123456789abcdef" for c in round_id)):
        raise PolicyError(f"the round id {round_id[:40]!r} is not allowed; ids are 32 hexadecimal digits.")
    return round_id


def _log_sentences(site: Custodian, sentences: tuple[str, ...], size: int) -> None:
    if sentences:
        log.info("%s sends %s bytes. What they would reveal:", site.name, format(size, ","))
    for sentence in sentences:
        log.info("  - %s", sentence)


_ANSWERS: dict[str, Callable[[Letter, Custodian, Memory], Letter]] = {
    "message": _message,
    "join": _join,
    "advertise": _advertise,
    "share": _share,
    "mask": _mask,
    "endorse": _endorse,
    "reveal": _reveal,
}
ACTIONS = tuple(_ANSWERS)
