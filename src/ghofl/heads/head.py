"""What a head is: a record of how to get from Gaussians to a rule."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ghofl.heads.options import HeadOptions
from ghofl.heads.rules.base import Rule
from ghofl.notebook import Printable

Needs = tuple[tuple[str, ...], ...]
# What is said of a head that was fitted to one site's own rows, with what was changed for them.
PERSONAL = (
    "This head is personal: it was made with one site's own rows ({}), describes them, and promises no epsilon. Keep it at "
    "that site."
)


@dataclass(frozen=True, slots=True, repr=False)
class Head(Printable):
    """A way to get from Gaussians to a rule that scores features for every class; never from rows.

    `fit(gaussians, options)` gives the rule; `Options` is the record of its options and has its name. `needs` lists, best
    first, the sets of statistics that are enough; `needs_of` tells them from the options where they depend on those.
    `log_posteriors` says whether scores are log π_c + log p(x|c), up to a common term, and `is_calibrated` that they are
    logarithms of probabilities which need no temperature. Called with options, it is the head with these options given,
    such as ``MY_HEAD(width=2.0)``.

    Guarantees
    ----------
    The rule fitted on a total is the same however the rows were split over sites.

    Examples
    --------
    >>> from ghofl.heads.lda import HEAD
    >>> HEAD
    <Head: name lda; needs B; options shrinkage>
    """

    Options: type[HeadOptions]
    fit: Callable[..., Rule]
    needs: Needs
    log_posteriors: bool = True
    needs_of: Callable[[Any], Needs] | None = None
    is_calibrated: bool = False
    given: tuple[tuple[str, Any], ...] = field(default=(), kw_only=True)

    def __call__(self, **options: Any) -> "Head":
        """The head with these options; `HeadError` where it does not have them, or they cannot have these values."""
        self.Options.parse(options)
        return replace(self, given=tuple(sorted(options.items())))

    @property
    def name(self) -> str:
        """The name that users write."""
        return self.Options.head

    def needs_with(self, options: Any) -> Needs:
        """What the head needs with these options, best first."""
        return self.needs if self.needs_of is None else self.needs_of(options)

    def _facts(self) -> dict[str, object]:
        needs = ", or ".join(" and ".join(need) or "means" for need in self.needs)
        given = {"given": ", ".join(f"{name}={value}" for name, value in self.given)} if self.given else {}
        return {"name": self.name, "needs": needs, "options": ", ".join(self.Options.known()) or "none", **given}
