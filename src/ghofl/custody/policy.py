"""A site's policy: its conditions before anything leaves it, whatever the server asks for."""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ghofl.custody.cohorts import fewest_survivors
from ghofl.custody.configuration import build_from, read_toml
from ghofl.custody.disclosure import Disclosure
from ghofl.errors import PolicyError, SiteError
from ghofl.moments import Moments
from ghofl.recipe import Recipe
from ghofl.secure import RoundRules
from ghofl.secure.graph import portion
from ghofl.secure.node_keys import load_public_key

_ANY_RECIPE = (
    "any_recipe answers every recipe, and whoever may send one after another under an epsilon could learn about rows from how "
    "they fit it. Give the site its own copy of the recipe, or write confirm = true."
)
_ORACLE = (
    "min_rows asks for exact rows: whether it is met would be an answer without noise, outside what epsilon bounds. "
    "Leave it out; 'ghofl flower check' shows the figure to the administrator."
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A site's conditions: enough rows, secure aggregation, a promise of epsilon, an administrator's approval.

    `min_rows` is the fewest rows in all; not together with epsilon, where refusing would be an answer without noise.
    `epsilon` and `delta` are the weakest promise accepted, `noise`
    the mechanisms trusted with it. With `confirm` nothing leaves before it was approved with ``ghofl flower check
    --confirm SHA256``. `peers` is a file of names and public keys: secure rounds are joined only with these sites under these
    keys. `any_peers` joins them with whomever the server names, and trusts it not to invent them; a secure round needs
    one of the two. `min_survivors` and `corruption` are the fewest sites a secure sum covers and the share of them,
    rounded up, that may collude with the server; `min_difference` is the fewest sites that any combination of the sums a
    site knows of may be about. All releases together may spend `max_epsilon` and `max_delta`, or else `epsilon` and
    `delta`. A recipe with an epsilon or secure aggregation is answered if the site has its own copy of it or `confirm`;
    `any_recipe` answers every recipe without an epsilon that the policy allows, one after another. `disclosure` are the
    rules of data custodians, by a preset.

    Guarantees
    ----------
    Texts of `PolicyError` repeat what recipe and policy say. About rows they say at most that a minimum is not met, and
    under an epsilon nothing.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> Policy(secure=True).check_recipe(Recipe(("a", "b"), Encoder(dim=2)))
    Traceback (most recent call last):
    ...
    ghofl.errors.PolicyError: this site sends only under secure aggregation, and the recipe has privacy.secure = false.
    """

    min_rows: int = 1
    secure: bool = False
    epsilon: float | None = None
    delta: float | None = None
    noise: tuple[str, ...] = ()
    confirm: bool = False
    peers: str = ""
    any_peers: bool = False
    min_survivors: int = 3
    corruption: float = 0.1
    min_difference: int = 3
    max_epsilon: float | None = None
    max_delta: float | None = None
    any_recipe: bool = False
    disclosure: Disclosure = field(default_factory=Disclosure)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.noise) - {"central", "distributed", "local"})
        if unknown:
            raise SiteError(f"policy: noise names {unknown}; write some of 'central', 'distributed', 'local'.")
        for name in ("min_rows", "min_survivors", "min_difference"):
            if getattr(self, name) < 0:
                raise SiteError(f"policy: {name} is {getattr(self, name)}; write 0 or more.")
        limits = {"epsilon": float("inf"), "delta": 1.0, "max_epsilon": float("inf"), "max_delta": 1.0}
        for name, most in limits.items():
            value = getattr(self, name)
            if value is not None and not 0 < value < most:  # also false for NaN
                raise SiteError(f"policy: {name} is {value}; write a number above 0 and below {most:g}.")
        if not 0 <= self.corruption < 1:
            raise SiteError(
                f"policy: corruption is {self.corruption}; write a share of the sites, 0 or more and below 1."
            )
        if (self.delta is not None or self.noise) and self.epsilon is None:
            raise SiteError("policy: delta and noise are about a promise; write epsilon too, e.g. epsilon = 8.0.")
        if self.epsilon is not None and self.delta is None:
            raise SiteError(
                f"policy: epsilon is {self.epsilon:g} and delta is missing, so a promise that may fail with any probability "
                "would be accepted; write the largest delta accepted, e.g. delta = 1e-5."
            )
        if self.epsilon is not None and not self.noise:
            raise SiteError(
                f"policy: epsilon is {self.epsilon:g}, and noise does not say whose noise is trusted; write noise "
                '= ["local", "distributed"], and add "central" if the server may see exact moments and add the noise.'
            )
        if (self.max_epsilon is None) != (self.max_delta is None):
            raise SiteError(
                "policy: max_epsilon and max_delta are one budget; write both, e.g. max_epsilon = 8.0 and max_delta = 1e-5."
            )
        if self.budget is not None and self._counts_rows:
            raise SiteError(f"policy: {_ORACLE}")
        if self.budget is not None and self.any_recipe:
            raise SiteError(f"policy: {_ANY_RECIPE}")
        if self.peers and self.any_peers:
            raise SiteError(
                "policy: peers names the sites that secure rounds are joined with, and any_peers joins them with "
                "anyone; write one of them."
            )

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read a policy from a TOML file; the path of `peers` is relative to it."""
        values = read_toml(path)
        if isinstance(values.get("peers"), str) and values["peers"]:
            values["peers"] = str(Path(path).parent / values["peers"])
        if isinstance(values.get("disclosure"), str):  # disclosure = "usual" is short for a table with that preset
            values["disclosure"] = {"preset": values["disclosure"]}
        return build_from(cls, values, path)

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise `PolicyError` unless the recipe promises what the policy asks for."""
        promised = recipe.privacy
        if self.secure and not promised.secure:
            raise PolicyError(
                "this site sends only under secure aggregation, and the recipe has privacy.secure = false."
            )
        if promised.secure and not (self.peers or self.any_peers):
            raise PolicyError(
                "this site's policy does not say with whom it joins secure rounds; its administrator can write peers, or "
                "any_peers = true if the server is trusted not to invent the other sites."
            )
        self._check_hand_out(recipe)
        self.disclosure.check_recipe(recipe)
        if promised.epsilon is not None and self._counts_rows:
            raise PolicyError(f"the recipe has an epsilon, and in this site's policy {_ORACLE}")
        if self.epsilon is None:
            return
        if promised.epsilon is None or promised.epsilon > self.epsilon:
            raise PolicyError(
                f"this site asks for epsilon of at most {self.epsilon:g}, and the recipe promises "
                f"{'none' if promised.epsilon is None else format(promised.epsilon, 'g')}."
            )
        if self.delta is not None and (promised.delta or 1.0) > self.delta:
            raise PolicyError(
                f"this site asks for delta of at most {self.delta:g}, and the recipe has {promised.delta:g}."
            )
        if self.noise and promised.noise not in self.noise:
            raise PolicyError(
                f"this site trusts noise that is {' or '.join(self.noise)}, and the recipe's is {promised.noise}."
            )

    def _check_hand_out(self, recipe: Recipe) -> None:
        """Raise where the exact total may be handed out with too few sites in it; a secure round checks its own sites."""
        sites = recipe.privacy.min_cohort
        if not recipe.privacy.hand_out or recipe.privacy.secure or self.min_difference <= 1:
            return
        if sites - 1 - portion(sites, self.corruption) < self.min_difference:
            raise PolicyError(
                f"the recipe hands the exact total out to its sites, and with privacy.min_cohort = {sites} one of them, with "
                f"those that may collude, could find the sum of fewer than the {self.min_difference} sites of this site's "
                "min_difference; agree on a larger min_cohort."
            )

    @property
    def budget(self) -> tuple[float, float] | None:
        """The epsilon and delta that all releases may spend together; None where the policy sets no limit."""
        if self.max_epsilon is not None and self.max_delta is not None:
            return self.max_epsilon, self.max_delta
        return None if self.epsilon is None or self.delta is None else (self.epsilon, self.delta)

    def check_agreed(self, recipe: Recipe) -> None:
        """Raise `PolicyError` for a protected recipe that nobody at the site agreed on.

        Whoever may send one recipe after another could learn from refusals, and average noise away.
        """
        if recipe.privacy.epsilon is not None and self.any_recipe and not self.confirm:
            raise PolicyError(f"the recipe has an epsilon, and in this site's policy {_ANY_RECIPE}")
        is_protected = recipe.privacy.secure or recipe.privacy.epsilon is not None or self.secure or self.budget
        if is_protected and not (self.confirm or self.any_recipe):
            raise PolicyError(
                "this site has neither its own copy of the recipe nor confirm = true in its policy, so it answers no "
                "recipe with an epsilon or secure aggregation; its administrator can add one of the two."
            )

    def check_moments(self, moments: Moments) -> None:
        """Raise `PolicyError` unless there are enough rows and every disclosure rule about them is met."""
        if moments.rows < self.min_rows:
            raise PolicyError(f"this site has fewer rows than its policy's min_rows of {self.min_rows}.")
        self.disclosure.check_moments(moments)

    @property
    def _counts_rows(self) -> bool:
        return self.min_rows > 1

    def round_rules(self, recipe: Recipe) -> RoundRules:
        """This site's conditions for a secure round of a recipe."""
        least, least_honest = fewest_survivors(recipe)
        return RoundRules(
            min_survivors=max(self.min_survivors, least), corruption=self.corruption, min_honest=max(2, least_honest)
        )

    def peer_keys(self) -> dict[str, EllipticCurvePublicKey]:
        """The public keys of the sites this one joins rounds with, by name; empty when it accepts any."""
        if not self.peers:
            return {}
        keys = load_peers(self.peers)
        if not keys:
            raise SiteError(f'{self.peers} names no site; write name = "ecdsa-sha2-nistp384 AAAA…" lines.')
        return keys

    def describe_rounds(self) -> str:
        """What the server learns in a secure round, in a sentence for people."""
        if self.peers:
            return (
                "It leaves masked, in a round with this site's peers only: the server learns the sum over the round's "
                "sites and not these numbers, unless more of those sites than planned for collude with it."
            )
        return (
            "It leaves masked, in a round with whomever the server names (any_peers): an honest server learns the sum "
            "over the round's sites and not these numbers; one that invents the other sites learns these numbers."
        )


def load_peers(path: str | Path) -> dict[str, EllipticCurvePublicKey]:
    """A TOML file of ``name = "ecdsa-sha2-nistp384 AAAA…"`` lines: sites and their nodes' public keys, each once.

    With one key under two names, its holder would be two sites of a round, and another one hide among fewer.
    """
    keys, holders = {}, {}
    for name, line in read_toml(path).items():
        if not isinstance(line, str):
            raise SiteError(f'{path}: {name} is {line!r}; write {name} = "ecdsa-sha2-nistp384 AAAA…", its .pub file.')
        key = load_public_key(line.encode(), f"{path}: {name}")
        other = holders.setdefault(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), name)
        if other != name:
            raise SiteError(f"{path}: {name} has the key of {other}; every site has a key of its own.")
        keys[name] = key
    return keys
