"""What a site checks against its ledger and records in it before anything leaves."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ghofl.custody.budget import promise_of
from ghofl.custody.history import History, guarantee_facts
from ghofl.custody.known_sums import Known, told_by
from ghofl.custody.ledger import Ledger
from ghofl.custody.parcel import Parcel, mark_sent
from ghofl.custody.site import Custodian
from ghofl.custody.storage import Memory
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, ClientState
from ghofl.wire.letter import Letter


def record_question(action: str, query: Letter, about: Mapping[str, str], reply: Letter, memory: Memory) -> None:
    """Record a question, what it was about, and its outcome: an answer or a refusal."""
    facts = {"action": action, **about, "asked": hashlib.sha256(query.content).hexdigest()}
    status, ledger = str(reply.fields["status"]), Ledger.load(memory)
    if status == "refused":
        ledger.write(memory, "refused", **facts, why=str(reply.fields["why"])[:1000])
        return
    sent = {"status": status, "bytes": len(reply.payload), "sha256": hashlib.sha256(reply.content).hexdigest()}
    ledger.write(memory, "answered", **facts, **sent)


def record_message(site: Custodian, recipe: Recipe, parcel: Parcel, memory: Memory) -> None:
    """Record that a message leaves, the first time that it does.

    An exact message must not leave beside a secure sum that this site may be in: subtracted, it shows the others' sum. It
    may be in one as soon as its masked vector has left, whether it was asked to sign a survivor list or not.
    """
    history = History.load(memory)
    if any(release.key == parcel.message_id for release in history.releases):
        return
    promised = promise_of(recipe)
    is_exact = promised is None or promised.mechanism == "central"
    if is_exact:
        history.check_message(site.name, parcel.data, site.conditions().min_difference)
    facts = {"id": parcel.message_id, "recipe": recipe.fingerprint, "data": parcel.data, "rows": parcel.rows}
    Ledger.load(memory).write(memory, "sent", **facts, sha256=parcel.sha256, guarantee=guarantee_facts(promised))
    mark_sent(memory, recipe)


def record_join(round_id: str, recipe: Recipe, data: str, memory: Memory) -> None:
    """Record that the site joins a round."""
    ledger = Ledger.load(memory)
    if all(line.facts["round"] != round_id for line in ledger.of("joined")):
        ledger.write(memory, "joined", round=round_id, recipe=recipe.fingerprint, data=data)


def record_vector(agreement: Agreement, recipe: Recipe, data: str, memory: Memory) -> None:
    """Record that a masked vector leaves, and of which sums the others of the round knew: later rounds are told of them."""
    if all(release.key != agreement.round_id for release in History.load(memory).releases):
        facts = {"round": agreement.round_id, "recipe": recipe.fingerprint, "data": data, "cohort": _cohort(agreement)}
        told = told_by(load_known(agreement.round_id, memory))
        Ledger.load(memory).write(memory, "masked", **facts, told=told, guarantee=guarantee_facts(promise_of(recipe)))


def record_list(site: Custodian, state: ClientState, recipe: Recipe, data: str, memory: Memory) -> None:
    """Record that a survivor list is signed; raises where its sum, with earlier ones, would show too few sites.

    A round has one list: another one than the ledger names is refused, also where the reply to the first was lost.
    """
    history, facts = History.load(memory), _facts(state, recipe, data)
    history.check_list(facts["round"], facts["survivors"])
    fewest, others = site.conditions().min_difference, load_known(facts["round"], memory)
    history.check_sum(site.name, facts["survivors"], data, fewest, facts["round"], others)
    if all(listed.round != facts["round"] for listed in history.lists):
        Ledger.load(memory).write(memory, "endorsed", **facts)


def record_reveal(state: ClientState, recipe: Recipe, data: str, memory: Memory) -> None:
    """Record that shares are revealed; raises unless the ledger names the same survivors for this round."""
    history, facts = History.load(memory), _facts(state, recipe, data)
    history.check_list(facts["round"], facts["survivors"])
    if all(reveal.round != facts["round"] for reveal in history.reveals):
        Ledger.load(memory).write(memory, "revealed", **facts)


def check_round(
    site: Custodian, agreement: Agreement, recipe: Recipe, data: str, memory: Memory, others: Mapping[str, Known]
) -> None:
    """Raise unless this site may reveal in a round of these sites, and the sum of all of them would show no site."""
    history, round_id, cohort = History.load(memory), agreement.round_id, _cohort(agreement)
    history.check_reveal(round_id, recipe.fingerprint, data, cohort)
    if all(listed.round != round_id for listed in history.lists):
        history.check_sum(site.name, cohort, data, site.conditions().min_difference, round_id, others)


def save_known(round_id: str, others: Mapping[str, Known], memory: Memory) -> None:
    """Save what the participants of a round know of earlier sums, for when its survivor list comes."""
    texts = {name: known.to_text() for name, known in others.items()}
    memory.put(f"round/{round_id}/known", json.dumps(texts).encode())


def load_known(round_id: str, memory: Memory) -> dict[str, Known]:
    """What the participants of a round know of earlier sums, as saved before."""
    kept = json.loads(memory.get(f"round/{round_id}/known") or b"{}")
    return {name: Known.from_text(text) for name, text in kept.items()}


def _facts(state: ClientState, recipe: Recipe, data: str) -> dict[str, Any]:
    agreement = state.agreement
    survivors = agreement.names_of(map(int, agreement.marks(state.survivors).nonzero()[0]))
    return {
        "round": agreement.round_id,
        "recipe": recipe.fingerprint,
        "data": data,
        "cohort": _cohort(agreement),
        "survivors": sorted(survivors),
    }


def _cohort(agreement: Agreement) -> list[str]:
    return sorted(participant.name for participant in agreement.participants)
