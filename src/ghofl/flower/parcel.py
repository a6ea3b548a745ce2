"""What would leave a site under a recipe: packed once, shown to an administrator, and the same whenever it is asked for."""

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np

from ghofl import diagnostics
from ghofl.envelope import safetensors_header
from ghofl.errors import MessageError, PolicyError
from ghofl.flower.memory import Memory
from ghofl.flower.site import SimulatedSite, Site
from ghofl.message import MAX_HEADER, Message
from ghofl.privacy import as_vector, plan_of, protect
from ghofl.recipe import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What would leave a site under one recipe: a message, or the vector that a secure round hides.

    `sentences` say what it would reveal to someone who reads it.
    """

    content: bytes = field(repr=False)
    is_message: bool
    rows: int
    sentences: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """What an approval names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def message_id(self) -> str:
        """The id of the message, empty for a vector."""
        if not self.is_message:
            return ""
        return str(safetensors_header(self.content, "message", MAX_HEADER)["id"])

    @property
    def vector(self) -> np.ndarray:
        """The vector to hide."""
        assert not self.is_message
        return np.frombuffer(self.content, dtype="<i8").astype(np.int64, copy=False)


def pack(site: Site | SimulatedSite, recipe: Recipe) -> Parcel:
    """What would leave the site now, after its policy agreed to recipe and rows. Local noise is drawn here, once."""
    site.check_recipe(recipe)
    moments = site.moments(recipe)
    site.conditions().check_moments(moments)
    plan, is_secure = plan_of(recipe), recipe.privacy.secure
    has_noise = plan is not None and plan.mechanism == "local"
    if is_secure:
        left, content = protect(moments, recipe), b""
        content = as_vector(left, recipe).astype("<i8").tobytes()
    else:
        message = Message.of(moments, recipe, site.name)
        left, content = message.moments, message.to_bytes()
    sentences: tuple[str, ...] = ()
    if isinstance(site, Site):
        guarantee = plan.guarantee if has_noise and plan is not None else None
        sentences = tuple(diagnostics.audit(left, recipe, guarantee).sentences())
    if is_secure:
        sentences += ("It leaves masked: the server learns the sum over all sites of the round, not these numbers.",)
    return Parcel(content, not is_secure, moments.rows, sentences)


def remembered(memory: Memory, recipe: Recipe) -> Parcel | None:
    """The parcel that was packed for this recipe before, if the memory holds one."""
    told, content = memory.get(_key(recipe, "json")), memory.get(_key(recipe, "bin"))
    if told is None or content is None:
        return None
    values = json.loads(told)
    if hashlib.sha256(content).hexdigest() != values["sha256"]:
        raise MessageError(
            "the message kept in this site's folder is damaged; remove it there and let it be made again."
        )
    return Parcel(content, values["is_message"], values["rows"], tuple(values["sentences"]))


def remember(memory: Memory, recipe: Recipe, parcel: Parcel) -> None:
    """Keep a parcel, so that a second query gets the very same bytes: same id, same noise."""
    told = {
        "is_message": parcel.is_message,
        "rows": parcel.rows,
        "sentences": parcel.sentences,
        "sha256": parcel.sha256,
    }
    memory.put(_key(recipe, "bin"), parcel.content)
    memory.put(_key(recipe, "json"), json.dumps(told, indent=1, ensure_ascii=False).encode())


def ready(site: Site | SimulatedSite, recipe: Recipe, memory: Memory) -> Parcel:
    """The parcel that leaves, packed once and approved where the policy asks for it."""
    site.check_recipe(recipe)
    parcel = remembered(memory, recipe) if memory.is_lasting else None
    if parcel is None:
        parcel = pack(site, recipe)
        if memory.is_lasting:
            remember(memory, recipe, parcel)
    if site.conditions().confirm and memory.get(_approval(recipe)) != parcel.sha256.encode():
        raise PolicyError(
            f"this site's administrator has not approved recipe {recipe.fingerprint[:12]}… yet: "
            "ghofl flower check SITE.toml --recipe RECIPE.toml --confirm."
        )
    return parcel


def approve(memory: Memory, recipe: Recipe, parcel: Parcel) -> None:
    """Note that an administrator has seen this parcel and lets it go."""
    memory.put(_approval(recipe), parcel.sha256.encode())


def is_approved(memory: Memory, recipe: Recipe, parcel: Parcel) -> bool:
    """Whether an administrator approved this very parcel."""
    return memory.get(_approval(recipe)) == parcel.sha256.encode()


def _key(recipe: Recipe, suffix: str) -> str:
    return f"outbox/{recipe.fingerprint}.{suffix}"


def _approval(recipe: Recipe) -> str:
    return f"approved/{recipe.fingerprint}"
