"""Secure rounds by each carrier, Flower and files, over the same sites: what a round promises is tested over both."""

import json
from pathlib import Path
from unittest.mock import patch

from ghofl import secure
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import GhoflError
from ghofl.federation.round import Options
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.mail.at_site import answer_letter
from ghofl.mail.round_folder import RoundFolder
from ghofl.wire import letter as letters
from ghofl.wire.total import Total
from sites import InProcess, settings


class Killed(BaseException):
    """The server's process ends here."""


def killing(stage, after):
    """While the block runs, the server dies when the answer number `after` to a stage comes."""
    receive, seen = secure.receive, []

    def dying(state, sender, data):
        seen.extend([sender] * (state.stage == secure.SERVER_STAGES[secure.STAGES.index(stage)]))
        if len(seen) == after:
            raise Killed
        return receive(state, sender, data)

    return patch.object(secure, "receive", dying)


def names_of(paths):
    return [Site.load(path).name for path in paths]


def history_of(path):
    return History.of(Ledger.load(Site.load(path).storage()))


def without(paths, *numbers):
    return [path for i, path in enumerate(paths) if i not in numbers]


class Carrier:
    """A way to hold a round.

    `vanish` says at which action a site is gone, `twist` changes what a site answers, and `echo` is what it answers a
    second time. `asked` lists who was asked for what, and `left_out` says why sites are not in the sum.
    """

    def __init__(self):
        self.asked, self.left_out = [], {}


class Flower(Carrier):
    """Rounds through an engine without a network."""

    def hold(self, folder, recipe, paths, vanish=None, twist=None, echo=None, ask=None, peers=None, **options):
        names = dict(enumerate(names_of(paths), start=100))
        dead = {node: vanish[name] for node, name in names.items() if name in (vanish or {})}

        class Engine(InProcess):
            def ask(self, action, letters, seconds, size):
                letters = {node: ask(letter) if ask else letter for node, letter in letters.items()}
                for came in super().ask(action, letters, seconds, size):
                    yield came
                    again = echo(action, names[came.node], came.letter) if echo and not came.error else None
                    if again is not None:
                        yield type(came)(came.node, again)

        changed = (lambda action, node, reply: twist(action, names[node], reply)) if twist else None
        engine = Engine(paths, dead=dead, twist=changed, names=names)
        chosen = settings(folder, peers=str(peers or ""), authenticated=peers is not None, **options)
        try:
            return run(engine, recipe, chosen).total
        finally:
            self.asked = [(action, names[node]) for action, node in engine.asked]
            report = Path(folder) / "report.json"
            self.left_out = json.loads(report.read_text())["sites"] if report.exists() else {}

    def after(self, folder):
        """Where the next round is held after one that failed: the same folder is free."""
        assert not (folder / "round").exists()
        return folder


class Files(Carrier):
    """Rounds whose letters are files, each command by itself; letters that are refused are left out."""

    def hold(self, folder, recipe, paths, vanish=None, twist=None, echo=None, ask=None, peers=None, **options):
        self.asked, self.left_out, self.gone = [], {}, set()
        self.folder, self.vanish, self.twist, self.echo, self.ask = Path(folder), vanish or {}, twist, echo, ask
        sites, named = [Site.load(path) for path in paths], peers.read_text() if peers else None
        RoundFolder.open(folder, recipe, Options(peers=named, **{"min_sites": 1, **options}))
        standing = RoundFolder(folder).take([])
        while standing.total is None:
            outgoing = {letter.fields.get("site", ""): letter for letter in map(letters.load, standing.outgoing)}
            for site in sites:
                query = outgoing.get("" if standing.action == "join" else site.name)
                if query is not None and site.name not in standing.came:
                    self._deliver(standing.action, query, site)
            standing = RoundFolder(folder).take([], close=standing.action)
        return Total.load(standing.total)

    def _deliver(self, action, query, site):
        self.asked.append((action, site.name))
        if self.vanish.get(site.name) == action:
            self.gone.add(site.name)
        if site.name in self.gone:
            self.left_out.setdefault(site.name, "no letter came")
            return
        try:
            for twist in [self.twist] + [self.echo] * (self.echo is not None):
                self._take(action, self.ask(query) if self.ask else query, site, twist)
        except GhoflError as error:
            self.left_out[site.name] = f"left out: {error}"

    def _take(self, action, query, site, twist):
        def twisted(action, query, site, memory):
            reply = answer(action, query, site, memory)
            return twist(action, site.name, reply) or reply if twist else reply

        with patch("ghofl.mail.at_site.answer", twisted):
            reply = answer_letter(query, site, site.storage())
        path = self.folder / "came.letter"
        path.write_bytes(letters.to_file(reply))
        RoundFolder(self.folder).take([path])

    def after(self, folder):
        """Where the next round is held after one that failed: a round has its own folder."""
        assert not (folder / "total.ghofl").exists()
        return folder.with_name(folder.name + "-after")


CARRIERS = {"flower": Flower, "files": Files}
