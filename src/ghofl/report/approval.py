"""The page on which an administrator sees what is asked of a site and what would leave it, and approves or declines."""

from collections.abc import Sequence
from dataclasses import dataclass

from ghofl.custody.history import Permit
from ghofl.custody.inspection import Inspection
from ghofl.custody.ledger import Ledger
from ghofl.custody.policy import Policy
from ghofl.names import size
from ghofl.outbox.parcel import smallest_class
from ghofl.recipe import Recipe
from ghofl.report.markup import document, escape, items, section
from ghofl.report.what_left import protection_of, rules_of, when

MOST_CLASSES = 100  # that are named


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What an administrator decides: what was found, what an approval would allow, and the ledger that says who asked."""

    found: Inspection
    policy: Policy
    ledger: Ledger
    permit: Permit


def code_page(wrong: bool = False) -> str:
    """The page for whoever has not given the code; it says nothing about the site."""
    why = "<p><b>That is not the code.</b></p>" if wrong else ""
    return document(
        "What would leave this site",
        f"{why}<p>The command that opened this page printed a code in its terminal. Give it only to a page whose address "
        "begins with http://127.0.0.1: and the port that the command named.</p><form method='post' action='/'>"
        "<input name='code' aria-label='code' placeholder='code' autocomplete='off' spellcheck='false' autofocus required>"
        "<button>Show it</button></form>",
    )


def question_page(question: Question, code: str) -> str:
    """The page with the two buttons. It states what `ghofl flower check` states, in the same words."""
    found = question.found
    return document(
        f"What would leave the site {found.site}",
        _summary(found)
        + section("What is asked", items(_asked(question)) + _names(found.recipe))
        + section("What would leave", items(found.sentences))
        + section("The site's policy", items(rules_of(question.policy)))
        + section(
            "Your decision", items(_meanings(question)) + _buttons(code), "It becomes a line of the site's ledger."
        ),
    )


def outcome_page(found: Inspection) -> str:
    """The page after a decision."""
    told = "Approved" if found.is_approved else "Declined"
    text = f"What would leave {found.site} under recipe {found.recipe.fingerprint[:12]}… {found.state}."
    return document(told, f"<p>{escape(text, 1000)}</p><p>The command has ended; close this page.</p>")


def failure_page(why: str) -> str:
    """The page where nothing is shown or decided, and why."""
    return document("Nothing was decided", f"<p>{escape(why, 2000)}</p>")


def _summary(found: Inspection) -> str:
    parcel, moments = found.parcel, None if found.rows is None else found.rows.moments
    where = "in a message" if parcel.is_message else f"in a masked vector, in a round of {found.sites} sites"
    facts = [
        (size(found.bytes), f"({found.bytes:,} bytes) {where}"),
        (f"{parcel.rows:,}", "rows behind it"),
        *([(f"{smallest_class(moments):,}", "rows in the smallest class now")] if moments and moments.rows else []),
        (f"{parcel.clipped:.3%}", "of entries clipped"),
    ]
    tiles = "".join(f"<div class='tile'><b>{value}</b> {escape(name)}</div>" for value, name in facts)
    is_open = found.needs_approval and not (found.is_approved or found.is_declined or found.is_revealed)
    state = "Nothing leaves before you approve it." if is_open else f"Now it {found.state}."
    return f"<section><div class='tiles'>{tiles}</div><p><b>{escape(state)}</b></p></section>"


def _asked(question: Question) -> list[str]:
    """What is asked, one fact per text: names that a recipe chose must not read like facts beside them."""
    recipe = question.found.recipe
    times = [
        line.time
        for line in question.ledger.of("answered", "refused")
        if line.facts.get("recipe") == recipe.fingerprint and line.facts.get("action") in ("message", "join")
    ]
    last = f"The server has asked for it, last on {when(times[-1])} (UTC)." if times else ""
    return [
        f"What protects it: {protection_of(recipe)}.",
        last or "No server has asked for it yet.",
        f"Recipe {recipe.fingerprint}",
        f"Encoder {recipe.encoder.name!r}, {len(recipe.classes):,} classes:",
    ]


def _names(recipe: Recipe) -> str:
    names = "".join(f"<code>{escape(name)}</code> " for name in recipe.classes[:MOST_CLASSES])
    more = len(recipe.classes) - MOST_CLASSES
    return f"<p class='names'>{names}{f'and {more:,} more' if more > 0 else ''}</p>"


def _meanings(question: Question) -> Sequence[str]:
    found, permit = question.found, question.permit
    sites = f"exactly the sites {', '.join(permit.cohort)}" if permit.cohort else "the first sites it is used with"
    covered = f", masked, in {permit.rounds:,} secure {'round' if permit.rounds == 1 else 'rounds'} of {sites}"
    return (
        f"Approve: exactly this, with the sha256 {found.parcel.sha256}, may leave{'' if found.parcel.is_message else covered}.",
        "Decline: nothing leaves under this recipe until somebody approves it; what was approved before no longer holds.",
        "Neither: end the command with Ctrl-C, and everything stays as it is.",
    )


def _buttons(code: str) -> str:
    return (
        f"<form method='post' action='/'><input type='hidden' name='code' value='{escape(code)}'>"
        "<button class='yes' name='decision' value='approve'>Approve</button>"
        "<button name='decision' value='decline'>Decline</button></form>"
    )
