"""Secure rounds by files: what Flower does, without a network."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_cli import ghofl

from federations import blobs, recipe_of
from ghofl import Features, Layout, Moments, Privacy, Recipe, Total
from ghofl.errors import FederationError, GhoflError, MessageError, PolicyError
from ghofl.mail import letters
from ghofl.mail.at_site import ACTIONS, answer_letter
from ghofl.mail.round_folder import Options, RoundFolder
from ghofl.secure import client
from ghofl.site.answers import answer
from ghofl.site.inspection import reopen
from ghofl.site.letter import Letter
from ghofl.site.site import Site

NAMES = ("north", "south", "west", "east", "mid")


def site_rows(sites):
    x, y = blobs(np.random.default_rng(2), 40 * sites, classes=3)
    return [(x[i::sites], y[i::sites]) for i in range(sites)]


def federation(folder: Path, sites=3, policy="any_peers = true\nmin_survivors = 2\n") -> tuple[Recipe, list[Site]]:
    """A secure recipe, and sites with rows, policies and folders of their own."""
    recipe = recipe_of(classes=3, statistics=("B",), privacy=Privacy(secure=True))
    recipe.save(folder / "recipe.toml")
    out = []
    for name, (x, y) in zip(NAMES, site_rows(sites), strict=False):
        home = folder / name
        home.mkdir()
        np.savez(home / "rows.npz", x=x, y=y)
        (home / "policy.toml").write_text(policy)
        places = 'embeddings = "rows.npz"\nfolder = "keep"\npolicy = "policy.toml"\nrecipe = "../recipe.toml"\n'
        text = f'name = "{name}"\n{places}labels_are_numbers = true\n'
        (home / "site.toml").write_text(text)
        out.append(Site.load(home / "site.toml"))
    return recipe, out


def plain_sum(recipe, sites, who):
    """What plain messages of these sites would add up to."""
    chosen = [rows for name, rows in zip(NAMES, site_rows(sites), strict=False) if name in who]
    x, y = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    return Moments.of(Features.of(recipe).rows(x)[0], y, Layout.of(recipe))


def answer_all(folder, sites, action, standing_letters, skip=()):
    """The letters that sites write when they are asked, as files."""
    out = []
    for site in sites:
        asked = [p for p in standing_letters if p.stem in (site.name, "invitation")]
        if site.name in skip or not asked:
            continue
        reply = answer_letter(action, letters.load(asked[0]), site, site.memory())
        path = folder / f"{site.name}-{action}.letter"
        letters.save(path, reply)
        out.append(path)
    return out


def conduct(folder, recipe, sites, vanish=None, options=None):
    """A whole round in which the sites of `vanish` stop answering at a stage."""
    vanish = vanish or {}
    opened = RoundFolder.open(folder / "round", recipe, options or Options())
    asked, gone = (opened.invite(),), set()
    for action in ACTIONS:
        gone |= set(vanish.get(action, ()))
        came = answer_all(folder, sites, action, asked, gone)
        close = action if gone or action == "join" else ""
        standing = RoundFolder(folder / "round").take(came, close, is_last=action == "reveal")
        asked = standing.outgoing
    return Total.load(standing.total)


def test_the_total_of_three_sites_is_the_plain_one_to_the_bit(tmp_path):
    recipe, sites = federation(tmp_path)
    total = conduct(tmp_path, recipe, sites)
    assert total.moments == plain_sum(recipe, 3, NAMES[:3])
    assert sorted(e.site for e in total.roster) == ["north", "south", "west"]
    assert all(e.rows is None for e in total.roster)


@pytest.mark.parametrize("stage", ACTIONS[1:])
def test_a_site_that_vanishes_at_any_stage_leaves_the_others_sum_or_its_own_in_it(tmp_path, stage):
    recipe, sites = federation(tmp_path, 5)
    total = conduct(tmp_path, recipe, sites, {stage: ["west"]}, Options(dropout=0.2))
    inside = [name for name in NAMES if name != "west" or stage in ("endorse", "reveal")]
    assert sorted(e.site for e in total.roster) == sorted(inside)
    assert total.moments == plain_sum(recipe, 5, inside)


def test_more_dropouts_than_planned_for_give_nothing(tmp_path):
    recipe, sites = federation(tmp_path)
    with pytest.raises(GhoflError, match="nothing is released"):
        conduct(tmp_path, recipe, sites, {"mask": ["west"]})
    assert not (tmp_path / "round" / "total.ghofl").exists()


def test_every_command_given_again_writes_the_same_bytes(tmp_path):
    recipe, sites = federation(tmp_path)
    opened = RoundFolder.open(tmp_path / "round", recipe, Options())
    assert RoundFolder.open(tmp_path / "round", recipe, Options()).round_id == opened.round_id
    asked = (opened.invite(),)
    for action in ACTIONS:
        came = answer_all(tmp_path, sites, action, asked)
        first = [path.read_bytes() for path in came]
        again = [path.read_bytes() for path in answer_all(tmp_path, sites, action, asked)]
        assert first == again
        close = "join" if action == "join" else ""
        one = RoundFolder(tmp_path / "round").take(came, close, is_last=True)
        files = {path: path.read_bytes() for path in (tmp_path / "round").rglob("*") if path.is_file()}
        two = RoundFolder(tmp_path / "round").take(came, close, is_last=True)
        assert {path: path.read_bytes() for path in files} == files
        assert (one.action, one.outgoing, two.taken) == (two.action, two.outgoing, ())
        asked = one.outgoing
    assert two.total is not None


def test_letters_may_come_one_at_a_time_and_the_stage_ends_with_the_last(tmp_path):
    recipe, sites = federation(tmp_path)
    invitation = RoundFolder.open(tmp_path / "round", recipe, Options()).invite()
    joins = answer_all(tmp_path, sites, "join", (invitation,))
    for path in joins:
        standing = RoundFolder(tmp_path / "round").take([path])
        assert standing.action == "join"
    standing = RoundFolder(tmp_path / "round").take([], close="join")
    assert standing.missing == ("north", "south", "west")
    came = answer_all(tmp_path, sites, "advertise", standing.outgoing)
    assert RoundFolder(tmp_path / "round").take(came[:1]).missing == ("south", "west")
    assert RoundFolder(tmp_path / "round").take(came[1:]).action == "share"
    assert RoundFolder(tmp_path / "round").take([], close="advertise").action == "share", "it is past that stage"


def test_a_letter_of_somebody_else_of_another_round_or_damaged_is_refused(tmp_path):
    recipe, sites = federation(tmp_path)
    folder = RoundFolder.open(tmp_path / "round", recipe, Options())
    joins = answer_all(tmp_path, sites, "join", (folder.invite(),))
    letter = letters.load(joins[0])
    forged = tmp_path / "forged.letter"
    letters.save(forged, Letter({**letter.fields, "site": "nowhere"}))
    with pytest.raises(MessageError, match="not signed by the identity"):
        folder.take([forged])
    letters.save(forged, Letter({**letter.fields, "round": "0" * 32}))
    with pytest.raises(MessageError, match="another round"):
        folder.take([forged])
    data = bytearray(joins[0].read_bytes())
    data[40] ^= 1
    forged.write_bytes(bytes(data))
    with pytest.raises(MessageError, match="damaged"):
        folder.take([forged])
    standing = folder.take(joins, close="join")
    with pytest.raises(MessageError, match="is for 'south'"):
        answer_letter(
            "advertise", letters.load(tmp_path / "round" / "2-advertise" / "south.letter"), sites[0], sites[0].memory()
        )
    with pytest.raises(MessageError, match="asks for 'advertise'"):
        answer_letter("share", letters.load(standing.outgoing[0]), sites[0], sites[0].memory())
    late = Letter(
        {**letters.load(answer_all(tmp_path, sites, "advertise", standing.outgoing)[0]).fields, "site": "south"}
    )
    letters.save(forged, late)
    with pytest.raises(MessageError, match="not signed by the identity"):
        folder.take([forged])


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"ghofl letter 1\n" + b"\xff" * 60])
def test_what_is_not_a_letter_is_said_not_to_be_one(data):
    with pytest.raises(MessageError):
        letters.from_bytes(data)


def test_fields_come_back_as_they_were_and_odd_ones_are_refused():
    letter = Letter({"a": "text", "b": b"\x00\xff", "c": [b"1", b""], "d": True, "e": 7}, b"payload")
    back = letters.from_bytes(letters.to_bytes(letter))
    assert dict(back.fields) == dict(letter.fields)
    assert back.content == b"payload"
    for odd in ({"x": None}, {"x": 1.5}, {"x": {"bytes": "a", "y": 1}}, {"x": {"other": "a"}}):
        with pytest.raises((MessageError, ValueError)):
            letters.from_bytes(letters.to_bytes(Letter(odd)))


def test_a_policy_without_peers_refuses_and_a_second_round_is_refused_by_the_ledger(tmp_path):
    recipe, sites = federation(tmp_path)
    conduct(tmp_path, recipe, sites)
    second = RoundFolder.open(tmp_path / "second", recipe, Options())
    with pytest.raises(PolicyError, match="already revealed in a round"):
        answer_letter("join", letters.load(second.invite()), sites[0], sites[0].memory())
    (tmp_path / "north" / "policy.toml").write_text("min_survivors = 2\n")
    with pytest.raises(PolicyError, match="does not say with whom it joins"):
        answer_letter("join", letters.load(second.invite()), sites[0], sites[0].memory())


def test_a_grown_cohort_under_another_recipe_does_not_show_the_new_site(tmp_path):
    """The difference of the two sums would be the exact moments of the fourth site."""
    recipe, sites = federation(tmp_path, 4, "any_peers = true\nmin_survivors = 2\nmin_difference = 1\n")
    for name, (x, y) in zip(NAMES, site_rows(4), strict=False):
        np.savez(tmp_path / name / "rows.npz", x=x, y=np.array(recipe.classes)[y])
    conduct(tmp_path, recipe, sites[:3])
    other = replace(recipe, classes=recipe.classes[::-1])
    other.save(tmp_path / "recipe.toml")
    for site in sites[:3]:
        reopen(site, other, NAMES[:4], confirm=True)
    for name in NAMES[:4]:
        (tmp_path / name / "policy.toml").write_text("any_peers = true\nmin_survivors = 2\n")
    (tmp_path / "second").mkdir()
    with pytest.raises(PolicyError, match=r"would show east by itself.* It would be allowed without east\."):
        conduct(tmp_path / "second", other, sites)


def test_an_exact_message_does_not_leave_beside_a_sum_whose_list_the_site_never_saw(tmp_path):
    recipe, sites = federation(tmp_path, 5)
    total = conduct(tmp_path, recipe, sites, {"endorse": ["west"]}, Options(dropout=0.2))
    assert "west" in {entry.site for entry in total.roster}
    plain = replace(recipe, privacy=Privacy())
    plain.save(tmp_path / "recipe.toml")
    reply = answer("message", Letter({"recipe": plain.to_toml()}), sites[2], sites[2].memory())
    assert (reply.fields["status"], reply.payload) == ("refused", b"")
    assert "would show west by itself" in reply.fields["why"]


def test_a_site_that_lost_its_ledger_answers_no_letter(tmp_path):
    recipe, sites = federation(tmp_path)
    opened = RoundFolder.open(tmp_path / "round", recipe, Options())
    answer_letter("join", letters.load(opened.invite()), sites[0], sites[0].memory())
    for name in ("ledger.jsonl", "ledger.head"):
        (tmp_path / "north" / "keep" / name).unlink()
    with pytest.raises(PolicyError, match="SiteError"):
        answer_letter("join", letters.load(opened.invite()), sites[0], sites[0].memory())
    assert not (tmp_path / "north" / "keep" / "ledger.jsonl").exists()


def test_a_dealer_of_no_shares_costs_nobody_a_reveal(tmp_path, monkeypatch):
    """What it dealt is noticed before a vector leaves; the others have another round, without being re-opened."""
    recipe, sites = federation(tmp_path, 4)
    honest, bad = client._shares, sorted(NAMES[:4]).index("west")

    def cheating(state, secret, kind, holders):
        shares = honest(state, secret, kind, holders)
        return shares if state.seat != bad else tuple(SimpleNamespace(content=b"\xff" * 33) for _ in shares)

    with monkeypatch.context() as patch:
        patch.setattr(client, "_shares", cheating)
        with pytest.raises(PolicyError, match="refuses, .* to mask beside 'west', who dealt it something"):
            conduct(tmp_path, recipe, sites)
    (tmp_path / "second").mkdir()
    others = [site for site in sites if site.name != "west"]
    assert conduct(tmp_path / "second", recipe, others).moments == plain_sum(recipe, 4, [s.name for s in others])


def test_a_folder_of_another_recipe_or_without_a_round_is_refused(tmp_path):
    recipe, _ = federation(tmp_path)
    with pytest.raises(FederationError, match="holds no round"):
        RoundFolder(tmp_path)
    RoundFolder.open(tmp_path / "round", recipe, Options())
    with pytest.raises(FederationError, match="another recipe or options"):
        RoundFolder.open(tmp_path / "round", recipe, Options(dropout=0.3))
    with pytest.raises(FederationError, match="privacy.secure = false"):
        RoundFolder.open(tmp_path / "other", recipe_of(), Options())


def test_peers_at_the_server_are_known_by_their_keys(tmp_path):
    recipe, sites = federation(tmp_path)
    for name in NAMES[:3]:
        key = tmp_path / name / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)], check=True)
        with open(tmp_path / name / "site.toml", "a") as file:
            file.write('auth_key = "key"\n')
    public = {name: (tmp_path / name / "key.pub").read_text().strip() for name in NAMES[:3]}
    peers = "".join(f'{name} = "{line}"\n' for name, line in public.items())
    sites = [Site.load(tmp_path / name / "site.toml") for name in NAMES[:3]]
    for name in NAMES[:3]:
        (tmp_path / name / "policy.toml").write_text('peers = "peers.toml"\n')
        (tmp_path / name / "peers.toml").write_text(peers)
    folder = RoundFolder.open(tmp_path / "bad", recipe, Options(peers=f'north = "{public["south"]}"\n'))
    with pytest.raises(MessageError, match="not among the peers"):
        folder.take(answer_all(tmp_path, sites[:1], "join", (folder.invite(),)))
    total = conduct(tmp_path, recipe, sites, options=Options(peers=peers))
    assert total.moments == plain_sum(recipe, 3, NAMES[:3])


@pytest.mark.slow
def test_three_processes_and_a_server_process_reach_the_plain_total(tmp_path):
    """Every command is a process of its own, as it is where three hospitals mail files."""
    recipe, _ = federation(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-m", "ghofl", "secure", *map(str, words)], cwd=tmp_path, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ends_well(*processes):
        for process in processes:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, out + err

    ends_well(start("open", "round", "-r", "recipe.toml"))
    for i, action in enumerate(ACTIONS):
        asked = "invitation" if action == "join" else None
        ends_well(*(
            start(action, f"{n}/site.toml", f"round/{i + 1}-{action}/{asked or n}.letter", "-o", f"{n}-{action}.letter")
            for n in NAMES[:3]
        ))  # fmt: skip
        came = [f"{n}-{action}.letter" for n in NAMES[:3]]
        last = action == "reveal"
        extra = ["-o", "total.ghofl"] if last else ["--close", "join"] if action == "join" else []
        ends_well(start("finish" if last else "next", "round", *came, *extra))
    assert Total.load(tmp_path / "total.ghofl").moments == plain_sum(recipe, 3, NAMES[:3])


def test_commands_say_what_to_do_next_and_write_over_nothing(tmp_path, monkeypatch, capsys):
    federation(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = ghofl("secure", "open", "round", "-r", "recipe.toml")
    assert "Give round/1-join/invitation.letter to every site" in " ".join(said.split())
    for _ in range(2):
        ghofl("secure", "join", "north/site.toml", "round/1-join/invitation.letter", "-o", "north.letter")
    (tmp_path / "kept").write_text("precious")
    ghofl("secure", "join", "south/site.toml", "round/1-join/invitation.letter", "-o", "kept", code=2)
    assert (tmp_path / "kept").read_text() == "precious"
    assert "Joined so far: north" in ghofl("secure", "next", "round", "north.letter")
    ghofl("secure", "next", "round", "--close", "join", code=2)
    assert "1 sites joined the round" in capsys.readouterr().err
    ghofl("secure", "next", "round", "--close", "reveal", code=2)


def test_a_round_finished_again_writes_over_nothing_unless_forced(tmp_path, monkeypatch):
    """Where the total was there already, any file named by --json was lost."""
    recipe, sites = federation(tmp_path)
    conduct(tmp_path, recipe, sites)
    monkeypatch.chdir(tmp_path)
    ghofl("secure", "finish", "round", "-o", "total.ghofl")
    (tmp_path / "kept.json").write_text("precious")
    ghofl("secure", "finish", "round", "-o", "total.ghofl", "--json", "kept.json", code=2)
    assert (tmp_path / "kept.json").read_text() == "precious"
    ghofl("secure", "finish", "round", "-o", "total.ghofl", "--json", "kept.json", "--force")
    assert json.loads((tmp_path / "kept.json").read_text())["file"] == "total.ghofl"


@pytest.mark.slow
def test_the_walk_through_runs_line_by_line_and_gives_the_plain_total(tmp_path, monkeypatch):
    page = Path(__file__).parents[1] / "docs" / "how-to-secure-files.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("ghofl ")]
    assert len(lines) == 28
    monkeypatch.chdir(tmp_path)
    federation(tmp_path)
    names = np.array(["cat", "dog", "bird"])
    for home, (x, y) in zip(NAMES, site_rows(3), strict=False):
        np.savez(tmp_path / home / "rows.npz", x=x, y=names[y])
        (tmp_path / home / "site.toml").write_text(
            f'name = "{home}"\nembeddings = "rows.npz"\nfolder = "keep"\npolicy = "policy.toml"\nrecipe = "../recipe.toml"\n'
        )
    np.savez("public.npz", x=site_rows(3)[0][0], y=names[site_rows(3)[0][1]])
    (tmp_path / "recipe.toml").unlink()
    for line in lines:
        ghofl(*line.split()[1:])
    total = Total.load("total.ghofl")
    assert total.moments == plain_sum(total.recipe, 3, NAMES[:3])
