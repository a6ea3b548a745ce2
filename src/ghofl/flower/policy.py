"""What a site insists on before anything leaves it, whatever the server asks for."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from ghofl.errors import PolicyError, SiteError
from ghofl.flower.binding import load_public_key
from ghofl.flower.configuration import built, read_toml
from ghofl.moments import Moments
from ghofl.recipe import Recipe
from ghofl.secure import Policy as RoundPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """A site's conditions: enough rows, secure aggregation, a promise of epsilon, an administrator's approval.

    `min_rows` and `min_count` are the fewest rows in all and in every class that has any. `epsilon` and `delta` are
    the weakest promise accepted, `noise` the mechanisms trusted with it. With `confirm` nothing leaves that was not
    approved with ``ghofl flower check --confirm``. `peers` is a file of names and public keys; when it is given,
    secure rounds are joined only with these sites under these keys. `min_survivors` and `corruption` are the fewest
    sites a secure sum covers and the share of them that may work with the server.

    Guarantees
    ----------
    Texts of `PolicyError` repeat what recipe and policy say; of rows, no more than that a minimum is not met.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> Policy(secure=True).check_recipe(Recipe(("a", "b"), Encoder(dim=2)))
    Traceback (most recent call last):
    ...
    ghofl.errors.PolicyError: this site sends only under secure aggregation, and the recipe has privacy.secure = false.
    """

    min_rows: int = 1
    min_count: int = 0
    secure: bool = False
    epsilon: float | None = None
    delta: float | None = None
    noise: tuple[str, ...] = ()
    confirm: bool = False
    peers: str = ""
    min_survivors: int = 3
    corruption: float = 0.1

    def __post_init__(self) -> None:
        unknown = sorted(set(self.noise) - {"central", "distributed", "local"})
        if unknown:
            raise SiteError(f"policy: noise names {unknown}; write some of 'central', 'distributed', 'local'.")
        for name in ("min_rows", "min_count", "min_survivors"):
            if getattr(self, name) < 0:
                raise SiteError(f"policy: {name} is {getattr(self, name)}; write 0 or more.")
        if (self.delta is not None or self.noise) and self.epsilon is None:
            raise SiteError("policy: delta and noise are about a promise; write epsilon too, e.g. epsilon = 8.0.")

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read a policy from a TOML file; its `peers` are looked for beside it."""
        values = read_toml(path)
        if isinstance(values.get("peers"), str) and values["peers"]:
            values["peers"] = str(Path(path).parent / values["peers"])
        return built(cls, values, path)

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise `PolicyError` unless the recipe promises what the policy asks for."""
        promised = recipe.privacy
        if self.secure and not promised.secure:
            raise PolicyError(
                "this site sends only under secure aggregation, and the recipe has privacy.secure = false."
            )
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

    def check_moments(self, moments: Moments) -> None:
        """Raise `PolicyError` unless there are rows enough, in all and in every class that has any."""
        if moments.rows < self.min_rows:
            raise PolicyError(f"this site has fewer rows than its policy's min_rows of {self.min_rows}.")
        present = moments.counts[moments.counts > 0]
        if len(present) and present.min() < self.min_count:
            raise PolicyError(f"a class here has fewer rows than this site's policy's min_count of {self.min_count}.")

    @property
    def in_rounds(self) -> RoundPolicy:
        """What this site insists on in a secure round."""
        return RoundPolicy(min_survivors=self.min_survivors, corruption=self.corruption)

    def peer_keys(self) -> dict[str, EllipticCurvePublicKey]:
        """The public keys of the sites this one joins rounds with, by name; empty when it accepts any."""
        if not self.peers:
            return {}
        return load_peers(self.peers)


def load_peers(path: str | Path) -> dict[str, EllipticCurvePublicKey]:
    """A TOML file of ``name = "ecdsa-sha2-nistp384 AAAA…"`` lines: sites and their nodes' public keys."""
    keys = {}
    for name, line in read_toml(path).items():
        if not isinstance(line, str):
            raise SiteError(f'{path}: {name} is {line!r}; write {name} = "ecdsa-sha2-nistp384 AAAA…", its .pub file.')
        keys[name] = load_public_key(line.encode(), f"{path}: {name}")
    return keys
