"""One page for whoever answers for a site's data: what left it, what that reveals, what is promised, how to verify it."""

from collections.abc import Sequence

from ghofl.custody.budget import describe_releases
from ghofl.custody.departures import MESSAGE, REPORT, VECTOR, Departure, departures
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.policy import Policy, load_peers
from ghofl.custody.site import Site
from ghofl.recipe import Recipe
from ghofl.report.markup import document, escape, items, section, table

_NOTHING = "<p>Nothing.</p>"
_WHAT = {
    MESSAGE: "A message: sums over the rows of each class, and how many rows each class has.",
    VECTOR: "Sums over the rows of each class, hidden by random numbers that cancel out in the sum over the round's sites.",
    REPORT: "How often a head was right and wrong, per class, on this site's rows.",
}
_DECIDED = "What an administrator allowed or declined, and when."
_CAME = "Totals with this site's sums inside, on which it judged heads. Less its own sums, each is the sum of the other sites."
_OUTSIDE = (
    "The ledger knows what was given to a server that asked, and reports on heads. It does not know what people do with files: "
    "a message that somebody wrote with 'ghofl moments' and sent by other means is not on this page."
)


def what_left(site: Site, ledger: Ledger, site_file: str) -> str:
    """The page of a site; nothing in it but what its own files say. It names row counts, so it is for the site alone."""
    history = History.of(ledger)
    left = list(departures(ledger, history, site.storage()))
    recipe, policy = Recipe.load(site.recipe) if site.recipe else None, site.load_policy()
    sections = [
        _summary(left, ledger, describe_releases(history.releases)),
        section("What left, when and to whom", _table_of_all(left) if left else _NOTHING, _OUTSIDE),
        *(_departure(one, recipe) for one in left),
        section("The guarantee of all together", f"<p>{escape(describe_releases(history.releases), 2000)}</p>", _EPSILON),
        section("The site's policy", items(rules_of(policy)), "As it is now; earlier departures met the one of their time."),
        section("Approvals", _lines(ledger, "approved", "declined", "reopened") or _NOTHING, _DECIDED),
        section("Signatures", _signatures(site, ledger)),
        section("Exact totals that came", _received(ledger) or _NOTHING, _CAME),
        section("What was refused", _refusals(ledger) or _NOTHING, "Requests that the site did not answer, and why."),
        section("How to verify this page", _verify(site_file, ledger)),
    ]  # fmt: skip
    return document(f"What left the site {site.name}", "".join(sections))


_EPSILON = (
    "Differential privacy bounds how much anybody can learn about one person from everything that left, whatever else they "
    "know: the smaller epsilon is, the less. Without noise there is no such bound, and the sections above say what can be read."
)


def _summary(left: Sequence[Departure], ledger: Ledger, promise: str) -> str:
    letters = [line.facts.get("bytes", 0) for line in ledger.of("answered")]
    refused = sum(1 for _ in ledger.of("refused"))
    facts = [
        (f"{len(left):,}", "departure" if len(left) == 1 else "departures"),
        (f"{sum(one.bytes or 0 for one in left):,}", "bytes about rows"),
        (
            f"{sum(letters):,}",
            f"bytes in answers of all kinds ({len(letters):,}), keys and shares of secure rounds included",
        ),
        (f"{refused:,}", "requests refused"),
    ]
    tiles = "".join(f"<div class='tile'><b>{value}</b> {escape(name)}</div>" for value, name in facts)
    first, last = (
        (escape(when(line.time)) for line in (ledger.lines[0], ledger.lines[-1])) if ledger.lines else ("–", "–")
    )
    return (
        f"<section><div class='tiles'>{tiles}</div><p><b>{escape(promise, 2000)}</b></p>"
        f"<p class='note'>From the site's ledger of {len(ledger.lines):,} lines, {first} to {last} (UTC), each checked against "
        "the one before it. This page states numbers of rows: it is for the site itself.</p></section>"
    )


def _table_of_all(left: Sequence[Departure]) -> str:
    rows = [
        (
            one.line, when(one.time), one.kind, _to_whom(one), _number(one.rows), _number(one.bytes),
            f"{one.recipe[:12]}…", _promise(one),
        )
        for one in left
    ]  # fmt: skip
    return table(("line", "when (UTC)", "what", "to whom", "rows", "bytes", "recipe", "promise"), rows)


def _to_whom(one: Departure) -> str:
    if one.kind == REPORT:
        return "a file, for whoever the site gave it to"
    if one.kind == MESSAGE:
        return "the server of the federation" if one.answers else "nobody yet: no answer carried it"
    return f"the server, in a secure round of {', '.join(one.sites) or 'sites that are not named'}"


def _promise(one: Departure) -> str:
    if one.release.guarantee is None:
        return "none: there is no noise in it"
    later = "; it left exact, and the server adds the noise" if one.release.is_exact else ""
    return str(one.release.guarantee).splitlines()[0].removesuffix(".") + later


def when(time: str) -> str:
    """2025-05-02T09:30:12Z for people."""
    return time.replace("T", " ").removesuffix("Z")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _departure(one: Departure, recipe: Recipe | None) -> str:
    """All about one thing that left."""
    facts = [_WHAT[one.kind]]
    if one.bytes is not None:
        again = "" if one.answers == 1 else f", given {one.answers:,} times, the same bytes each time"
        facts.append(f"{one.bytes:,} bytes{again}.")
    if one.survivors:
        facts.append(f"The server learned the sum over {', '.join(one.survivors)}; this site took part in opening it.")
    elif one.kind == VECTOR:
        facts.append("This site took no part in opening a sum of that round.")
    if one.sha256:
        facts.append(f"sha256 of the file: {one.sha256}")
    facts.append(f"Recipe {one.recipe}{_recipe_words(one, recipe)}")
    facts.append(f"Promise of this departure: {_promise(one)}.")
    unknown = "What it reveals was shown by 'ghofl flower check' before it left; something else was packed since."
    reveals = one.reveals or (() if one.kind == REPORT else (unknown,))
    title = "What the hidden numbers would reveal" if one.kind == VECTOR else "What it reveals to someone who reads it"
    shown = f"<h3>{title}</h3>{items(reveals)}" if reveals else ""
    return section(f"Line {one.line}: {one.kind}, {when(one.time)}", items(facts) + shown)


def _recipe_words(one: Departure, recipe: Recipe | None) -> str:
    if recipe is None or recipe.fingerprint != one.recipe:
        return ", of which this site keeps no copy."
    classes = ", ".join(recipe.classes[:10]) + (
        f" and {len(recipe.classes) - 10} more" if len(recipe.classes) > 10 else ""
    )
    return f", the one agreed on here: {protection_of(recipe)}; encoder {recipe.encoder.name}; classes {classes}."


def protection_of(recipe: Recipe) -> str:
    """What protects rows under a recipe, in words."""
    asked = recipe.privacy
    noise = "no noise" if asked.epsilon is None else f"epsilon = {asked.epsilon:g} by {asked.noise} noise"
    handed = "; the sites in the exact total get it" if asked.hand_out else ""
    return f"{noise}; {'in secure rounds only' if asked.secure else 'as plain messages'}{handed}"


def rules_of(policy: Policy) -> list[str]:
    """A policy in sentences."""
    out = [f"The site sends nothing unless it has {policy.min_rows:,} rows or more."] if policy.min_rows > 1 else []
    if policy.confirm:
        out.append("Nothing leaves before an administrator has seen and approved it.")
    if policy.any_recipe:
        out.append("Every recipe without an epsilon that the other rules allow is answered.")
    if policy.secure:
        out.append("Sums leave in secure rounds only.")
    if policy.peers:
        out.append(f"Secure rounds are joined with these sites only: {', '.join(load_peers(policy.peers))}.")
    elif policy.any_peers:
        out.append("Secure rounds are joined with whomever the server names, which is trusted not to invent sites.")
    if policy.peers or policy.any_peers:
        out.append(
            f"A secure sum covers {policy.min_survivors} sites or more, {policy.corruption:.0%} of which may collude with the "
            f"server; no combination of sums may be about fewer than {policy.min_difference} sites."
        )
    if policy.epsilon is not None:
        out.append(
            f"Only under an epsilon of at most {policy.epsilon:g} (delta {policy.delta:g}), noise {' or '.join(policy.noise)}."
        )
    if policy.budget is not None:
        out.append(f"All releases together may spend epsilon = {policy.budget[0]:g} at delta = {policy.budget[1]:g}.")
    return [*out, *_disclosure(policy)]


def _disclosure(policy: Policy) -> list[str]:
    """Its disclosure rules in sentences, with the numbers that hold."""
    rows, share, sites = (policy.disclosure.number(rule) for rule in ("class_rows", "saturation", "sites"))
    out = [f"Nothing leaves if a class has rows, but fewer than {rows}."] if rows else []
    if share:
        out.append(f"A matrix of sums has at most {share:g} variables per row behind it.")
    if sites:
        out.append(f"A total is made of {sites} sites or more.")
    return out or ["There are no disclosure rules about small classes, matrices or numbers of sites."]


def _lines(ledger: Ledger, *kinds: str) -> str:
    rows = [
        (
            line.number,
            when(line.time),
            line.what,
            f"{line.facts['recipe'][:12]}…",
            ", ".join(line.facts.get("cohort", ())) or "–",
        )
        for line in ledger.of(*kinds)
    ]
    return table(("line", "when (UTC)", "what", "recipe", "sites"), rows) if rows else ""


def _signatures(site: Site, ledger: Ledger) -> str:
    rows = [
        (line.number, when(line.time), f"{line.facts['round'][:8]}…", ", ".join(line.facts["survivors"]))
        for line in ledger.of("endorsed")
    ]
    key = "It has a node key, which signs that it joins a round." if site.auth_key else "No node key is set for it."
    text = (
        "Messages carry no signature: the connection they travel on is authenticated, and their sha256 is on this page. In a "
        f"secure round this site signs the list of sites whose sum is read. {key}"
    )
    lists = (
        table(("line", "when (UTC)", "round", "sites of the signed list"), rows)
        if rows
        else "<p>No list was signed.</p>"
    )
    return f"<p>{text}</p>{lists}"


def _received(ledger: Ledger) -> str:
    rows = [
        (line.number, when(line.time), f"{line.facts['total'][:12]}…", ", ".join(line.facts["sites"]))
        for line in ledger.of("received")
    ]
    return table(("line", "when (UTC)", "total", "sites"), rows) if rows else ""


def _refusals(ledger: Ledger) -> str:
    found: dict[str, list[str]] = {}
    for line in ledger.of("refused"):
        found.setdefault(str(line.facts.get("why", "")), []).append(line.time)
    rows = [(len(times), when(times[0]), when(times[-1]), why) for why, times in found.items()]
    return table(("times", "first (UTC)", "last (UTC)", "why"), rows) if rows else ""


def _verify(site_file: str, ledger: Ledger) -> str:
    steps = {
        f"ghofl ledger {site_file} {ledger.head}": "no line was changed, moved or left out since this page was written.",
        "sha256sum FILE": "a message that somebody shows you has the sha256 above.",
        "ghofl audit FILE --recipe recipe.toml": "its bytes, and what it reveals.",
        f"ghofl flower check {site_file} --recipe recipe.toml": "the same about what is packed now.",
    }
    items = "".join(f"<li><code>{escape(command, 1000)}</code>: {escape(text)}</li>" for command, text in steps.items())
    return (
        f"<ul>{items}</ul><p>Head of the ledger: <code>{escape(ledger.head)}</code>. Keep it outside the site: only then is a "
        "ledger recognised that was rewritten as a whole.</p>"
    )
