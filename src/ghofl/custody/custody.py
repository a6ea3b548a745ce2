"""What decides one answer of a site: its policy and its ledger, each read once, what may leave, and the lines about it.

Whoever holds the lock of the site's folder makes one `Custody`, and every check of that answer asks it: a policy that
changes meanwhile holds from the next answer on. A line is in the ledger before the thing it records leaves.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ghofl.custody.budget import check_budget, promise_of
from ghofl.custody.history import History, Permit, approval_error, guarantee_facts
from ghofl.custody.known_sums import Known, told_by
from ghofl.custody.ledger import Ledger
from ghofl.custody.policy import Policy
from ghofl.custody.site import Custodian
from ghofl.custody.storage import Storage
from ghofl.errors import PolicyError
from ghofl.outbox import Counted, outgoing
from ghofl.outbox.parcel import Parcel
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, ClientState
from ghofl.secure.graph import portion
from ghofl.shapes import Int64
from ghofl.wire.letter import Letter
from ghofl.wire.total import Total


class Custody:
    """What a site's policy and ledger say during one answer.

    Guarantees
    ----------
    Policy, peers and ledger are read at most once each. Nothing but this answer's own lines changes the ledger meanwhile.
    """

    @classmethod
    @contextmanager
    def locked(cls, site: Custodian, storage: Storage) -> Iterator["Custody"]:
        """The custody of one answer; while the block runs, nobody else reads or writes the site's folder."""
        with storage.lock():
            yield cls(site, storage)

    def __init__(self, site: Custodian, storage: Storage) -> None:
        self.site, self.storage = site, storage
        self.ledger = Ledger.load(storage) if storage.is_lasting else Ledger()
        self._agreed: set[str] = set()

    @cached_property
    def policy(self) -> Policy:
        """The site's policy."""
        return self.site.load_policy()

    @cached_property
    def peers(self) -> dict[str, EllipticCurvePublicKey]:
        """The public keys of the sites this one joins rounds with, by name; empty when it accepts any."""
        return self.policy.peer_keys()

    @cached_property
    def history(self) -> History:
        """What the ledger says about what may leave next."""
        return History.of(self.ledger)

    def record(self, what: str, **facts: Any) -> None:
        """Write a line to the ledger; nothing is written where nothing outlives the run."""
        if self.storage.is_lasting:
            self.ledger = self.ledger.write(self.storage, what, **facts)
            self.__dict__.pop("history", None)

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise `PolicyError` unless the recipe is the one this site agreed on and its policy allows it."""
        if recipe.fingerprint not in self._agreed:
            self.site.check_recipe(recipe, self.policy)
            self._agreed.add(recipe.fingerprint)

    def check_peers(self) -> None:
        """Raise `SiteError` where the policy names a file of peers that cannot be read."""
        assert self.peers is not None

    # What leaves

    def pack(self, recipe: Recipe, counted: Counted | None = None) -> Parcel:
        """What would leave the site now, after its policy has allowed recipe and rows; a line says so, and it is kept.

        Local noise is drawn here, once; a share of distributed noise is not, because every round has its own. `counted`
        are the site's rows, if they are already added up.
        """
        self.check_recipe(recipe)
        counted = counted or self.site.count(recipe)
        if recipe.privacy.epsilon is None:  # under an epsilon a refusal would be an answer without noise
            self.policy.check_moments(counted.moments)
            if counted.moments.rows > recipe.max_rows:
                raise PolicyError("this site's rows do not fit the recipe's limits.")
        left = outgoing(recipe, counted, self.site.name)
        rounds = (self.policy.describe_rounds(),) if recipe.privacy.secure else ()
        parcel = Parcel.of(left, self.site.audit(left) + rounds)
        self.record("packed", recipe=recipe.fingerprint, sha256=parcel.sha256, data=parcel.data)
        if self.storage.is_lasting:
            self.storage.put(_key(recipe.fingerprint, "bin"), parcel.content)
            self.storage.put(_key(recipe.fingerprint, "json"), parcel.facts)
        return parcel

    def kept_parcel(self, recipe: Recipe) -> Parcel | None:
        """What was packed for this recipe before, if it was kept."""
        return kept_parcel(self.storage, recipe.fingerprint)

    def parcel_to_send(self, recipe: Recipe, cohort: Iterable[str] | None = None, round_id: str = "") -> Parcel:
        """The parcel that leaves, packed once; within the budget, not declined, and approved where the policy asks for it."""
        self.check_recipe(recipe)
        parcel, history, policy = self.kept_parcel(recipe), self.history, self.policy
        self.check_not_declined(recipe)
        check_budget(policy, history.releases, recipe, round_id or ("" if parcel is None else parcel.message_id))
        if parcel is None and policy.confirm and recipe.fingerprint not in history.approvals:
            raise approval_error(recipe)  # before an approval, other errors could reveal something about rows
        parcel = parcel or self.pack(recipe)
        if policy.confirm:
            history.check_approval(recipe, parcel.sha256, parcel.data, cohort, round_id)
        return parcel

    def allow(self, permit: Permit) -> None:
        """Record what an administrator allows: the parcel that was shown or, without one, another secure round."""
        shown = {"parcel": permit.parcel} if permit.parcel else {}
        self.record(
            "approved" if shown else "reopened", recipe=permit.recipe, data=permit.data, cohort=permit.cohort, **shown
        )

    def decline(self, recipe: Recipe, parcel: Parcel) -> None:
        """Record that an administrator wants nothing to leave under a recipe; an earlier approval no longer holds."""
        self.record("declined", recipe=recipe.fingerprint, data=parcel.data, parcel=parcel.sha256)

    def check_not_declined(self, recipe: Recipe) -> None:
        """Raise `PolicyError` where the site's administrator wants nothing to leave under the recipe."""
        if recipe.fingerprint in self.history.declined:
            raise PolicyError(
                f"this site's administrator has declined recipe {recipe.fingerprint[:12]}…, so nothing leaves under it until it "
                "is approved."
            )

    # Lines about what leaves

    def record_request(self, action: str, request: Letter, about: Mapping[str, str], reply: Letter) -> None:
        """Record a request, what it was about, and its outcome: an answer or a refusal."""
        facts = {"action": action, **about, "asked": hashlib.sha256(request.content).hexdigest()}
        status = str(reply.fields["status"])
        if status == "refused":
            self.record("refused", **facts, why=str(reply.fields["why"])[:1000])
            return
        sent = {"status": status, "bytes": len(reply.payload), "sha256": hashlib.sha256(reply.content).hexdigest()}
        self.record("answered", **facts, **sent)

    def record_message(self, recipe: Recipe, parcel: Parcel) -> None:
        """Record that a message leaves, the first time that it does.

        An exact message must not leave beside a secure sum that this site may be in: subtracted, it shows the others' sum.
        It may be in one as soon as its masked vector has left, whether it was asked to sign a survivor list or not.
        """
        if self.history.has_left(parcel.message_id):
            return
        promised = promise_of(recipe)
        if promised is None or promised.mechanism == "central":
            self.history.check_message(self.site.name, parcel.data, self.policy.min_difference)
        facts = {"id": parcel.message_id, "recipe": recipe.fingerprint, "data": parcel.data, "rows": parcel.rows}
        self.record("sent", **facts, sha256=parcel.sha256, guarantee=guarantee_facts(promised))
        if self.storage.is_lasting:  # shows beside the ledger that one left: a ledger without the line is a damaged one
            self.storage.put(_key(recipe.fingerprint, "sent"), b"")

    def record_join(self, round_id: str, recipe: Recipe, data: str) -> None:
        """Record that the site joins a round."""
        if all(line.facts["round"] != round_id for line in self.ledger.of("joined")):
            self.record("joined", round=round_id, recipe=recipe.fingerprint, data=data)

    def record_vector(self, agreement: Agreement, recipe: Recipe, data: str, others: Mapping[str, Known]) -> None:
        """Record that a masked vector leaves, and which sums the `others` knew of: later rounds are told of them."""
        if not self.history.has_left(agreement.round_id):
            facts = {"round": agreement.round_id, "recipe": recipe.fingerprint, "data": data}
            facts |= {"cohort": _cohort(agreement), "told": told_by(others)}
            self.record("masked", **facts, guarantee=guarantee_facts(promise_of(recipe)))

    def record_list(self, state: ClientState, recipe: Recipe, data: str, others: Mapping[str, Known]) -> None:
        """Record that a survivor list is signed; raises where its sum, with earlier ones, would show too few sites.

        A round has one list: another one than the ledger names is refused, also where the reply to the first was lost.
        """
        self.check_not_declined(recipe)
        facts = _survivors(state, recipe, data)
        self.history.check_list(facts["round"], facts["survivors"])
        self._check_sum(recipe, facts["survivors"], data, facts["round"], others)
        if all(listed.round != facts["round"] for listed in self.history.lists):
            self.record("endorsed", **facts)

    def record_reveal(self, state: ClientState, recipe: Recipe, data: str) -> None:
        """Record that shares are revealed; raises unless the ledger names the same survivors for this round."""
        facts = _survivors(state, recipe, data)
        self.history.check_list(facts["round"], facts["survivors"])
        if all(reveal.round != facts["round"] for reveal in self.history.reveals):
            self.record("revealed", **facts)

    def record_evaluation(self, recipe: Recipe, rows: Int64[np.ndarray, " classes"], data: str, content: bytes) -> None:
        """Record that an evaluation of a head leaves; raises `PolicyError` where the site's policy does not allow it.

        `rows` are the rows per class that it counts, `data` is their version. The same evaluation again is the same release.

        Guarantees
        ----------
        Counts of right and wrong predictions are exact. So none leaves a site that has a budget, or that has sent anything
        under an epsilon; and once one has left, no guarantee covers all releases together.
        """
        key, policy = hashlib.sha256(content).hexdigest(), self.policy
        self.check_not_declined(recipe)
        if self.history.has_left(key):
            return
        if policy.budget is not None or any(release.guarantee for release in self.history.releases):
            raise PolicyError(
                "a report counts right and wrong predictions exactly, and this site's rows are under an epsilon; "
                "judge the head on other rows, with their own site file and folder."
            )
        least, present = policy.disclosure.number("class_rows"), rows[rows > 0]
        if rows.sum() < policy.min_rows or (len(present) and present.min() < least):
            raise PolicyError(
                f"the report would count fewer rows than this site's policy allows: {policy.min_rows} in all, {least} of "
                "each class that has any."
            )
        facts = {"id": key, "recipe": recipe.fingerprint, "data": data, "rows": int(rows.sum())}
        self.record("reported", **facts, guarantee=None)

    def record_total(self, total: Total) -> None:
        """Record that the site has the exact total of these sites, the first time."""
        digest = total.moments.sha256
        if all(line.facts["total"] != digest for line in self.ledger.of("received")):
            sites = sorted(entry.name for entry in total.roster)
            self.record("received", total=digest, recipe=total.recipe.fingerprint, sites=sites)

    def check_round(self, agreement: Agreement, recipe: Recipe, data: str, others: Mapping[str, Known]) -> None:
        """Raise unless this site may reveal in a round of these sites, and the sum of all of them would show no site."""
        self.check_not_declined(recipe)
        round_id, cohort = agreement.round_id, _cohort(agreement)
        self.history.check_reveal(round_id, recipe.fingerprint, data, cohort)
        if all(listed.round != round_id for listed in self.history.lists):
            self._check_sum(recipe, cohort, data, round_id, others)

    def _check_sum(
        self, recipe: Recipe, sites: list[str], data: str, round_id: str, others: Mapping[str, Known]
    ) -> None:
        policy = self.policy
        colluders = portion(len(sites), policy.corruption) if recipe.privacy.hand_out else None
        self.history.check_sum(self.site.name, sites, data, policy.min_difference, round_id, others, colluders)


def kept_parcel(storage: Storage, fingerprint: str) -> Parcel | None:
    """What was packed for the recipe with this fingerprint, if it was kept."""
    facts, content = (storage.get(_key(fingerprint, suffix)) for suffix in ("json", "bin"))
    return None if facts is None or content is None else Parcel.from_files(content, facts)


def _survivors(state: ClientState, recipe: Recipe, data: str) -> dict[str, Any]:
    agreement = state.agreement
    survivors = agreement.names_of(map(int, agreement.marks(state.survivors).nonzero()[0]))
    facts = {"round": agreement.round_id, "recipe": recipe.fingerprint, "data": data}
    return {**facts, "cohort": _cohort(agreement), "survivors": sorted(survivors)}


def _cohort(agreement: Agreement) -> list[str]:
    return sorted(participant.name for participant in agreement.participants)


def _key(fingerprint: str, suffix: str) -> str:
    return f"outbox/{fingerprint}.{suffix}"
