"""A site's configuration and policy, what it shows before it sends, and what it answers."""

import dataclasses
import json
import multiprocessing
import stat
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from deadlines import join
from federations import moments_of
from ghofl.cli.console import HELD
from ghofl.custody.custody import Custody
from ghofl.custody.disclosure import Disclosure
from ghofl.custody.inspection import decline, inspect
from ghofl.custody.ledger import Ledger
from ghofl.custody.policy import Policy, load_peers
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.errors import BusyError, EncoderError, FederationError, PolicyError, SiteError
from ghofl.flower.new import write_app
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import ACTIONS, answer, text_for_outside
from ghofl.moments import Layout, Moments
from ghofl.recipe import Encoder, Limits, Privacy, Recipe
from ghofl.secure import RingError
from ghofl.secure.node_keys import is_signed, load_public_key, sign
from ghofl.simulation import partition
from ghofl.simulation.site import SimulatedSite
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message
from sites import PLAIN, SECURE, InProcess, confirmed, exact_total, invoke, key_pair, make_sites, settings

ALL = ("central", "distributed", "local")
LOCAL = Privacy(radius=4.0, epsilon=8.0, delta=1e-5, noise="local")


def private(**values):
    return Recipe(("a", "b"), Encoder(dim=2), privacy=Privacy(radius=1.0, **values))


@pytest.mark.parametrize(
    ("policy", "recipe", "why"),
    [
        (Policy(secure=True), private(), "only under secure aggregation"),
        (Policy(), private(secure=True), "with whom it joins secure rounds"),
        (Policy(min_rows=5), private(epsilon=1.0, delta=1e-6), "an answer without noise"),
        (Policy(epsilon=2.0, delta=1e-5, noise=ALL), private(), "epsilon of at most 2, and the recipe promises none"),
        (
            Policy(epsilon=2.0, delta=1e-5, noise=ALL),
            private(epsilon=3.0, delta=1e-6),
            "at most 2, and the recipe promises 3",
        ),
        (Policy(epsilon=2.0, delta=1e-7, noise=ALL), private(epsilon=1.0, delta=1e-6), "delta of at most 1e-07"),
        (
            Policy(epsilon=2.0, delta=1e-5, noise=("local",)),
            private(epsilon=1.0, delta=1e-6),
            "the recipe's is central",
        ),
    ],
)
def test_a_recipe_that_promises_too_little_is_refused(policy, recipe, why):
    with pytest.raises(PolicyError, match=why):
        policy.check_recipe(recipe)


def test_rows_are_counted_in_all_and_in_every_class_that_has_any():
    moments = Moments.of(np.ones((5, 2), dtype=np.int64), np.array([0, 0, 0, 0, 1]), Layout(3, 2, ("D",)))
    Policy(min_rows=5, disclosure=Disclosure(class_rows=1)).check_moments(moments)
    with pytest.raises(PolicyError, match="min_rows of 6"):
        Policy(min_rows=6).check_moments(moments)
    with pytest.raises(PolicyError, match="disclosure rule 'class rows' is not met"):
        Policy(disclosure=Disclosure(class_rows=2)).check_moments(moments)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colour = 1", "unknown key colour"),
        ("min_rows = -1", "min_rows is -1"),
        ("min_rows = 'many'", "must be a whole number"),
        ("noise = ['pink']\nepsilon = 1.0\ndelta = 1e-6", "noise names"),
        ("epsilon = 1.0", "delta is missing"),
        ("epsilon = 1.0\ndelta = 1e-6", "noise does not say whose noise is trusted"),
        ("epsilon = 1.0\ndelta = 1e-6\nnoise = ['local']\nmin_rows = 2", "an answer without noise"),
        ("max_epsilon = 1.0\nmax_delta = 1e-6\nmin_rows = 2", "an answer without noise"),
        ("max_epsilon = 1.0", "are one budget; write both"),
        ("peers = 'peers.toml'\nany_peers = true", "write one of them"),
        ("delta = 1e-6", "write epsilon too"),
        ("min_rows = ", "is not TOML"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused_with_its_file(tmp_path, text, why):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(SiteError, match=why):
        Policy.load(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('embeddings = "x.npz"\nfolder = "f"', "name is missing"),
        ('name = "n"\nfolder = "f"', "needs its rows"),
        ('name = "n"\nfolder = "f"\nembeddings = "x"\ndata = "d"\nencoder = "e"', "needs its rows"),
        ('name = "n"\nembeddings = "x.npz"', "needs its own folder"),
        ('nam = "n"', "did you mean name"),
    ],
)
def test_a_site_that_cannot_work_is_refused_with_its_file(tmp_path, text, why):
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(SiteError, match=why):
        Site.load(tmp_path / "site.toml")


def test_paths_of_a_site_start_from_its_file(tmp_path):
    (tmp_path / "site.toml").write_text('name = "n"\nembeddings = "rows.npz"\nfolder = "/var/f"\npolicy = "p.toml"\n')
    site = Site.load(tmp_path / "site.toml")
    assert site.embeddings == str(tmp_path / "rows.npz")
    assert site.folder == "/var/f"
    assert Site.of_config({"site": str(tmp_path / "site.toml")}) == site


def test_a_site_may_be_configured_on_the_command_line_of_its_node():
    config = {"name": "n", "embeddings": "/rows.npz", "folder": "/f", "auth-key": "/k", "partition-id": 3}
    assert Site.of_config(config) == Site("n", embeddings="/rows.npz", folder="/f", auth_key="/k")


def test_samples_and_an_encoder_do_as_well_as_embeddings(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=rng.normal(size=(30, 6)), y=np.arange(30) % 4)
    common = {"folder": str(tmp_path / "f"), "labels_are_numbers": True}
    rows = Site("n", embeddings=str(tmp_path / "rows.npz"), **common)
    samples = Site("n", data=str(tmp_path / "rows.npz"), encoder="precomputed:", **common)
    assert rows.count(PLAIN).moments.rows == 30
    assert samples.count(PLAIN).moments == rows.count(PLAIN).moments


def test_whole_number_labels_are_places_in_the_list_of_classes_only_where_the_site_says_so(tmp_path):
    path = make_sites(tmp_path)[0]
    assert Site.load(path).count(PLAIN).moments.rows > 0
    path.write_text(path.read_text().replace("labels_are_numbers = true", ""))
    with pytest.raises(ValueError, match=r"labels_are_numbers = true in the site file"):
        Site.load(path).count(PLAIN)


def test_a_site_sends_the_very_same_message_whenever_it_is_asked(tmp_path):
    site = Site.load(make_sites(tmp_path)[0])
    first = Custody(site, site.storage()).parcel_to_send(PLAIN)
    (tmp_path / "0.npz").unlink()
    again = Custody(site, site.storage()).parcel_to_send(PLAIN)
    assert again.content == first.content
    assert Message.from_bytes(again.content, PLAIN).id == first.message_id
    (tmp_path / "memory-0" / "outbox" / f"{PLAIN.fingerprint}.bin").write_bytes(b"something else")
    with pytest.raises(ValueError, match="damaged; remove it there"):
        Custody(site, site.storage()).parcel_to_send(PLAIN)


def test_what_a_site_remembers_only_its_owner_reads(tmp_path):
    memory = FolderStorage(tmp_path / "memory")
    memory.put("round/1/identity", b"secret")
    assert memory.get("round/1/identity") == b"secret"
    assert memory.get("nothing") is None
    assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "memory" / "round" / "1" / "identity").stat().st_mode) == 0o600
    memory.forget("round/1")
    assert memory.get("round/1/identity") is None
    memory.forget("round/2")


def ask_at(start, path, out):
    """In another process: ask a site for its message when told to, and write down what came."""
    site = Site.load(path)
    start.wait(60)
    reply = answer("message", Letter({"recipe": PLAIN.to_toml(), "counted": []}), site, site.storage())
    out.write_bytes(reply.payload)


@pytest.mark.slow
def test_two_processes_at_one_site_folder_send_one_message(tmp_path):
    """Each packed a message of its own, with an id of its own: two messages of one site, or two draws of noise."""
    path, spawn = make_sites(tmp_path)[0], multiprocessing.get_context("spawn")
    start = spawn.Barrier(4)
    asking = [spawn.Process(target=ask_at, args=(start, path, tmp_path / f"reply-{i}")) for i in range(4)]
    for process in asking:
        process.start()
    for process in asking:
        join(process, 120)
    sent = {(tmp_path / f"reply-{i}").read_bytes() for i in range(4)}
    assert len(sent) == 1
    assert Message.from_bytes(sent.pop(), PLAIN).site == "site-0"


def test_a_site_folder_that_stays_busy_is_told_and_nothing_is_done(tmp_path, monkeypatch):
    path = make_sites(tmp_path)[0]
    site = Site.load(path)
    monkeypatch.setattr("ghofl.custody.storage.PATIENCE", 0.1)
    with site.storage().lock():
        for action in ACTIONS:
            reply = answer(action, Letter({"recipe": PLAIN.to_toml(), "round": "0" * 32}), site, site.storage())
            assert reply.fields["why"].startswith("BusyError.")
            assert str(tmp_path) not in reply.fields["why"]
        busy = invoke("check", path, "--recipe", tmp_path / "recipe.toml")
        assert isinstance(busy.exception, BusyError)
        assert not (tmp_path / "memory-0" / "outbox").exists()
    assert invoke("check", path, "--recipe", tmp_path / "recipe.toml").exit_code == 0
    assert answer("message", Letter({"recipe": PLAIN.to_toml()}), site, site.storage()).fields["status"] == "sent"


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(Site)])
@pytest.mark.parametrize("value", ["1.5", "{ a = 1 }", '"a\\u0000b"'])
def test_a_wrong_type_in_a_site_file_is_an_error_that_names_key_and_file(tmp_path, key, value):
    usual = {"name": '"n"', "embeddings": '"x.npz"', "folder": '"f"'}
    text = "\n".join(f"{name} = {what}" for name, what in {**usual, key: value}.items())
    (tmp_path / "site.toml").write_text(text)
    texts = (
        "split",
        "pooling",
        "fit",
        "device",
        "text_column",
        "path_column",
        "label_column",
        "socket_group",
        "person",
    )
    if key in texts and "u0000" in value:
        assert Site.load(tmp_path / "site.toml")  # no path
        return
    with pytest.raises(SiteError, match=key):
        Site.load(tmp_path / "site.toml")


@pytest.mark.parametrize("site", [5, True, 1.5, "", "a\0b", ["x"]])
def test_a_node_s_configuration_names_its_site_file_with_a_text(site):
    with pytest.raises(SiteError, match='write site="/etc/ghofl/site.toml"'):
        Site.of_config({"site": site})


@pytest.mark.parametrize(
    "changes",
    [
        {"partition-id": "0"}, {"partition-id": 3}, {"partition-id": -1}, {"num-partitions": None}, {"num-partitions": 2.0},
        {"simulated-alpha": "x"}, {"simulated-alpha": -1.0}, {"simulated-alpha": float("nan")}, {"simulated-seed": 1.5},
        {"simulated-seed": -1}, {"simulated-embeddings": 5}, {"simulated-embeddings": "a\0b"}, {"simulated-alph": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_simulated_site_with_wrong_values_is_refused(changes):
    values = {"partition-id": 0, "num-partitions": 3, "simulated-embeddings": "/rows.npz"} | changes
    with pytest.raises(SiteError):
        SimulatedSite.of_config(values, values)


def test_an_encoder_s_file_is_found_beside_the_site_file(tmp_path):
    def encoder(spec, weights=""):
        lines = ['name = "n"', 'data = "d"', 'folder = "f"', f'encoder = "{spec}"', f'weights = "{weights}"']
        (tmp_path / "site.toml").write_text("\n".join(lines))
        site = Site.load(tmp_path / "site.toml")
        return site.encoder, site.weights

    (tmp_path / "bert").mkdir()
    assert encoder("onnx:x.onnx") == (f"onnx:{tmp_path / 'x.onnx'}", "")
    assert encoder("onnx:models/x.onnx") == (f"onnx:{tmp_path / 'models' / 'x.onnx'}", "")
    assert encoder("onnx:/models/x.onnx") == ("onnx:/models/x.onnx", "")
    assert encoder("hf:bert") == (f"hf:{tmp_path / 'bert'}", "")
    assert encoder("hf:sentence-transformers/all-MiniLM-L6-v2")[0] == "hf:sentence-transformers/all-MiniLM-L6-v2"
    assert encoder("timm:resnet18", "w.safetensors") == ("timm:resnet18", str(tmp_path / "w.safetensors"))
    assert encoder("precomputed:mine")[0] == "precomputed:mine"
    (tmp_path / "elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "elsewhere")
        Site.load(tmp_path / "site.toml")
        encoder("onnx:missing.onnx")
        np.savez(tmp_path / "d.npz", x=np.ones((4, 6)), y=np.arange(4))
        (tmp_path / "site.toml").write_text((tmp_path / "site.toml").read_text().replace('"d"', '"d.npz"'))
        with pytest.raises((EncoderError, FileNotFoundError), match=str(tmp_path / "missing.onnx")):
            Site.load(tmp_path / "site.toml").count(PLAIN)


@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
def test_nothing_leaves_before_an_administrator_approved_it(tmp_path, recipe):
    paths = make_sites(tmp_path, recipe=recipe, policy="confirm = true\n")
    with pytest.raises(RuntimeError, match="sites"):
        run(InProcess(paths), recipe, settings(tmp_path / "run"))
    assert "has not approved recipe" in (tmp_path / "run" / "report.json").read_text()
    for path in paths:
        seen = invoke("check", path, "--recipe", tmp_path / "recipe.toml")
        assert seen.exit_code == 0, seen.output
        assert "waits for --confirm" in seen.output
        assert "someone who knows all rows but one" in seen.output
        assert ("It leaves masked" in seen.output) == recipe.privacy.secure
        assert ("one that invents the other sites learns these numbers" in seen.output) == recipe.privacy.secure
        done = confirmed("check", path, "--recipe", tmp_path / "recipe.toml", "--json", "-")
        assert json.loads(done.output)["approved"] is True
    outcome = run(InProcess(paths), recipe, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths)


@pytest.mark.parametrize("policy", ["confirm = true\n", ""], ids=["with approvals", "without"])
@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
def test_what_an_administrator_declined_does_not_leave_until_it_is_approved(tmp_path, recipe, policy):
    path = make_sites(tmp_path, recipe=recipe, policy=policy)[0]
    site, file = Site.load(path), tmp_path / "recipe.toml"
    words = {"recipe": recipe.to_toml()} | ({"round": "f" * 32} if recipe.privacy.secure else {})
    action = "join" if recipe.privacy.secure else "message"
    confirmed("check", path, "--recipe", file)
    declined = invoke("check", path, "--recipe", file, "--decline", "--json", "-")
    assert declined.exit_code == 4, declined.output
    assert [json.loads(declined.output)[key] for key in ("approved", "declined", "held")] == [False, True, True]
    refused = answer(action, Letter(dict(words)), site, site.storage())
    assert "administrator has declined recipe" in refused.fields["why"]
    assert "it is declined" in invoke("check", path, "--recipe", file, "--again").output, "packed again, it still is"
    assert json.loads(confirmed("check", path, "--recipe", file, "--json", "-").output)["approved"]
    assert answer(action, Letter(dict(words)), site, site.storage()).fields["status"] in ("sent", "joined")
    assert [line.what for line in Ledger.load(site.storage()).of("approved", "declined")] == [
        "approved",
        "declined",
        "approved",
    ]


@pytest.mark.parametrize("stage", ["join", "mask", "endorse"])
def test_declined_in_the_middle_of_a_round_a_site_goes_no_further_in_it(tmp_path, stage):
    paths = make_sites(tmp_path, recipe=SECURE)
    site = Site.load(paths[0])

    def decline_after(action, node, reply):
        if (action, node) == (stage, 100):
            decline(inspect(site, SECURE), site)
        return reply

    with suppress(FederationError):
        run(InProcess(paths, twist=decline_after), SECURE, settings(tmp_path / "run"))
    lines = list(Ledger.load(site.storage()).lines)
    after = lines[[line.what for line in lines].index("declined") + 1 :]
    assert {line.what for line in after} <= {"refused", "answered"}
    assert {line.facts["action"] for line in after if line.what == "answered"} <= {"share"}, "shares are not about rows"
    assert any("administrator has declined recipe" in line.facts.get("why", "") for line in after)


def test_before_an_approval_rows_are_not_read_for_a_server(tmp_path):
    """Else a server would learn how many there are from what is refused, by trying limits."""
    site = Site.load(make_sites(tmp_path, policy="confirm = true\n")[0])
    whys = {
        answer("message", Letter({"recipe": recipe.to_toml()}), site, site.storage())
        .fields["why"]
        .partition("recipe")[0]
        for recipe in (replace(PLAIN, limits=Limits(max_rows=1)), PLAIN, replace(PLAIN, classes=("x", "y")))
    }
    assert whys == {"this site's administrator has not approved "}
    assert not (tmp_path / "memory-0" / "outbox").exists()


def test_check_says_when_the_rows_behind_an_approval_have_changed(tmp_path):
    path, recipe = make_sites(tmp_path, policy="confirm = true\n")[0], tmp_path / "recipe.toml"
    confirmed("check", path, "--recipe", recipe)
    with np.load(tmp_path / "0.npz") as data:
        x, y = data["x"], data["y"]
    assert json.loads(invoke("check", path, "--recipe", recipe, "--json", "-").output)["rows_changed"] is False
    np.savez(tmp_path / "0.npz", x=x[1:], y=y[1:])
    seen = invoke("check", path, "--recipe", recipe)
    assert "is approved, as it was packed earlier" in seen.output
    assert "the rows have changed since this was packed" in seen.output
    assert "--again" in seen.output
    told = json.loads(invoke("check", path, "--recipe", recipe, "--json", "-").output)
    assert (told["rows_changed"], told["rows"], told["rows_now"]) == (True, len(y), len(y) - 1)
    anew = invoke("check", path, "--recipe", recipe, "--again")
    assert "waits for --confirm" in anew.output
    assert "have changed" not in anew.output
    (tmp_path / "0.npz").unlink()
    gone = invoke("check", path, "--recipe", recipe)
    assert "the rows it was made from are no longer there" in gone.output
    assert isinstance(invoke("check", path, "--recipe", recipe, "--again").exception, FileNotFoundError)


def test_check_warns_of_rows_that_fall_outside_the_grid(tmp_path):
    path, recipe = make_sites(tmp_path)[0], tmp_path / "recipe.toml"
    fine = invoke("check", path, "--recipe", recipe)
    assert "WARNING" not in fine.output
    replace(PLAIN, grid=replace(PLAIN.grid, scale=1e6)).save(recipe)
    seen = invoke("check", path, "--recipe", recipe)
    assert "of its entries fell outside the grid and were clipped" in seen.output
    assert "should not be sent; grid.scale = " in seen.output
    assert (fine.exit_code, seen.exit_code) == (0, HELD)
    assert json.loads(invoke("check", path, "--recipe", recipe, "--json", "-").output)["clipped_share"] > 0.9


def test_check_shows_the_figures_that_no_rule_may_read_under_epsilon(tmp_path):
    recipe = replace(PLAIN, privacy=LOCAL)
    path = make_sites(tmp_path, recipe=recipe)[0]
    told = json.loads(invoke("check", path, "--recipe", tmp_path / "recipe.toml", "--json", "-").output)
    counts = Site.load(path).count(recipe).moments.counts
    assert (told["rows"], told["smallest_class"]) == (counts.sum(), counts[counts > 0].min())


def test_rules_about_exact_rows_are_refused_under_a_recipe_with_epsilon(tmp_path):
    """The same words for every site: whether there are five rows or four would be an answer without noise."""
    recipe = replace(PLAIN, privacy=LOCAL)
    sites = [Site.load(path) for path in make_sites(tmp_path, recipe=recipe, policy="min_rows = 2\n")]
    query = Letter({"recipe": recipe.to_toml()})
    said = {answer("message", query, site, site.storage()).fields["why"] for site in sites}
    assert len(said) == 1
    assert "without noise" in said.pop()
    assert not (tmp_path / "memory-0" / "outbox").exists()


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 20, 21])
@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_sites_that_differ_in_one_row_give_the_same_kind_of_answer_under_epsilon(tmp_path, rows, noise):
    privacy = replace(LOCAL, noise=noise, secure=noise == "distributed")
    recipe = replace(PLAIN, privacy=privacy, limits=Limits(max_rows=20))
    action = "join" if privacy.secure else "message"
    rng, kinds = np.random.default_rng(0), []
    x, y = rng.normal(size=(rows + 1, 6)), np.arange(rows + 1) % 4
    for count in (rows, rows + 1):
        folder = tmp_path / str(count)
        folder.mkdir()
        path = make_sites(folder, recipe=recipe)[0]
        np.savez(folder / "0.npz", x=x[:count], y=y[:count])
        site = Site.load(path)
        reply = answer(action, Letter({"recipe": recipe.to_toml(), "round": "0" * 32}), site, site.storage())
        kinds.append((reply.fields["status"], reply.fields.get("why")))
    assert kinds[0] == kinds[1]
    assert kinds[0][0] in ("sent", "joined")


def test_check_refuses_what_the_site_would_refuse(tmp_path):
    path = make_sites(tmp_path, policy="secure = true\n")[0]
    refused = invoke("check", path, "--recipe", tmp_path / "recipe.toml")
    assert refused.exit_code != 0
    assert isinstance(refused.exception, PolicyError)
    assert not (tmp_path / "memory-0" / "outbox").exists()


def test_others_learn_the_kind_of_an_error_and_nothing_of_its_text():
    assert text_for_outside(PolicyError("min_rows of 5")) == "min_rows of 5"
    assert "secret" not in text_for_outside(ValueError("secret"))
    assert text_for_outside(RingError("an entry of 5178 is beyond 4096")).startswith("RingError. The site's log")
    assert "/data/north" not in text_for_outside(FileNotFoundError("/data/north"))
    undocumented = type("UndocumentedError", (SiteError,), {"__doc__": None})("patient Smith")
    assert text_for_outside(undocumented) == "UndocumentedError. The site's log has the details."


@pytest.mark.parametrize("action", [a for a in ACTIONS if a not in ("message", "join", "advertise")])
def test_a_site_that_is_in_no_round_answers_no_stage_of_one(tmp_path, action):
    site = Site.load(make_sites(tmp_path, recipe=SECURE)[0])
    for round_id in ("0" * 32, "../../etc", ""):
        reply = answer(action, Letter({"round": round_id}, b"letter"), site, site.storage())
        assert reply.fields["status"] == "refused"
        assert reply.payload == b""


def test_a_hostile_agreement_is_refused(tmp_path):
    site = Site.load(make_sites(tmp_path, recipe=SECURE)[0])
    reply = answer("advertise", Letter({}, b"garbage"), site, site.storage())
    assert reply.fields["status"] == "refused"


def test_keys_sign_for_their_owner_alone(tmp_path):
    pem = key_pair(tmp_path / "north")
    key_pair(tmp_path / "south")
    north = load_public_key((tmp_path / "north.pub").read_bytes(), "north")
    south = load_public_key((tmp_path / "south.pub").read_bytes(), "south")
    signature = sign(tmp_path / "north", b"content")
    assert is_signed(north, signature, b"content")
    assert not is_signed(north, signature, b"another")
    assert not is_signed(south, signature, b"content")
    assert is_signed(load_public_key(pem, "pem"), signature, b"content")


def test_bad_keys_are_told_with_what_to_do(tmp_path):
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(SiteError, match="not an OpenSSH private key"):
        sign(tmp_path / "key", b"content")
    with pytest.raises(SiteError, match=r"where: not a public key"):
        load_public_key(b"nonsense", "where")
    (tmp_path / "peers.toml").write_text("north = 5\n")
    with pytest.raises(SiteError, match="north is 5"):
        load_peers(tmp_path / "peers.toml")
    key_pair(tmp_path / "key")
    line = (tmp_path / "key.pub").read_text()
    (tmp_path / "peers.toml").write_text(f'north = "{line}"\nsouth = "{line} somebody@south"\n')
    with pytest.raises(SiteError, match="south has the key of north"):  # it would be two sites of a round
        load_peers(tmp_path / "peers.toml")


def test_simulated_sites_share_the_rows_as_simulate_does(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "rows.npz", x_train=rng.normal(size=(60, 6)), y_train=np.array(PLAIN.classes)[np.arange(60) % 4]
    )
    run_config = {"simulated-embeddings": str(tmp_path / "rows.npz"), "simulated-alpha": 0.5}
    sites = [SimulatedSite.of_config({"partition-id": i, "num-partitions": 7}, run_config) for i in range(7)]
    assert sum(site.count(PLAIN).moments.rows for site in sites) == 60
    with np.load(tmp_path / "rows.npz") as rows:
        x, y = rows["x_train"], np.arange(60) % 4
    parts = partition.split(y, 7, np.random.default_rng(0), 0.5)
    assert all(site.count(PLAIN).moments == moments_of(PLAIN, x[p], y[p]) for site, p in zip(sites, parts, strict=True))
    assert [site.name for site in sites][3] == "client-00003"
    with pytest.raises(SiteError, match="a simulation needs rows"):
        SimulatedSite.of_config({"partition-id": 0, "num-partitions": 7}, {})


@pytest.mark.parametrize("recipe", [PLAIN, SECURE, private(epsilon=1.0, delta=1e-6, noise="local", min_count=5)])
def test_new_writes_an_app_whose_files_agree_with_the_recipe(tmp_path, recipe):
    recipe.save(tmp_path / "recipe.toml")
    done = invoke("new", tmp_path / "app", "--recipe", tmp_path / "recipe.toml", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["fingerprint"] == recipe.fingerprint
    assert Recipe.load(tmp_path / "app" / "federation" / "recipe.toml") == recipe
    policy = Policy.load(tmp_path / "app" / "site" / "policy.toml")
    policy.check_recipe(recipe)
    assert bool(policy.peers) == recipe.privacy.secure
    assert not policy.any_peers
    assert "max-rows" not in (tmp_path / "app" / "pyproject.toml").read_text()
    site = Site.load(tmp_path / "app" / "site" / "site.toml")
    assert bool(site.auth_key) == recipe.privacy.secure
    again = invoke("new", tmp_path / "app", "--recipe", tmp_path / "recipe.toml")
    assert isinstance(again.exception, SiteError)
    with pytest.raises(SiteError, match="cannot be the app's name"):
        write_app(tmp_path / "other", recipe, "../x")


@pytest.mark.parametrize(
    "text",
    ["epsilon = nan\ndelta = 1e-5", "epsilon = inf\ndelta = 1e-5", "epsilon = 0.0\ndelta = 1e-5", "epsilon = 1.0\ndelta = nan",
     "epsilon = 1.0\ndelta = 1.0", "corruption = nan", "corruption = 1.0", "corruption = -0.1"],
)  # fmt: skip
def test_a_policy_of_numbers_that_compare_with_nothing_is_refused(tmp_path, text):
    """Whatever a recipe promises, it is not more than nan: such a policy let everything pass."""
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(SiteError, match="policy"):
        Policy.load(tmp_path / "policy.toml")
