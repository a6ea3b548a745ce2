"""What an administrator sees and decides at a site: what would leave, whether it may, and further secure rounds."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from ghofl.custody.custody import Custody
from ghofl.custody.disclosure import Verdict
from ghofl.custody.history import History, Permit, Revealed
from ghofl.custody.site import Site
from ghofl.errors import PolicyError, SiteError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.outbox import Counted
from ghofl.outbox.parcel import Parcel, smallest_class
from ghofl.recipe import Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """What would leave a site under a recipe, and what prevents it.

    `rows` are the site's rows as they are now, None where there is no file to read. `bytes` is how many leave, of a vector
    in a round of `sites` sites. `is_revealed` says that the site has already revealed in a round, so that a vector does
    not leave it again.
    """

    site: str
    recipe: Recipe
    parcel: Parcel
    rows: Counted | None
    rules: tuple[Verdict, ...]
    bytes: int
    sites: int
    needs_approval: bool = False
    is_approved: bool = False
    is_declined: bool = False
    is_revealed: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it does not leave, or should not be sent; what is clipped decides nothing under an epsilon."""
        is_clipped = self.parcel.clipped > TOLERATED_CLIPPING and self.recipe.privacy.epsilon is None
        return self.is_revealed or self.is_declined or is_clipped

    @property
    def is_outdated(self) -> bool | None:
        """Whether the rows have changed since the parcel was packed; None when that cannot be known."""
        return self.parcel.is_outdated(self.rows)

    @property
    def state(self) -> str:
        """Whether it leaves, in words that follow "it"."""
        if self.is_declined:
            return "is declined: nothing leaves under this recipe until it is approved"
        if self.is_revealed:
            return "does not leave: this folder has already revealed in a round, see 'ghofl flower reopen'"
        if self.is_approved:
            return "is approved, as it was packed earlier" if self.is_outdated else "is approved"
        return "waits for --confirm SHA256" if self.needs_approval else "leaves when it is asked for"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to know before it leaves: doubts about it first, then what it would reveal, then the rules."""
        return (*self.parcel.doubts(self.recipe, self.rows), *self.parcel.sentences, *map(str, self.rules))

    def to_dict(self) -> dict[str, Any]:
        """The inspection as plain values."""
        moments = None if self.rows is None else self.rows.moments
        return {
            "site": self.site,
            "recipe": self.recipe.fingerprint,
            "rows": self.parcel.rows,
            "rows_now": None if moments is None else moments.rows,
            "smallest_class": None if moments is None else smallest_class(moments),
            "rows_changed": self.is_outdated,
            "clipped_share": self.parcel.clipped,
            "left_out": self.parcel.left_out,
            "bytes": self.bytes,
            "secure": not self.parcel.is_message,
            **({} if self.parcel.is_message else {"sites": self.sites}),
            "held": self.is_held,
            "sha256": self.parcel.sha256,
            "data": self.parcel.data,
            "reveals": list(self.parcel.sentences),
            "approved": self.is_approved,
            "declined": self.is_declined,
            "approval_needed": self.needs_approval,
            "revealed": self.is_revealed,
            "disclosure": [asdict(verdict) for verdict in self.rules],
        }


@dataclass(frozen=True, slots=True)
class Reopening:
    """A further secure round that a site's folder is, or would be, opened for, and what its sum would show."""

    site: str
    opening: Permit
    sha256: str
    is_done: bool
    reveals: tuple[Revealed, ...]
    risks: tuple[str, ...]
    doubts: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The re-opening as plain values."""
        return {
            "site": self.site,
            "recipe": self.opening.recipe,
            "data": self.opening.data,
            "cohort": list(self.opening.cohort),
            "sha256": self.sha256,
            "reopened": self.is_done,
            "reveals": [{k: asdict(r)[k] for k in ("round", "recipe", "data", "cohort")} for r in self.reveals],
            "risks": list(self.risks),
        }


class Decision:
    """Whether something was decided: before, Ctrl-C ends a command without a line in the ledger; after, it comes too late."""

    is_made = False

    @contextmanager
    def heeding_ctrl_c(self) -> Iterator["Decision"]:
        """While the block runs, Ctrl-C ends it until something is decided; after that the block says what was."""

        def stop(*_: object) -> None:
            if not self.is_made:
                raise KeyboardInterrupt

        is_heeded = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        if not is_heeded or before is signal.SIG_IGN:  # a shell's background job
            yield self
            return
        signal.signal(signal.SIGINT, stop)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)


def inspect(
    site: Site,
    recipe: Recipe,
    *,
    again: bool = False,
    cohort: Sequence[str] = (),
    tell: Callable[[str], None] | None = None,
) -> Inspection:
    """What would leave a site under a recipe; packed `again` from the rows as they are now.

    `cohort` are the sites of the secure round that its size is computed for. `tell` is called for each rule that refuses,
    before anything is packed.
    """
    with Custody.locked(site, site.storage()) as custody:  # a node may be answering a request just now
        custody.check_recipe(recipe)
        custody.check_peers()
        rows, parcel, policy = rows_now(site, recipe), None if again else custody.kept_parcel(recipe), custody.policy
        rules = () if rows is None else policy.disclosure.verdicts(rows.moments, recipe)
        if tell is not None and recipe.privacy.epsilon is None:  # a refusal to the server says less than this
            for verdict in rules:
                if verdict.is_refusal:
                    tell(str(verdict))
        parcel = parcel or custody.pack(recipe, rows)
        named = len({name.strip() for name in cohort} - {""})
        sites = named or policy.round_rules(recipe).min_survivors
        size = parcel.bytes_leaving(recipe, sites)
        return _with_decisions(Inspection(site.name, recipe, parcel, rows, rules, size, sites), custody)


def approve(
    found: Inspection, site: Site, shown: str, cohort: Sequence[str] = (), decision: Decision | None = None
) -> Inspection:
    """An inspection after its administrator has approved the bytes whose sha256 was `shown`; a line in the ledger says so.

    In secure rounds it is for one, of exactly the `cohort`, or of the first one where none is given.

    Guarantees
    ----------
    Where other bytes would leave by now, or the rows have changed since these were packed, nothing is approved
    (test_an_approval_is_for_the_bytes_that_were_shown). Bytes that have left may be approved for another round whatever the
    rows are now, because the difference of two sums would show what changed.
    """
    recipe = found.recipe
    with Custody.locked(site, site.storage()) as custody:
        custody.check_recipe(recipe)
        parcel = custody.kept_parcel(recipe) or custody.pack(recipe)
        _check_shown(shown, parcel, recipe)
        is_known = any(
            left.recipe == recipe.fingerprint and left.data == parcel.data for left in custody.history.releases
        )
        if found.is_outdated and not is_known:
            raise SiteError(
                f"the rows have changed since what has the sha256 {parcel.sha256} was packed, so nothing was approved; pack "
                "them as they are now with `again`, and confirm the sha256 that is shown then."
            )
        permit = Permit.of(site.name, recipe, parcel.data, cohort, parcel.sha256)
        if decision is not None:
            decision.is_made = True
        custody.allow(permit)
        return _with_decisions(found, custody)


def decline(found: Inspection, site: Site, decision: Decision | None = None) -> Inspection:
    """An inspection after its administrator has declined it: nothing leaves under the recipe, whatever was approved before.

    It holds until something is approved under the recipe.
    """
    with Custody.locked(site, site.storage()) as custody:
        custody.check_recipe(found.recipe)
        if decision is not None:
            decision.is_made = True
        custody.decline(found.recipe, found.parcel)
        return _with_decisions(found, custody)


def _check_shown(shown: str, parcel: Parcel, recipe: Recipe) -> None:
    """Raise `SiteError` unless what would leave has the sha256 that an administrator was shown."""
    if shown.strip().lower() != parcel.sha256:
        raise SiteError(
            f"what would leave under recipe {recipe.fingerprint[:12]}… has the sha256 {parcel.sha256}, and {shown[:64]!r} was "
            "confirmed, so nothing was approved; look at it without `confirm`, and then confirm all 64 digits."
        )


def reopen(
    site: Site, recipe: Recipe, cohort: Sequence[str], *, confirm: str | None = None, decision: Decision | None = None
) -> Reopening:
    """Allow a site that has revealed another round of these sites, with what has the sha256 that `confirm` is.

    Without it, only say what that means.
    """
    with Custody.locked(site, site.storage()) as custody:
        custody.check_recipe(recipe)
        history = custody.history
        if not history.reveals:
            raise SiteError(
                "nothing was revealed from this folder yet; join its first round without re-opening. "
                + _rounds(history)
            )
        parcel = custody.kept_parcel(recipe) or custody.pack(recipe)
        named = cohort if any(name.strip() for name in cohort) else [site.name]
        opening = Permit.of(site.name, recipe, parcel.data, named)
        history.check_sum(site.name, opening.cohort, parcel.data, custody.policy.min_difference)
        doubts = parcel.doubts(recipe, rows_now(site, recipe))
        if confirm is not None:
            _check_shown(confirm, parcel, recipe)
            if decision is not None:
                decision.is_made = True
            custody.allow(opening)
        risks = history.risks(opening)
        return Reopening(site.name, opening, parcel.sha256, confirm is not None, history.reveals, risks, doubts)


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


def _with_decisions(found: Inspection, custody: Custody) -> Inspection:
    """An inspection with what policy and ledger say about what it shows."""
    recipe, parcel, history = found.recipe, found.parcel, custody.history
    return replace(
        found,
        needs_approval=custody.policy.confirm,
        is_approved=_is_approved(history, recipe, parcel),
        is_declined=recipe.fingerprint in history.declined,
        is_revealed=not parcel.is_message and not history.allows(recipe.fingerprint, parcel.data),
    )


def _is_approved(history: History, recipe: Recipe, parcel: Parcel) -> bool:
    """Whether an administrator approved exactly this parcel, and the approval is not used up."""
    try:
        history.check_approval(recipe, parcel.sha256, parcel.data)
    except PolicyError:
        return False
    return True


def _rounds(history: History) -> str:
    """Which rounds a folder was in without revealing, in a sentence."""
    masked = [release.key for release in history.releases if not release.is_message and not release.is_report]
    if not masked:
        return "It was in no round."
    signed = {listed.round for listed in history.lists}
    said = [f"{key[:8]} (it {'signed the list of sites' if key in signed else 'sent its vector'})" for key in masked]
    return f"It revealed in none of its rounds: {', '.join(said)}."
