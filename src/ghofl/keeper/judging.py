"""A site's answer to how good heads of a total are on its own rows: counts per head, by exact leave-out.

Whoever asks sends the total, and a made-up one would be a question of its own about rows. So a site answers only under a
recipe that hands totals out, on rows that it took part with, and looks at few such questions in all; its policy decides about
each answer as about every report on a head.
"""

import hashlib
import json
from dataclasses import replace

from ghofl.custody.custody import Custody
from ghofl.errors import PolicyError
from ghofl.evaluation.leave_out import OwnRows, assign_folds, leave_out
from ghofl.evaluation.selection import Report
from ghofl.heads.spec import HeadSpec
from ghofl.moments import Moments
from ghofl.outbox.parcel import Parcel
from ghofl.privacy import from_vector
from ghofl.recipe import Recipe
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message
from ghofl.wire.plausible import check_plausible
from ghofl.wire.total import Total

MOST_HEADS, MOST_FOLDS, LONGEST = 8, 20, 1000  # of one request; the last are characters
MOST_REPORTS = 3  # under one recipe, refused or not; the site's administrator may give more with 'ghofl evaluate'


def judge(request: Letter, recipe: Recipe, custody: Custody) -> Letter:
    """The site's reports on some heads of a total; asked the same again, it gives the same bytes."""
    custody.check_recipe(recipe)
    custody.check_not_declined(recipe)
    custody.check_reports()
    parcel = _parcel_that_left(recipe, custody)
    kept = f"judged/{recipe.fingerprint}/{hashlib.sha256(request.content + _asked(request).encode()).hexdigest()}"
    content = custody.storage.get(kept)
    if not content:
        specs, folds = _question(request)
        total = Total.from_bytes(request.content, recipe)
        _check_inside(total, parcel, custody.site.name)
        _check_questions(kept, recipe, custody)
        # From here on the site's rows decide, so a question counts even if it is refused: refusals would tell its sums.
        custody.storage.put(kept, b"")
        own = _own_rows(total, parcel, recipe, custody)
        found = leave_out(own, specs, assign_folds(own.y, folds))
        made = [Report.of_left_out(one) for one in found.values()]
        content = json.dumps({"heads": [report.to_dict() for report in made]}, sort_keys=True).encode()
        custody.record_total(own.total)
        custody.record_evaluation(recipe, made[0].confusion.counts.sum(axis=1), parcel.data, content)
        custody.storage.put(kept, content)
    return Letter({"status": "sent", "site": custody.site.name}, content)


def _asked(request: Letter) -> str:
    return f"{request.fields.get('folds')} {request.fields.get('heads')}"


def _question(request: Letter) -> tuple[dict[str, HeadSpec], int]:
    """The heads and the folds that a request asks for."""
    heads, folds = request.fields.get("heads"), request.fields.get("folds")
    if not isinstance(heads, str) or len(heads) > LONGEST or type(folds) is not int or not 2 <= folds <= MOST_FOLDS:
        raise PolicyError(f"heads are a text of up to {LONGEST} characters, and folds a number from 2 to {MOST_FOLDS}.")
    specs = HeadSpec.parse_list(heads)
    if len(specs) > MOST_HEADS:
        raise PolicyError(f"{len(specs)} heads are asked for, and a site judges {MOST_HEADS} at once; ask for fewer.")
    return specs, folds


def _parcel_that_left(recipe: Recipe, custody: Custody) -> Parcel:
    """What this site sent under the recipe; raises where it does not hand totals out, or nothing left."""
    text = f"recipe {recipe.fingerprint[:12]}…"
    if not recipe.privacy.hand_out:
        raise PolicyError(f"{text} does not hand the exact total out (privacy.hand_out); no head of it is judged here.")
    parcel, history = custody.kept_parcel(recipe), custody.history
    left = {
        release.data for release in history.releases if not release.is_report and release.recipe == recipe.fingerprint
    }
    if parcel is None or parcel.data not in left:
        raise PolicyError(f"nothing that this site keeps has left it under {text}, so it is in no total of it.")
    if not parcel.is_message and len(left) > 1:
        raise PolicyError(
            f"rows of this site changed between rounds of {text}, so nobody knows which are in the total."
        )
    permit = history.approvals.get(recipe.fingerprint)
    if custody.policy.confirm and (permit is None or permit.parcel != parcel.sha256):
        raise PolicyError(f"this site's administrator approved something else than what was sent under {text}.")
    return parcel


def _check_questions(kept: str, recipe: Recipe, custody: Custody) -> None:
    """Raise where a question is a new one and the site has answered or refused as many as it does."""
    asked = set(custody.storage.names(f"judged/{recipe.fingerprint}"))
    reports = [r for r in custody.history.releases if r.is_report and r.recipe == recipe.fingerprint]
    if kept not in asked and max(len(asked), len(reports)) >= MOST_REPORTS:
        raise PolicyError(
            f"this site was asked about heads, or reported on them, {MOST_REPORTS} times under this recipe, and does not look at "
            "its rows for more; its administrator can, with 'ghofl evaluate --leave-out --site-file'."
        )


def _check_inside(total: Total, parcel: Parcel, name: str) -> None:
    """Raise unless the roster of a total from outside has what this site sent."""
    ids = {entry.id for entry in total.roster if entry.site == name}
    if not ids or (parcel.is_message and ids != {parcel.message_id}):
        raise PolicyError(
            f"what {name!r} sent is not in the roster of the total that came; send the one that it is in."
        )


def _own_rows(total: Total, parcel: Parcel, recipe: Recipe, custody: Custody) -> OwnRows:
    """The site's rows beside a total from outside, which must have its sums inside; raises where rows have changed."""
    name = custody.site.name
    sent = _moments(parcel, recipe)
    check_plausible(total.moments - sent, recipe, max(1, len(total.roster) - 1))
    lines = (replace(e, rows=None, sha256=sent.sha256 if e.site == name else "") for e in total.roster)
    return OwnRows.of(replace(total, roster=tuple(lines)), *custody.site.rows(recipe))


def _moments(parcel: Parcel, recipe: Recipe) -> Moments:
    if parcel.is_message:
        return Message.from_bytes(parcel.content, recipe).moments
    return from_vector(parcel.vector, recipe)
