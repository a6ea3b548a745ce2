"""The server's side of a round by files: the folder of a round, and in it the letters to sites.

::

    1-join/invitation.letter     for every site
    2-advertise/1-north.letter   for the site at seat 1, and so on: 3-share, 4-mask, 5-endorse, 6-reveal
    total.ghofl                  the sum, once the round is over

Letters of sites are taken as they come, a few at a time or all at once. A stage ends when every site in it has answered,
or when whoever runs the server closes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ghofl import files
from ghofl.errors import FederationError, GhoflError, MessageError
from ghofl.federation.round import ACTIONS, ROUND, Options, Round, after_failure
from ghofl.recipe import Recipe
from ghofl.wire import letter as letters
from ghofl.wire.letter import Letter, text_of

INVITATION, TOTAL, SUFFIX = "invitation", "total.ghofl", ".letter"
SLACK = 2**20  # bytes of a letter beside its payload


@dataclass(frozen=True, slots=True)
class RoundStatus:
    """Where a round stands: the stage, the sites whose letter came, and those whose letter is missing.

    `outgoing` are the letters to sites, and `taken` the sites whose letter was read just now.
    """

    round_id: str
    action: str
    came: tuple[str, ...]
    missing: tuple[str, ...]
    outgoing: tuple[Path, ...] = ()
    taken: tuple[str, ...] = ()
    total: Path | None = None


class RoundFolder:
    """A secure round whose letters are files; every command may be repeated, also after it was killed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / ROUND).exists():
            raise FederationError(f"{path} holds no round; 'ghofl secure open {path} --recipe recipe.toml' opens one.")

    @classmethod
    def open(cls, path: str | Path, recipe: Recipe, options: Options) -> "RoundFolder":
        """A round with a new id; where the folder holds one of the same recipe and options, that one."""
        path = files.own_folder(path)
        with files.lock(path):
            there = Round(path) if (path / ROUND).exists() else Round.open(path, recipe, options)
        if there.recipe.fingerprint != recipe.fingerprint or there.options != options:
            raise FederationError(f"{path} holds a round of another recipe or options; give another folder.")
        return cls(path)

    @property
    def round_id(self) -> str:
        """The id of the round."""
        return Round(self.path).round_id

    def invite(self) -> Path:
        """The letter that asks sites to join, the same one for all of them."""
        return self._put("join", INVITATION, Round(self.path).invitation())

    def take(self, paths: Iterable[Path], close: str = "") -> RoundStatus:
        """Read letters of sites, end their stage where it is complete, and say where the round stands.

        If the round is at the stage `close`, that stage ends without the sites that have not answered, which are left
        out of the sum. At the end of the last stage the total is written.
        """
        with files.lock(self.path):
            here = Round(self.path)
            if (self.path / TOTAL).exists():
                here.forget_secrets()
                return self._standing(here)
            try:
                taken = [name for path in paths if (name := self._take(here, Path(path)))]
            finally:
                here.save()
            is_complete = here.action != "join" and not here.missing  # nobody knows who may still join
            if here.action == close or is_complete:
                self._close(here)
            return self._standing(here, taken)

    def _take(self, here: Round, path: Path) -> str:
        """The site whose letter is in a file; empty where the letter came before."""
        letter = letters.load(path, max(map(here.limit, ACTIONS)) + SLACK)
        name, action = text_of(letter, "site"), text_of(letter, "action")
        if text_of(letter, "round") != here.round_id:
            raise MessageError(
                f"{path} is of another round; this one is {here.round_id[:8]}…. Give a letter of this one."
            )
        try:
            letters.check_signature(letter, _key(here, name, letter), name)
            return name if here.receive(name, action, letter) else ""
        except GhoflError as error:
            raise MessageError(f"{path}: {error}") from None

    def _close(self, here: Round) -> None:
        """Begin the next stage, or write the total."""
        try:
            if here.action != ACTIONS[-1]:
                here.close()
            else:
                here.finish().save(self.path / TOTAL)
                here.forget_secrets()
        except GhoflError as error:
            raise FederationError(f"{error} {after_failure(self.path)}".strip()) from error

    def _standing(self, here: Round, taken: Iterable[str] = ()) -> RoundStatus:
        came, total = tuple(sorted(here.came)), self.path / TOTAL
        if total.exists():
            return RoundStatus(here.round_id, "done", came, (), (), tuple(taken), total)
        return RoundStatus(
            here.round_id, here.action, came, tuple(sorted(here.missing)), self._write_letters(here), tuple(taken)
        )

    def _write_letters(self, here: Round) -> tuple[Path, ...]:
        """Write the letters of the current stage; repeated, they are the same."""
        if here.action == "join":
            return (self._put("join", INVITATION, here.invitation()),)
        seats = {participant.name: seat for seat, participant in enumerate(here.participants, start=1)}
        named = ((f"{seats[name]}-{_readable(name)}".rstrip("-"), letter) for name, letter in here.letters().items())
        return tuple(self._put(here.action, name, letter) for name, letter in named)

    def _put(self, action: str, name: str, letter: Letter) -> Path:
        folder = files.private_folder(self.path / f"{1 + ACTIONS.index(action)}-{action}")
        path, content = folder / f"{name}{SUFFIX}", letters.to_file(letter)
        if not path.exists() or path.read_bytes() != content:
            files.write(path, content, files.PRIVATE)
        return path


def _key(here: Round, name: str, letter: Letter) -> bytes:
    """The identity that a letter must be signed by: the one in it, if a site joins with it, or that of a participant."""
    if letter.fields.get("action") == "join":
        key = letter.fields.get("key")
        return key if isinstance(key, bytes) else b""
    for participant in here.participants:
        if participant.name == name:
            return participant.key
    raise MessageError(f"{name[:64]!r} did not join this round in time; leave its letter out.")


def _readable(name: str) -> str:
    """What a file's name may have of a site's, so that people see for whom it is; the seat before it tells them apart."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:32].strip("-")
