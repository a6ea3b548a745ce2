"""Who gets the exact total: a site that takes its own sums out of it has the sum of the others."""

import json
import secrets
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federations import blobs, moments_of, recipe_of
from ghofl import Message, Recipe, Total
from ghofl.custody.handing_out import HandOuts, Share, check_class_rows
from ghofl.custody.history import History
from ghofl.custody.overlap import find_isolated, find_shown_to
from ghofl.custody.policy import Policy
from ghofl.errors import FederationError, GhoflError, PolicyError, PrivacyError, RecipeError, RosterError
from ghofl.evaluation.leave_out import cross_validate
from ghofl.privacy.audit import audit
from ghofl.recipe import Privacy
from ghofl.report.what_left import protection_of
from ghofl.secure.graph import portion
from pages import run

OPEN = recipe_of(statistics=("B",), privacy=Privacy(hand_out=True))
NAMES = "abcdef"


def messages_of(recipe=OPEN, sites=NAMES, rows=240, seed=0):
    """One message per site, by name, and the rows behind them."""
    x, y = blobs(np.random.default_rng(seed), rows=rows)
    parts = {name: (x[i :: len(sites)], y[i :: len(sites)]) for i, name in enumerate(sites)}
    return {name: Message.of(moments_of(recipe, *rows), recipe, name) for name, rows in parts.items()}, parts


@pytest.fixture(scope="module")
def six():
    return messages_of()


@pytest.fixture
def journal(tmp_path):
    return HandOuts(tmp_path / "handed-out.jsonl")


def total_over(messages, names=NAMES):
    return Total.of((messages[name] for name in names), OPEN)


def counts_of(messages):
    return {message.id: message.moments.counts for message in messages.values()}


def hand_out(journal, messages, names, to, **more):
    return journal.hand_out(total_over(messages, names), to, counts_of(messages), **more)


def recipients_in(journal):
    return [json.loads(line)["to"] for line in journal.path.read_text().splitlines()]


def test_of_two_sites_neither_gets_the_total_because_it_would_have_the_other_s_message(six, journal):
    messages, _ = six
    assert (total_over(messages, "ab") - messages["a"]).moments == messages["b"].moments, "the attack"
    with pytest.raises(PolicyError, match="less its own sums, a would have one over 1 site;"):
        hand_out(journal, messages, "ab", "a")
    assert not journal.path.exists()


@pytest.mark.parametrize(("corruption", "is_given"), [(0.0, True), (0.2, True), (0.21, True), (0.41, False)])
def test_enough_sites_are_left_beside_the_recipient_and_those_that_may_collude(six, journal, corruption, is_given):
    """Of six sites: the recipient, a share of them rounded up, and three at least."""
    messages, _ = six
    if is_given:
        assert hand_out(journal, messages, NAMES, "a", corruption=corruption).moments == total_over(messages).moments
        return
    with pytest.raises(PolicyError, match="min_difference asks for 3 beside 3 that may collude"):
        hand_out(journal, messages, NAMES, "a", corruption=corruption)


def test_a_second_total_is_not_handed_out_where_its_difference_from_the_first_shows_a_site(six, journal):
    """To whomever the first one went: sites may tell each other."""
    messages, _ = six
    hand_out(journal, messages, NAMES, "a")
    with pytest.raises(PolicyError, match="b would have one over 1 site;"):
        hand_out(journal, messages, "abcde", "b")
    hand_out(journal, messages, NAMES, "b")
    assert recipients_in(journal) == ["a", "b"]


def with_class_3(sites, has, rows=600):
    """Messages of sites of which those named in `has` have so many rows of class 3, and the others none; and their rows."""
    _, parts = messages_of(sites=sites, rows=rows)
    moved = {}
    for name, (x, y) in parts.items():
        y = np.where(y == 3, 0, y)
        y[: has.get(name, 0)] = 3
        moved[name] = x, y
    return {name: Message.of(moments_of(OPEN, *own), OPEN, name) for name, own in moved.items()}, moved


@pytest.mark.parametrize("rows", [1, 4])
def test_a_class_of_which_the_others_have_few_rows_keeps_the_total_from_its_recipient(rows, journal):
    """Without the recipient's own sums, the sum of one row is that row."""
    messages, _ = with_class_3(NAMES, {"a": 30, "b": rows})
    total = total_over(messages)
    exposed = [e for e in audit((total - messages["a"]).moments, OPEN).exposures if e.label == 3]
    assert bool(exposed) == (rows == 1), "the attack, on one row"
    with pytest.raises(PrivacyError, match=f"'a' and 0 .* class 'class 3' could have {rows} row"):
        hand_out(journal, messages, NAMES, "a", corruption=0.0)
    with pytest.raises(PrivacyError, match=f"'c' and 1 .* class 'class 3' could have {rows} row"):
        hand_out(journal, messages, NAMES, "c")
    assert hand_out(journal, messages, NAMES, "c", corruption=0.0).moments == total.moments, "a has rows enough"


def test_a_total_of_plain_messages_is_handed_out_with_all_messages_and_the_names_of_their_sites(six, journal):
    messages, parts = six
    for counts in (None, {}, counts_of({"a": messages["a"]})):
        with pytest.raises(PrivacyError, match="give all of its messages"):
            journal.hand_out(total_over(messages), "a", counts)
    nobody = messages | {"f": Message.of(moments_of(OPEN, *parts["f"]), OPEN)}
    with pytest.raises(RosterError, match="has no site's name"):
        hand_out(journal, nobody, NAMES, "a")
    assert not journal.path.exists()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 7), min_size=6, max_size=9), st.sampled_from([0.0, 0.1, 0.2]))
def test_a_class_has_no_rows_left_or_enough_whichever_sites_collude(tmp_path, rows, corruption):
    """Against every choice of colluders."""
    sites = "abcdefghi"[: len(rows)]
    messages, _ = with_class_3(sites, dict(zip(sites, rows, strict=True)), rows=200)
    for name in sites:
        others = [n for site, n in zip(sites, rows, strict=True) if site != name]
        most = portion(len(sites), corruption)
        left = {sum(others) - sum(some) for k in range(most + 1) for some in combinations(others, k)}
        journal = HandOuts(tmp_path / f"{secrets.token_hex(8)}.jsonl")
        if len(others) - most < 3 or left & {1, 2, 3, 4}:
            with pytest.raises(GhoflError):
                hand_out(journal, messages, sites, name, corruption=corruption)
        else:
            hand_out(journal, messages, sites, name, corruption=corruption)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1), min_size=1, max_size=3),
    st.lists(st.sampled_from([0, 0, 1, 2, 4, 9]), min_size=7, max_size=7),
    st.integers(0, 2),
)
def test_no_site_finds_few_rows_of_a_class_by_any_combination_of_totals_with_any_colluders(cohorts, rows, colluders):
    """Against every sum over some honest sites with few rows: it follows when the other columns have a smaller rank."""
    has = dict(zip("abcdefg", rows, strict=True))
    known = [tuple(Share(site, "", str(min(has[site], 5))) for site in sorted(cohort)) for cohort in cohorts]
    for recipient in sorted(cohorts[-1]):
        try:
            check_class_rows(known, recipient, colluders, ("c",))
        except PrivacyError:
            continue
        others = [site for site in "abcdefg" if site != recipient and has[site]]
        for some in (c for size in range(colluders + 1) for c in combinations(others, size)):
            honest = [site for site in others if site not in some]
            marks = np.array([[site in cohort for site in honest] for cohort in cohorts], dtype=float)
            for few in (f for size in range(1, 5) for f in combinations(range(len(honest)), size)):
                if 0 < sum(has[honest[i]] for i in few) < 5:
                    rest = np.delete(marks, few, axis=1)
                    assert rank(rest) == rank(marks), f"{recipient} and {some} find rows of {[honest[i] for i in few]}"


def rank(matrix):
    return np.linalg.matrix_rank(matrix) if matrix.size else 0


def test_a_class_of_which_the_sites_between_two_totals_have_few_rows_keeps_the_second_from_everybody(journal):
    """Each total has rows enough of the class; their difference is one row of one of four sites."""
    messages, _ = with_class_3("abcdefghij", {**dict.fromkeys("abcdef", 9), "g": 1})
    hand_out(journal, messages, "abcdef", "a")
    with pytest.raises(PrivacyError, match="'class 3' could have 1 row in a combination of totals"):
        hand_out(journal, messages, "abcdefghij", "b")
    assert recipients_in(journal) == ["a"]


@pytest.mark.parametrize("of_last", [0, 9])
def test_three_totals_are_not_handed_out_that_together_show_few_rows_of_a_class(of_last, journal):
    """A + B and B + C show nothing of A alone. With A + C they do: T1 − T2 + T3 = 2 A, of which one site has one row."""
    first, second, third = "abcdefg", "hijklmn", "opqrstu"
    has = {"a": 1, **dict.fromkeys(second, 9), **dict.fromkeys(third, of_last)}
    messages, _ = with_class_3(first + second + third, has, rows=1600)
    one, two, three = ((total_over(messages, names)) for names in (first + second, second + third, first + third))
    assert (one.moments - two.moments + three.moments).counts[3] == 2
    hand_out(journal, messages, first + second, "b")
    if of_last:
        hand_out(journal, messages, second + third, "h")
        with pytest.raises(PrivacyError, match="'class 3' could have 1 row in a combination of totals"):
            hand_out(journal, messages, first + third, "b")
    else:
        with pytest.raises(PrivacyError, match="'class 3' could have 1 row in a combination of totals"):
            hand_out(journal, messages, first + third, "b")


def test_three_totals_are_not_handed_out_that_together_show_few_sites(journal):
    """A + B − (B + C) + (A + C) = 2 A, of three sites; no two of the totals show fewer than six."""
    messages, _ = messages_of(sites="abcdefghijklmnopqrs", rows=1200)
    hand_out(journal, messages, "abc" + "defghijk", "d")
    hand_out(journal, messages, "defghijk" + "lmnopqrs", "l")
    with pytest.raises(PolicyError, match="would have one over 3 sites"):
        hand_out(journal, messages, "abc" + "lmnopqrs", "l")


def test_a_total_is_not_handed_out_beside_one_with_other_rows_of_a_site(journal):
    """Six sites send again, one of them with one row less: the difference of two large totals is that row."""
    messages, parts = messages_of()
    hand_out(journal, messages, NAMES, "a")
    again = {name: Message.of(moments_of(OPEN, *own), OPEN, name) for name, own in parts.items()}
    assert hand_out(journal, again, NAMES, "b").moments == total_over(messages).moments, "the same rows"
    x, y = parts["f"]
    for name, (x, y) in list(parts.items())[1:]:
        again[name] = Message.of(moments_of(OPEN, x[1:], y[1:]), OPEN, name)
    with pytest.raises(PolicyError, match="was handed out with other rows of 'b'"):
        hand_out(journal, again, NAMES, "a")


def test_a_total_that_may_not_be_used_is_not_handed_out(six, journal):
    """Sites that ask for a cohort of eight, so that six are left beside a recipient and a colluder, relied on it."""
    _, parts = six
    recipe = replace(OPEN, privacy=Privacy(hand_out=True, min_cohort=8))
    messages = {name: Message.of(moments_of(recipe, *own), recipe, name) for name, own in parts.items()}
    with pytest.raises(PrivacyError, match=r"privacy\.min_cohort is 8"):
        journal.hand_out(Total.of(messages.values(), recipe), "a", counts_of(messages))


def test_without_the_key_only_a_released_total_is_handed_out(six, journal):
    _, parts = six
    plain = recipe_of(statistics=("B",))
    x, y = (np.concatenate([own[i] for own in parts.values()]) for i in (0, 1))
    exact = Total.of([Message.of(moments_of(plain, x, y), plain, "a")], plain)
    with pytest.raises(PrivacyError, match="only a released one is for others"):
        journal.hand_out(exact, "a")
    released = replace(exact, recipe=replace(plain, privacy=Privacy(min_count=2))).release()
    assert journal.hand_out(released, "whoever") is released
    assert not journal.path.exists()


def test_a_recipient_sees_rows_and_hash_of_no_site_but_its_own_and_can_leave_its_rows_out(six, journal):
    messages, parts = six
    handed = hand_out(journal, messages, NAMES, "c")
    assert [(e.site, e.rows is None, e.sha256 == "") for e in handed.roster] == [(n, n != "c", n != "c") for n in NAMES]
    again = Total.from_bytes(handed.to_bytes())
    found = cross_validate(again, *parts["c"], "lda", 4)["lda"]
    assert (found.site, len(found.y)) == ("c", 40)


def test_the_journal_names_every_recipient_once_and_is_its_owner_s(six, journal):
    messages, _ = six
    for _ in range(2):
        hand_out(journal, messages, NAMES, "a")
    (line,) = map(json.loads, journal.path.read_text().splitlines())
    assert (line["to"], line["total"]) == ("a", total_over(messages).moments.sha256)
    assert journal.path.stat().st_mode & 0o777 == 0o600
    whole = journal.path.read_text()
    cut = (
        "",
        whole[:-20],
        whole + whole,
        whole.replace('"sites"', '"cites"'),
        whole.replace('"5', '"6', 1),
        whole.replace('["a"', '["a", 3', 1),
    )
    for damage in ("{", '{"to": 3}\n', "[" * 10_000, "3", whole + "\n\n", *cut):
        journal.path.write_text(damage)
        with pytest.raises(FederationError, match="is damaged"):
            hand_out(journal, messages, NAMES, "a")
    with pytest.raises(RosterError, match="'z' is not in this total"):
        journal.hand_out(total_over(messages), "z")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=2), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 2),
)
def test_a_recipient_finds_few_sites_exactly_when_it_does_with_some_colluders(cohorts, fewest, colluders):
    """Against every choice of colluders, whose own sums are taken out of what is known one by one."""
    sums = [frozenset((site, "") for site in cohort) for cohort in cohorts]
    everybody = sorted(set().union(*cohorts))
    for name in everybody:
        others = [site for site in everybody if site != name]
        finds = False
        for some in (c for size in range(colluders + 1) for c in combinations(others, size)):
            rest = [frozenset(one for one in each if one[0] not in (name, *some)) for each in sums]
            finds |= bool(find_isolated([each for each in rest if each], fewest))
        assert bool(find_shown_to([name], sums, fewest, colluders)[0]) == finds


def test_a_site_signs_no_list_whose_sum_would_show_its_recipients_too_few():
    for sites, is_refused in (("abcd", True), ("abcde", False)):
        if is_refused:
            with pytest.raises(PolicyError, match="the total is handed out"):
                History().check_sum("a", sites, "d" * 64, 3, colluders=1)
        History().check_sum("a", sites, "d" * 64, 3)
    History().check_sum("a", "abcde", "d" * 64, 3, colluders=1)


def test_a_site_sends_no_message_where_the_total_may_be_handed_out_with_few_sites_in_it():
    for cohort, policy, is_refused in (
        (1, Policy(), True), (4, Policy(), True), (5, Policy(), False), (5, Policy(corruption=0.3), True),
        (5, Policy(min_difference=4), True), (1, Policy(min_difference=1), False),
    ):  # fmt: skip
        recipe = replace(OPEN, privacy=Privacy(hand_out=True, min_cohort=cohort))
        if is_refused:
            with pytest.raises(PolicyError, match=f"privacy.min_cohort = {cohort} one of them"):
                policy.check_recipe(recipe)
        else:
            policy.check_recipe(recipe)
    Policy(any_peers=True).check_recipe(replace(OPEN, privacy=Privacy(hand_out=True, secure=True)))


def test_what_others_are_promised_not_to_see_is_not_handed_out():
    for promise in (Privacy(min_count=2), Privacy(epsilon=1.0, delta=1e-5, radius=4.0)):
        with pytest.raises(RecipeError, match="privacy.hand_out gives sites the exact total"):
            replace(promise, hand_out=True)
    assert recipe_of(privacy=Privacy(hand_out=False)).fingerprint == recipe_of().fingerprint
    assert Recipe.from_toml(OPEN.to_toml()) == OPEN


@pytest.fixture
def with_files(six, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    messages, parts = six
    OPEN.save("recipe.toml")
    total_over(messages).save("total.ghofl")
    total_over(messages, "ab").save("two.ghofl")
    for name, message in messages.items():
        message.save(f"{name}.ghofl")
    np.savez("a.npz", x=parts["a"][0], y=np.array(OPEN.classes)[parts["a"][1]])
    return tmp_path


def test_the_command_writes_a_total_for_one_site_and_remembers_it(with_files):
    all_six = " ".join(f"{name}.ghofl" for name in NAMES)
    assert "for a alone" in run(f"ghofl release total.ghofl {all_six} --to a -o for-a.ghofl --json for-a.json")
    for name in ("for-a.ghofl", "for-a.json"):
        assert (with_files / name).stat().st_mode & 0o777 == 0o600, "both have exact figures"
    run("ghofl evaluate for-a.ghofl a.npz --leave-out 4 --heads lda")
    run("ghofl release two.ghofl a.ghofl b.ghofl --to a -o two-for-a.ghofl", refusal="would have one over 1 site;")
    for some, refusal in (
        ("", "'a', 'b', 'c', 'd', 'e' and 1 more did not come"),
        ("a.ghofl", "'b', 'c', 'd', 'e', 'f' did"),
    ):
        run(f"ghofl release total.ghofl {some} --to a -o x.ghofl", refusal=refusal)
    run(
        "ghofl release two.ghofl a.ghofl c.ghofl --to a -o x.ghofl", refusal="c.ghofl: message 'c' is not in this total"
    )
    run(f"ghofl release total.ghofl {all_six} --to g -o x.ghofl", refusal="'g' is not in this total")
    run(f"ghofl release for-a.ghofl {all_six} --to b -o x.ghofl", refusal="is not in this total")
    run("ghofl release total.ghofl a.ghofl -o x.ghofl", refusal="leave the messages out")
    assert not (with_files / "two-for-a.ghofl").exists()
    assert len(list((with_files / "state").rglob("handed-out-*.jsonl"))) == 1


@pytest.mark.usefixtures("with_files")
@pytest.mark.parametrize("secure", [False, True])
def test_audit_and_check_say_before_anything_is_sent_that_the_total_is_handed_out(secure, tmp_path):
    recipe = replace(OPEN, privacy=Privacy(hand_out=True, secure=secure, min_cohort=5))
    recipe.save("recipe.toml")
    (tmp_path / "policy.toml").write_text("any_peers = true\nany_recipe = true\n")
    (tmp_path / "site.toml").write_text('name="a"\nembeddings="a.npz"\nfolder="memory"\npolicy="policy.toml"\n')
    texts = [run("ghofl flower check site.toml --recipe recipe.toml")]
    if not secure:
        OPEN.save("recipe.toml")
        texts.append(run("ghofl audit a.ghofl --recipe recipe.toml"))
    assert protection_of(recipe).endswith("; the sites in the exact total get it")
    for text in (" ".join(each.split()) for each in texts):
        assert "each of them can take its own sums out and has the sum of the others" in text
        assert ("nobody can check in a secure round" in text) == secure
