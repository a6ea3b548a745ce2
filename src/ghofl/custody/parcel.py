"""What would leave a site under a recipe: packed once, shown to an administrator, and the same bytes every time."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ghofl.custody.budget import check_budget
from ghofl.custody.history import History, Permit, approval_error
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Custodian, Site
from ghofl.custody.storage import Memory
from ghofl.errors import MessageError, PolicyError, SiteError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.moments import Moments
from ghofl.outbox.outgoing import Counted, outgoing
from ghofl.privacy import as_vector, entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import masked_bytes
from ghofl.wire.envelope import safetensors_header
from ghofl.wire.message import MAX_HEADER

_TO_REPAIR = (
    "Under an epsilon these figures are for this site's administrator only, and never decide whether it leaves: repair files or "
    "labels because they are wrong, not because of what one row of them does."
)


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What would leave a site under one recipe: a message, or the vector that a secure round hides.

    `sentences` say what it would reveal to someone who reads it. `data` is the version of the rows it was made from
    (see `RowVersion`); it never leaves the site. `clipped` is the share of entries outside the grid, and `left_out` how many
    rows are not in it because they do not fit a recipe with an epsilon.
    """

    content: bytes = field(repr=False)
    is_message: bool
    rows: int
    sentences: tuple[str, ...]
    data: str = ""
    clipped: float = 0.0
    left_out: int = 0

    @property
    def sha256(self) -> str:
        """The hash that an approval names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def message_id(self) -> str:
        """The id of the message, empty for a vector."""
        if not self.is_message:
            return ""
        return str(safetensors_header(self.content, "message", MAX_HEADER)["id"])

    @property
    def vector(self) -> np.ndarray:
        """The vector to hide, before the site's share of distributed noise."""
        assert not self.is_message
        return np.frombuffer(self.content, dtype="<i8").astype(np.int64, copy=False)


def pack(site: Custodian, recipe: Recipe, counted: Counted | None = None) -> Parcel:
    """What would leave the site now, after its policy has allowed recipe and rows.

    Local noise is drawn here, once; a share of distributed noise is not, because every round has its own. `counted`
    are the site's rows, if they are already added up.
    """
    site.check_recipe(recipe)
    counted = counted or site.count(recipe)
    moments = counted.moments
    if recipe.privacy.epsilon is None:  # under an epsilon a refusal would be an answer without noise
        site.conditions().check_moments(moments)
        if moments.rows > recipe.max_rows:
            raise PolicyError("this site's rows do not fit the recipe's limits.")
    left, is_secure = outgoing(recipe, counted, site.name), recipe.privacy.secure
    content = left.message.to_bytes() if left.message else as_vector(left.moments, recipe).astype("<i8").tobytes()
    sentences = site.audit(left)
    if is_secure:
        sentences += (site.conditions().describe_rounds(),)
    return Parcel(
        content, not is_secure, moments.rows, sentences, counted.version, counted.clipping.share, counted.not_counted
    )


def bytes_leaving(parcel: Parcel, recipe: Recipe, sites: int) -> int:
    """How many bytes leave, as the ledger counts them: of the message, or of the masked vector in a round of so many sites."""
    if parcel.is_message:
        return len(parcel.content)
    return masked_bytes(len(parcel.vector), sites, entry_bound(recipe))


def fewest_bytes(parcel: Parcel, recipe: Recipe, site: Custodian) -> int:
    """How many bytes leave in the smallest round that the site joins."""
    return bytes_leaving(parcel, recipe, site.conditions().round_rules(recipe).min_survivors)


def rows_now(site: Site, recipe: Recipe) -> Counted | None:
    """The moments of a site's rows as they are now, for its administrator; None when there is no file to read."""
    try:
        counted = site.count(recipe)
    except FileNotFoundError:
        return None
    if counted.moments.rows > recipe.max_rows and recipe.privacy.epsilon is None:
        raise SiteError(
            f"site {site.name!r} has {counted.moments.rows:,} rows, and the recipe allows {recipe.max_rows:,} per site; send "
            "fewer, or agree on a recipe with a larger max_rows under [limits]."
        )
    return counted


def smallest_class(moments: Moments) -> int:
    """The rows of the smallest class that has any; 0 when none has."""
    return int(moments.counts[moments.counts > 0].min(initial=np.iinfo(np.int64).max)) if moments.rows else 0


def doubts(parcel: Parcel, recipe: Recipe, rows: Counted | None) -> tuple[str, ...]:
    """What an administrator should know about a parcel before it leaves, given the site's rows as they are now."""
    out, is_private = (), recipe.privacy.epsilon is not None
    if parcel.clipped > TOLERATED_CLIPPING:
        advice = "" if rows is None else f"; {rows.clipping.advice(recipe)}"
        out += (
            f"WARNING: {parcel.clipped:.1%} of its entries fell outside the grid and were clipped (up to "
            f"{TOLERATED_CLIPPING:.1%} is harmless){'' if is_private else ', so it should not be sent'}{advice}.",
        )
    if parcel.left_out:
        out += (
            f"WARNING: {parcel.left_out:,} rows are not in it, beside {parcel.rows:,} that are: their label is not a class of "
            "the recipe, a value breaks the schema or is not finite, or a sample could not be read.",
        )
    if is_private and parcel.rows > recipe.max_rows:
        out += (
            f"WARNING: it is made of {parcel.rows:,} rows, and the recipe expects at most {recipe.max_rows:,} per site; larger "
            "sums were cut to what that many rows can add up to.",
        )
    if is_private and out:
        out += (_TO_REPAIR,)
    if rows is None:
        out += ("WARNING: the rows it was made from are no longer there; this is what was packed before.",)
    elif is_outdated(parcel, rows):
        out += (
            "WARNING: the rows have changed since this was packed. What was packed before is what leaves and what an "
            "approval is for; --again makes it from the rows as they are now.",
        )
    return out


def is_outdated(parcel: Parcel, rows: Counted | None) -> bool | None:
    """Whether a parcel was made of other rows than there are now; None when that cannot be known."""
    return None if rows is None or not parcel.data else rows.version != parcel.data


def recall(memory: Memory, recipe: Recipe) -> Parcel | None:
    """The parcel that was packed for this recipe before, if the memory holds one."""
    text, content = memory.get(_key(recipe, "json")), memory.get(_key(recipe, "bin"))
    if text is None or content is None:
        return None
    values = json.loads(text)
    if hashlib.sha256(content).hexdigest() != values["sha256"]:
        raise MessageError("the message kept in this site's folder is damaged; remove it there, and it is made again.")
    facts = (values["is_message"], values["rows"], tuple(values["sentences"]))
    return Parcel(content, *facts, values["data"], values["clipped"], values["left_out"])


def remember(memory: Memory, recipe: Recipe, parcel: Parcel) -> None:
    """Keep a parcel, so that a second query gets the same bytes: same id, same noise; a line of the ledger says so."""
    values = {
        "is_message": parcel.is_message,
        "rows": parcel.rows,
        "sentences": parcel.sentences,
        "sha256": parcel.sha256,
        "data": parcel.data,
        "clipped": parcel.clipped,
        "left_out": parcel.left_out,
    }
    Ledger.load(memory).write(memory, "packed", recipe=recipe.fingerprint, sha256=parcel.sha256, data=parcel.data)
    memory.put(_key(recipe, "bin"), parcel.content)
    memory.put(_key(recipe, "json"), json.dumps(values, indent=1, ensure_ascii=False).encode())


def mark_sent(memory: Memory, recipe: Recipe) -> None:
    """Show beside the ledger that a message under this recipe left, so that a ledger without the line is a damaged one."""
    memory.put(_key(recipe, "sent"), b"")


def prepare_parcel(
    site: Custodian, recipe: Recipe, memory: Memory, cohort: Iterable[str] | None = None, round_id: str = ""
) -> Parcel:
    """The parcel that leaves, packed once; within the site's budget, and approved where the policy asks for it."""
    site.check_recipe(recipe)
    history, policy = History.load(memory), site.conditions()
    parcel = recall(memory, recipe) if memory.is_lasting else None
    if memory.is_lasting:
        check_budget(policy, history.releases, recipe, round_id or ("" if parcel is None else parcel.message_id))
    if parcel is None and policy.confirm and recipe.fingerprint not in history.approvals:
        raise approval_error(recipe)  # before an approval, other errors could reveal something about rows
    if parcel is None:
        parcel = pack(site, recipe)
        if memory.is_lasting:
            remember(memory, recipe, parcel)
    if policy.confirm:
        history.check_approval(recipe, parcel.sha256, parcel.data, cohort, round_id)
    return parcel


def approve(memory: Memory, permit: Permit) -> None:
    """Record that an administrator has seen a parcel and approved it."""
    facts = {"recipe": permit.recipe, "parcel": permit.parcel, "data": permit.data}
    Ledger.load(memory).write(memory, "approved", **facts, cohort=permit.cohort, rounds=permit.rounds)


def is_approved(memory: Memory, recipe: Recipe, parcel: Parcel) -> bool:
    """Whether an administrator approved exactly this parcel, and the approval is not used up."""
    try:
        History.load(memory).check_approval(recipe, parcel.sha256, parcel.data)
    except PolicyError:
        return False
    return True


def _key(recipe: Recipe, suffix: str) -> str:
    return f"outbox/{recipe.fingerprint}.{suffix}"
