"""A server that lies and one site that works with it, against the rounds of few sites.

The server shows one part of the honest sites that a victim survived, and the other that it vanished; the colluding site
signs both lists and gives its own shares. Where each part reaches the threshold, it has the victim's seed and its mask
key, and nothing hides the victim's vector any more.
"""

import numpy as np
import pytest

from ghofl.secure import Agreement, RefusedError, RoundRules, Share, advertise, combine, endorse, keys, plan, reveal
from ghofl.secure import client as client_side
from ghofl.secure.messages import Endorsement, Endorsements, MaskedVector, Reveal, Survivors, read
from ghofl.secure.wire import to_bytes

VICTIM, COLLUDER = "site-00", "site-01"


class Attack:
    """A round that was played honestly up to the masked vectors, and what server and colluder do from there."""

    def __init__(self, laid):
        self.laid, self.agreement = laid, laid.agreement
        self.victim, self.colluder = (self.agreement.seat_of(name) for name in (VICTIM, COLLUDER))
        honest = [name for name in laid.identities if name not in (VICTIM, COLLUDER)]
        half = (len(honest) - 1) // 2
        self.believe = [VICTIM, *honest[:half]]  # that the victim survived
        self.doubt = honest[half:]

    def lists(self):
        everyone = set(range(self.agreement.plan.clients))
        bitmap = self.agreement.bitmap
        there = Survivors(self.agreement.digest, bitmap(everyone), bitmap(()))
        gone = Survivors(self.agreement.digest, bitmap(everyone - {self.victim}), bitmap({self.victim}))
        return there, gone

    def opened(self, group, shown):
        """The reveals of a group that was shown a list, with the colluder's signature on the same list."""
        laid, signed, states = self.laid, [], {}
        for name in group:
            states[name], reply = endorse(laid.clients[name], to_bytes(shown), laid.identities[name])
            signed.append(read(Endorsement, reply, self.agreement))
        content = self.agreement.survivors_content(self.colluder, shown.survivors, shown.vanished)
        forged = Endorsement(self.agreement.digest, self.colluder, laid.identities[COLLUDER].sign(content))
        letters = {
            name: to_bytes(Endorsements(self.agreement.digest, self.agreement.seat_of(name), (*signed, forged)))
            for name in group
        }
        return [read(Reveal, reveal(states[name], letters[name])[1], self.agreement) for name in group]

    def own_share(self, kind):
        """The share of the victim's seed or key that the colluder holds."""
        state = self.laid.clients[COLLUDER]
        box = next(box for box in state.inbox if box.seat == self.victim)
        pair = client_side._open(state, keys.private_key(state.secrets.cipher_key), box)
        return Share.of_content(self.colluder + 1, pair[0 if kind == "seed" else 1])

    def secret(self, kind, reveals):
        shares = [self.own_share(kind)]
        for one in reveals:
            opened = one.seeds if kind == "seed" else one.keys
            shares += [Share.of_content(one.seat + 1, share.content) for share in opened if share.seat == self.victim]
        return combine(shares, self.agreement.plan.threshold)

    def vector(self):
        """The victim's vector, from its masked one and the secrets that both groups gave away."""
        there, gone = self.lists()
        seed = self.secret("seed", self.opened(self.believe, there))
        key = keys.private_key(self.secret("key", self.opened(self.doubt, gone)))
        ring, n = self.agreement.plan.ring, self.agreement.plan.clients
        masked = read(MaskedVector, self.laid.replies[VICTIM], self.agreement)
        publics = {message.seat: message.mask_key for message in self.laid.server.advertisements}
        pairs = {v: self.agreement.pair_seed(key, publics[v], self.victim, v) for v in range(n) if v != self.victim}
        above = [pair for seat, pair in pairs.items() if seat > self.victim]
        below = [pair for seat, pair in pairs.items() if seat < self.victim]
        elements = ring.unpack(masked.elements, self.agreement.entries)
        return ring.unmask(elements, plus=below, minus=[seed, *above])


@pytest.mark.parametrize("clients", [5, 7, 9])
def test_one_colluder_and_a_lying_server_uncover_a_site_where_no_corruption_was_planned_for(table, clients):
    """The attack works: what stops it below is the plan, not a mistake in playing it."""
    laid = table("endorse", clients=clients, agreed=plan(clients, bound=100, dropout=0.2, corruption=0.0))
    assert np.array_equal(Attack(laid).vector(), laid.vector(VICTIM))


@pytest.mark.parametrize("clients", [5, 7, 9])
def test_one_colluder_and_a_lying_server_learn_nothing_under_the_default_corruption(table, clients):
    laid = table("endorse", clients=clients, agreed=plan(clients, bound=100, dropout=0.2))
    attack = Attack(laid)
    with pytest.raises(RefusedError, match="of its circle signed this survivor list"):
        attack.vector()
    refused = 0
    for group, shown in zip((attack.believe, attack.doubt), attack.lists(), strict=True):
        try:
            attack.opened(group, shown)
        except RefusedError:
            refused += 1
    assert refused >= 1, "the seed or the key stays hidden, however the honest sites are split"


@pytest.mark.parametrize("clients", range(3, 13))
def test_sites_refuse_a_plan_that_takes_a_tenth_of_few_for_nobody(table, clients):
    laid = table(clients=clients, agreed=plan(clients, bound=100, dropout=0.0, corruption=0.0))
    with pytest.raises(RefusedError, match="withstands 0 corrupted clients"):
        advertise(laid.agreement, VICTIM, laid.identities[VICTIM], (), RoundRules())
    fine = Agreement("r1", laid.agreement.participants, bytes(32), 7, plan(clients, bound=100))
    assert advertise(fine, VICTIM, laid.identities[VICTIM], (), RoundRules())
