"""Secure rounds by files: what Flower does, without a network."""

import json
from pathlib import Path

import numpy as np
import pytest
from carriers import Files
from test_cli import ghofl

from federations import blobs, recipe_of
from ghofl import Privacy, Recipe, Total
from ghofl.custody.site import Site
from ghofl.errors import FederationError, GhoflError, MessageError
from ghofl.federation.round import ACTIONS, Options
from ghofl.mail.at_site import answer_letter
from ghofl.mail.round_folder import RoundFolder
from ghofl.wire import letter as letters
from ghofl.wire.letter import Letter
from sites import exact_total, key_pair

NAMES = ("north", "south", "west")


def site_rows(dim=6):
    x, y = blobs(np.random.default_rng(2), 120, classes=3, dim=dim)
    return [(x[i::3], y[i::3]) for i in range(3)]


def federation(folder: Path, dim=6) -> tuple[Recipe, list[Site]]:
    """A secure recipe, and sites with rows, policies and folders of their own."""
    recipe = recipe_of(dim, classes=3, statistics=("S",), privacy=Privacy(secure=True))
    recipe.save(folder / "recipe.toml")
    out = []
    for name, (x, y) in zip(NAMES, site_rows(dim), strict=True):
        home = folder / name
        home.mkdir()
        np.savez(home / "rows.npz", x=x, y=y)
        (home / "policy.toml").write_text("any_peers = true\nmin_survivors = 2\n")
        places = 'embeddings = "rows.npz"\nfolder = "keep"\npolicy = "policy.toml"\nrecipe = "../recipe.toml"\n'
        text = f'name = "{name}"\n{places}labels_are_numbers = true\n'
        (home / "site.toml").write_text(text)
        out.append(Site.load(home / "site.toml"))
    return recipe, out


def answer_all(folder, sites, action, standing_letters):
    """The letters that sites write when they are asked, as files."""
    out = []
    for site in sites:
        asked = [p for p in standing_letters if p.stem.split("-")[-1] in (site.name, "invitation")]
        if not asked:
            continue
        reply = answer_letter(letters.load(asked[0]), site, site.storage())
        path = folder / f"{site.name}-{action}.letter"
        path.write_bytes(letters.to_file(reply))
        out.append(path)
    return out


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
        one = RoundFolder(tmp_path / "round").take(came, close)
        files = {path: path.read_bytes() for path in (tmp_path / "round").rglob("*") if path.is_file()}
        two = RoundFolder(tmp_path / "round").take(came, close)
        assert {path: path.read_bytes() for path in files} == files
        assert (one.action, one.outgoing, two.taken) == (two.action, two.outgoing, ())
        asked = one.outgoing
    assert two.total is not None


def test_a_site_with_a_key_joins_with_the_same_bytes_until_it_has_another_key(tmp_path):
    """No two signatures of such a key are the same, and a command that is given again must not write another letter."""
    recipe, _ = federation(tmp_path)
    home, opened = tmp_path / "north", RoundFolder.open(tmp_path / "round", recipe, Options())
    key_pair(home / "key")
    (home / "site.toml").write_text((home / "site.toml").read_text() + 'auth_key = "key"\n')
    joined = [join(home, opened) for _ in range(2)]
    assert joined[0] == joined[1]
    key_pair(home / "key")
    assert join(home, opened).fields["signature"] != joined[0].fields["signature"]


def join(home, opened):
    site = Site.load(home / "site.toml")
    return answer_letter(letters.load(opened.invite()), site, site.storage())


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


def test_a_large_letter_may_be_given_again_at_a_later_stage(tmp_path, monkeypatch):
    monkeypatch.setattr("ghofl.mail.round_folder.SLACK", 2**12)
    recipe, sites = federation(tmp_path, dim=40)
    asked = (RoundFolder.open(tmp_path / "round", recipe, Options()).invite(),)
    for action in ACTIONS[:4]:
        came = answer_all(tmp_path, sites, action, asked)
        asked = RoundFolder(tmp_path / "round").take(came, "join").outgoing
    assert came[0].stat().st_size > 3 * 2**12, "larger than any other letter may be"
    again = RoundFolder(tmp_path / "round").take(came)
    assert (again.action, again.taken) == ("endorse", ())


def test_a_letter_of_somebody_else_of_another_round_or_damaged_is_refused(tmp_path):
    recipe, sites = federation(tmp_path)
    folder = RoundFolder.open(tmp_path / "round", recipe, Options())
    joins = answer_all(tmp_path, sites, "join", (folder.invite(),))
    letter = letters.load(joins[0])
    with pytest.raises(MessageError, match="written by the site 'north'; sites answer letters of the server"):
        answer_letter(letter, sites[0], sites[0].storage())
    forged = tmp_path / "forged.letter"
    forged.write_bytes(letters.to_file(Letter({**letter.fields, "site": "nowhere"})))
    with pytest.raises(MessageError, match="not signed by the identity"):
        folder.take([forged])
    forged.write_bytes(letters.to_file(Letter({**letter.fields, "round": "0" * 32})))
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
            letters.load(tmp_path / "round" / "2-advertise" / "2-south.letter"),
            sites[0],
            sites[0].storage(),
        )
    other = Letter({**letters.load(standing.outgoing[0]).fields, "action": "message"})
    with pytest.raises(MessageError, match="asks for 'message', and letters of a round ask for join"):
        answer_letter(other, sites[0], sites[0].storage())
    late = Letter(
        {**letters.load(answer_all(tmp_path, sites, "advertise", standing.outgoing)[0]).fields, "site": "south"}
    )
    forged.write_bytes(letters.to_file(late))
    with pytest.raises(MessageError, match="not signed by the identity"):
        folder.take([forged])


def test_a_folder_of_another_recipe_or_without_a_round_is_refused(tmp_path):
    recipe, _ = federation(tmp_path)
    with pytest.raises(FederationError, match="holds no round"):
        RoundFolder(tmp_path)
    RoundFolder.open(tmp_path / "round", recipe, Options())
    with pytest.raises(FederationError, match="another recipe or options"):
        RoundFolder.open(tmp_path / "round", recipe, Options(dropout=0.3))


def test_nothing_of_a_letter_can_control_a_terminal(tmp_path):
    recipe, sites = federation(tmp_path)
    opened, odd = RoundFolder.open(tmp_path / "round", recipe, Options()), "\x1b[2J" + 1000 * "x"
    joined = letters.load(answer_all(tmp_path, sites[:1], "join", (opened.invite(),))[0])
    for field in ("site", "action", "round"):
        (tmp_path / "odd.letter").write_bytes(letters.to_file(Letter({**joined.fields, field: odd})))
        with pytest.raises(MessageError) as told:
            opened.take([tmp_path / "odd.letter"])
        with pytest.raises(GhoflError) as said:
            answer_letter(letters.load(tmp_path / "odd.letter"), sites[0], sites[0].storage())
        assert str(told.value).isprintable()
        assert str(said.value).isprintable()
        assert len(str(told.value)) < 700


def test_commands_say_what_to_do_next_and_write_over_nothing(tmp_path, monkeypatch, capsys):
    federation(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = ghofl("secure", "open", "round", "-r", "recipe.toml")
    assert "Give round/1-join/invitation.letter to every site" in " ".join(said.split())
    for _ in range(2):
        ghofl("secure", "answer", "north/site.toml", "round/1-join/invitation.letter", "-o", "north.letter")
    (tmp_path / "kept").write_text("precious")
    ghofl("secure", "answer", "south/site.toml", "round/1-join/invitation.letter", "-o", "kept", code=2)
    assert (tmp_path / "kept").read_text() == "precious"
    assert "Joined so far: north" in ghofl("secure", "next", "round", "north.letter")
    ghofl("secure", "next", "round", "--close", "join", code=2)
    assert "1 sites joined the secure round" in capsys.readouterr().err
    ghofl("secure", "next", "round", "--close", "end", code=2)


def test_a_round_finished_again_writes_over_nothing_unless_forced(tmp_path, monkeypatch):
    """Where the total was there already, any file named by --json was lost."""
    recipe, _ = federation(tmp_path)
    monkeypatch.chdir(tmp_path)
    Files().hold(tmp_path / "round", recipe, [tmp_path / name / "site.toml" for name in NAMES])
    assert "round/total.ghofl is the sum over" in " ".join(ghofl("secure", "next", "round").split())
    (tmp_path / "kept.json").write_text("precious")
    ghofl("secure", "next", "round", "--json", "kept.json", code=2)
    assert (tmp_path / "kept.json").read_text() == "precious"
    ghofl("secure", "next", "round", "--json", "kept.json", "--force")
    assert json.loads((tmp_path / "kept.json").read_text())["file"] == "round/total.ghofl"


@pytest.mark.slow
def test_the_walk_through_runs_line_by_line_and_gives_the_plain_total(tmp_path, monkeypatch):
    page = Path(__file__).parents[1] / "docs" / "how-to-secure-files.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("ghofl ")]
    assert len(lines) == 28
    monkeypatch.chdir(tmp_path)
    federation(tmp_path)
    names = np.array(["cat", "dog", "bird"])
    for home, (x, y) in zip(NAMES, site_rows(), strict=True):
        np.savez(tmp_path / home / "rows.npz", x=x, y=names[y])
        (tmp_path / home / "site.toml").write_text(
            f'name = "{home}"\nembeddings = "rows.npz"\nfolder = "keep"\npolicy = "policy.toml"\nrecipe = "../recipe.toml"\n'
        )
    np.savez("public.npz", x=site_rows()[0][0], y=names[site_rows()[0][1]])
    (tmp_path / "recipe.toml").unlink()
    for line in lines:
        ghofl(*line.split()[1:])
    total = Total.load("round/total.ghofl")
    assert total.moments == exact_total(tmp_path, [tmp_path / name / "site.toml" for name in NAMES], total.recipe)
