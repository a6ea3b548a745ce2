"""A site's answers to requests, as functions from fields and bytes to fields and bytes.

::

    message     plain: the site's one message, or the word that it is already counted
    join        secure: the site's name, its identity for this round, and the node's signature on it
    advertise, share, mask, endorse, reveal      the stages of `ghofl.secure`

Every stage of a round is answered once: asked the same again, a site gives the same bytes, and asked something else, it
refuses. A round id is joined once, and a site reveals once (see `history`). A refusal says nothing about rows: details
stay in the site's own log. Every request is a line in the site's ledger with its outcome, and nothing leaves before it
is written there.
"""

import hashlib
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ghofl import secure
from ghofl.custody.custody import Custody
from ghofl.custody.known_sums import Known
from ghofl.custody.site import Custodian, Site
from ghofl.custody.storage import Storage
from ghofl.errors import GhoflError, PolicyError
from ghofl.keeper.kept_round import KeptRound, used_rounds
from ghofl.moments import Layout
from ghofl.names import shorten
from ghofl.outbox.counting import add_shared_noise, has_shared_noise
from ghofl.privacy import entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import STAGES, Agreement, ClientState, Identity, node_keys
from ghofl.wire.letter import Letter

LONGEST_SHOWN = 2000  # characters of an error in the log
LISTS = ("counted", "signatures", "known")  # fields of requests that are lists
SLACK = 2**16  # characters that a server's recipe may have beyond twice the site's own
log = logging.getLogger(__name__)
Step = Callable[[], tuple[ClientState, bytes]]
StepFrom = Callable[[ClientState], tuple[ClientState, bytes]]


def answer(action: str, request: Letter, site: Custodian, storage: Storage) -> Letter:
    """A site's answer to a request; a refusal names the site and says nothing about its rows."""
    try:
        request = _with_recipe(request, site)  # before anybody has to wait for it
        with Custody.locked(site, storage) as custody:
            try:
                _check_fields(request)
                reply = _ANSWERS[action](request, custody)
            except Exception as error:
                reply = refusal(error, site.name)
            _record(custody, action, request, reply)
            return reply
    except Exception as error:  # an engine would send the text of any error that reaches it
        return refusal(error, site.name)


def _record(custody: Custody, action: str, request: Letter, reply: Letter) -> None:
    about: dict[str, str] = {}
    with suppress(GhoflError, KeyError, ValueError, OSError):
        about["recipe"] = _recipe_of(request).fingerprint
    with suppress(PolicyError):
        about["round"] = _round(request, custody).round_id
    custody.record_request(action, request, about, reply)


def refusal(error: Exception, name: str = "") -> Letter:
    """What leaves a site when something went wrong; the details go to the site's own log."""
    is_expected = isinstance(error, GhoflError | OSError)
    steps = "" if is_expected else "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
    # An error may quote what somebody else wrote, which must not look like lines of this log.
    log.error("%s does not answer: %s%s", name or "This node", shorten(error, LONGEST_SHOWN) or repr(error), steps)
    return Letter({"status": "refused", "why": text_for_outside(error)} | ({"site": name} if name else {}))


def text_for_outside(error: Exception) -> str:
    """What others may know of an error."""
    if isinstance(error, GhoflError):
        return error.outside
    if isinstance(error, OSError):
        return "its files could not be read or written. The site's log has the details."
    return f"an unexpected error ({type(error).__name__}). The site's log has the details."


def _message(request: Letter, custody: Custody) -> Letter:
    recipe, name = _recipe_of(request), custody.site.name
    if recipe.privacy.secure:
        raise PolicyError("the recipe has privacy.secure = true; under it, moments leave in secure rounds only.")
    parcel = custody.parcel_to_send(recipe)
    if parcel.message_id in request.fields.get("counted", []):
        return Letter({"status": "counted", "site": name})
    custody.record_message(recipe, parcel)
    _log_sentences(name, parcel.sentences, len(parcel.content))
    return Letter({"status": "sent", "site": name}, parcel.content)


def _join(request: Letter, custody: Custody) -> Letter:
    recipe, kept, site = _recipe_of(request), _round(request, custody), custody.site
    if not recipe.privacy.secure:
        raise PolicyError("the recipe has privacy.secure = false; it is not for secure rounds.")
    custody.check_recipe(recipe)
    custody.check_peers()
    round_id, secret, data = kept.round_id, kept.get("identity"), ""
    if secret is None and (round_id in used_rounds(custody.storage) or custody.history.has_left(round_id)):
        raise PolicyError(f"this site has left round {round_id!r}, or was in it before; open a round with a new id.")
    if secret is not None and kept.recipe.fingerprint != recipe.fingerprint:
        # With its signature for another recipe, peers could be made to mask under that one beside this site's vector.
        raise PolicyError(f"this site joined round {round_id!r} with another recipe; a round has one recipe.")
    if custody.storage.is_lasting:  # so that problems with the rows are found before the round, not in the middle of it
        parcel = custody.parcel_to_send(recipe, round_id=round_id)
        data, fewest = parcel.data, custody.policy.round_rules(recipe).min_survivors
        custody.history.check_reveal(round_id, recipe.fingerprint, data)
        _log_sentences(site.name, parcel.sentences, parcel.bytes_leaving(recipe, fewest))
    identity = Identity(secret) if secret else Identity.fresh()
    if secret is None:
        # The line comes before any file that shows the round, so that a ledger without the line is a damaged one.
        custody.record_join(round_id, recipe, data)
        kept.begin(recipe, data, identity)
    fields = {"status": "joined", "site": site.name, "key": identity.public}
    if known := custody.history.known(site.name, data, round_id).to_text():
        fields["known"] = known
    if site.auth_key:
        content = node_keys.statement(recipe.fingerprint, round_id, site.name, identity.public, known)
        fields["signature"] = kept.sign_once(site.auth_key, content)
    return Letter(fields)


def _advertise(request: Letter, custody: Custody) -> Letter:
    agreement = Agreement.from_bytes(request.content)
    kept = KeptRound(custody.storage, agreement.round_id)
    recipe, others = kept.recipe, _known_to_others(request, agreement)
    _check_agreement(request, agreement, custody, recipe)
    custody.check_round(agreement, recipe, kept.data, others)
    identity, rules = kept.identity, custody.policy.round_rules(recipe)
    earlier = [used for used in used_rounds(custody.storage) if used != kept.round_id]

    def step() -> tuple[ClientState, bytes]:
        state, reply = secure.advertise(agreement, custody.site.name, identity, earlier, rules)
        kept.save_others(others)
        return state, reply

    return _once(request, kept, "advertise", step)


def _share(request: Letter, custody: Custody) -> Letter:
    return _stage(request, custody, "share", lambda state: secure.share(state, request.content))


def _mask(request: Letter, custody: Custody) -> Letter:
    kept = _round(request, custody)
    recipe = kept.recipe

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        agreement, data, others = state.agreement, kept.data, kept.others
        custody.check_round(agreement, recipe, data, others)  # again, as an exact message may have left since
        parcel = custody.parcel_to_send(recipe, [p.name for p in agreement.participants], kept.round_id)
        if parcel.data != data:
            raise PolicyError(
                f"what this site sends changed after it joined round {kept.round_id!r}; start another round."
            )
        vector = parcel.vector
        if has_shared_noise(recipe):
            vector = add_shared_noise(vector, recipe, kept.noise())
        after = secure.mask(state, request.content, vector)
        # From now on it may be in a sum, whether this site is asked again or not.
        custody.record_vector(agreement, recipe, data, others)
        return after

    return _stage(request, custody, "mask", step)


def _endorse(request: Letter, custody: Custody) -> Letter:
    kept = _round(request, custody)
    identity, recipe = kept.identity, kept.recipe

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        after, reply = secure.endorse(state, request.content, identity)
        # Before the signature leaves: with it, others may unmask without this site.
        custody.record_list(after, recipe, kept.data, kept.others)
        return after, reply

    return _stage(request, custody, "endorse", step)


def _reveal(request: Letter, custody: Custody) -> Letter:
    kept = _round(request, custody)
    recipe, data = kept.recipe, kept.data

    def step(state: ClientState) -> tuple[ClientState, bytes]:
        custody.check_round(state.agreement, recipe, data, kept.others)
        after, reply = secure.reveal(state, request.content)
        # Before the reply leaves: a site that dies in between counts as having revealed.
        custody.record_reveal(state, recipe, data)
        return after, reply

    return _stage(request, custody, "reveal", step)


def _check_agreement(request: Letter, agreement: Agreement, custody: Custody, recipe: Recipe) -> None:
    if agreement.plan.bound != entry_bound(recipe) or agreement.entries != Layout.of(recipe).entries:
        raise PolicyError("the round's bound and length do not follow from the recipe; use those that do.")
    if agreement.seed != secure.public_seed(agreement.round_id, agreement.participants):
        raise PolicyError(
            "the round's public seed does not follow from its participants' keys; somebody may have chosen it."
        )
    if not custody.peers:
        return
    signatures, known = request.fields.get("signatures", []), request.fields.get("known", [])
    if len(signatures) != len(agreement.participants):
        raise PolicyError("this site joins rounds with its peers only, and the participants' signatures did not come.")
    known = known or [""] * len(agreement.participants)
    for participant, signature, text in zip(agreement.participants, signatures, known, strict=True):
        names = (recipe.fingerprint, agreement.round_id, participant.name)
        content = node_keys.statement(*names, participant.key, str(text))
        key = custody.peers.get(participant.name)
        if key is None or not node_keys.is_signed(key, signature, content):
            raise PolicyError(f"{participant.name!r} is not one of this site's peers, or did not sign its key.")


def _known_to_others(request: Letter, agreement: Agreement) -> dict[str, Known]:
    """What every participant of a round knows of earlier sums, as the server relays it."""
    known = request.fields.get("known", [])
    if not isinstance(known, list) or len(known) not in (0, len(agreement.participants)):
        raise PolicyError("what participants know of earlier sums did not come for each of them; send it for all.")
    names = [participant.name for participant in agreement.participants]
    return {name: Known.from_text(text) for name, text in zip(names, known, strict=False)}


def _stage(request: Letter, custody: Custody, stage: str, step: StepFrom) -> Letter:
    kept, before = _round(request, custody), STAGES[STAGES.index(stage) - 1]

    def from_state() -> tuple[ClientState, bytes]:
        state = kept.get(f"state/{before}")
        if state is None:
            raise PolicyError(f"this site has not reached {stage!r} in round {kept.round_id!r}, or has left the round.")
        return step(ClientState.from_bytes(state))

    return _once(request, kept, stage, from_state)


def _once(request: Letter, kept: KeptRound, stage: str, step: Step) -> Letter:
    """The reply to a stage: computed once, and after that the same bytes for the same request.

    The state is saved before the reply. A site that dies in between computes both again, as nothing was sent.
    """
    asked, earlier = hashlib.sha256(request.content).digest(), kept.get(f"reply/{stage}")
    if earlier is not None:
        if earlier[:32] != asked:
            raise PolicyError(
                f"this site answered another {stage!r} of round {kept.round_id!r}; a site answers each stage only once."
            )
        return Letter({"status": "sent"}, earlier[32:])
    state, reply = step()
    if stage != STAGES[-1]:
        kept.put(f"state/{stage}", state.to_bytes())
    if kept.storage.is_lasting:
        kept.put(f"reply/{stage}", asked + reply)
    if stage == STAGES[-1]:
        kept.forget_secrets()  # the site does not need them any more
    return Letter({"status": "sent"}, reply)


def _with_recipe(request: Letter, site: Custodian) -> Letter:
    """The request with its recipe, if it has one, read, or with the error that reading it gave."""
    if "recipe" not in request.fields:
        return request
    found: Recipe | Exception
    try:
        found = _read_recipe(str(request.fields["recipe"]), site)
    except Exception as error:
        found = error
    return replace(request, fields={**request.fields, "recipe": found})


def _read_recipe(text: str, site: Custodian) -> Recipe:
    """The recipe in a text from outside, which is not parsed where the site's own copy is the same."""
    if not (isinstance(site, Site) and site.recipe):
        return Recipe.from_toml(text)
    own = Path(site.recipe).read_text(encoding="utf-8")
    if text == own:
        return Recipe.load(site.recipe)
    if len(text) > 2 * len(own) + SLACK:
        raise PolicyError("the server's recipe is not the one agreed on here: it is much longer; give both the same.")
    return Recipe.from_toml(text)


def _check_fields(request: Letter) -> None:
    """Raise `PolicyError` where a field of a request is not the list that it should be."""
    wrong = [name for name in LISTS if not isinstance(request.fields.get(name, []), list | tuple)]
    if wrong:
        raise PolicyError(f"the field {wrong[0]} of a request is not a list; send a list.")


def _recipe_of(request: Letter) -> Recipe:
    """The recipe of a request that `_with_recipe` has read; raises where it could not be read."""
    found = request.fields.get("recipe")
    if found is None:
        raise PolicyError("the request has no recipe; send the one agreed on with it.")
    if isinstance(found, Exception):
        raise found
    return found


def _round(request: Letter, custody: Custody) -> KeptRound:
    return KeptRound(custody.storage, str(request.fields.get("round", "")))


def _log_sentences(name: str, sentences: tuple[str, ...], size: int) -> None:
    if sentences:
        log.info("%s sends %s bytes. What they would reveal:", name, format(size, ","))
    for sentence in sentences:
        log.info("  - %s", sentence)


_ANSWERS: dict[str, Callable[[Letter, Custody], Letter]] = {
    "message": _message,
    "join": _join,
    "advertise": _advertise,
    "share": _share,
    "mask": _mask,
    "endorse": _endorse,
    "reveal": _reveal,
}
ACTIONS = tuple(_ANSWERS)
