"""What made each stored file: `made.json` beside the results names the commit and the recipes behind every one of them.

An entry of a file that a run wrote has `made_by`, the commit that was checked out, and `dirty`, whether source files
differed from it. Files that are older than this index have `stored_at` instead: the commit that last put them there,
which is at least as new as the code that made them. `recipes` are the fingerprints in the file and those that its run
noted, null where none is known; `has_older_rows` says that a run measured a part of the file and kept the rest. `sha256`
is that of the file, so a file that was changed by other means is noticed.

    python -m ghofl_benchmarks.made       # entries for files of the last commit that have none, or another content
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # some results are made where ghofl is not installed
    from ghofl.recipe import Recipe

INDEX = "made.json"
HERE = Path(__file__).parents[1]
SOURCES = ("../src", ".", ":!results")
FINGERPRINT = re.compile("[0-9a-f]{64}")
_noted: set[str] = set()


def note(recipe: "Recipe") -> "Recipe":
    """The recipe, which results of this process were made with."""
    _noted.add(recipe.fingerprint)
    return recipe


def noted() -> frozenset[str]:
    """The fingerprints that were noted."""
    return frozenset(_noted)


def note_all(recipes: Iterable[str]) -> None:
    """Note recipes of other processes by their fingerprints."""
    _noted.update(recipes)


def forget() -> None:
    """Note recipes anew, for another part in the same process."""
    _noted.clear()


def store(path: Path, text: str, has_older_rows: bool = False) -> None:
    """Write a file of results and who made it."""
    path.write_text(text, encoding="utf-8")
    record(path, has_older_rows)


def record(path: Path, has_older_rows: bool = False) -> None:
    """Note that the code of now made this file. A page or picture that came out as it was keeps its entry."""
    entries, old = read(path.parent), read(path.parent).get(path.name, {})
    if path.suffix != ".json" and old.get("sha256") == digest(path):
        return
    recipes = {*_recipes(path), *_noted, *((old.get("recipes") or ()) if has_older_rows else ())}
    entry = {**code(), "when": datetime.now(UTC).date().isoformat(), **_content(path, recipes)}
    write(path.parent, {**entries, path.name: {**entry, "has_older_rows": True} if has_older_rows else entry})


@cache
def code() -> dict[str, Any]:
    """The commit that is checked out, null outside of a repository, and whether the sources differ from it."""
    commit = _git("rev-parse", "HEAD")
    return {"made_by": commit, "dirty": bool(_git("status", "--porcelain", "--", *SOURCES)) if commit else None}


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of a folder by the names of its files."""
    path = folder / INDEX
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Write the index, sorted by name."""
    text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def files(folder: Path) -> list[Path]:
    """The files that an index is about."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != INDEX)


def digest(path: Path) -> str:
    """The sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def recipes_in(found: Any) -> Iterator[str]:
    """Every fingerprint under the name `recipe`, at any depth."""
    if isinstance(found, dict):
        own = found.get("recipe")
        yield from [own] if isinstance(own, str) and FINGERPRINT.fullmatch(own) else []
    for value in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from recipes_in(value)


def joint(fingerprints: Sequence[str]) -> str:
    """One fingerprint for a cell: that of its recipe, or the sha256 of those of several, in their order."""
    one = set(fingerprints)
    return one.pop() if len(one) == 1 else hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()


def stored(path: Path) -> dict[str, Any]:
    """The entry of a file that was committed before anything noted who made it."""
    commit, _, when = (_git("log", "-1", "--format=%H %cs", "--", str(path)) or "").partition(" ")
    return {"stored_at": commit or None, "when": when or None, **_content(path, _recipes(path))}


def _recipes(path: Path) -> set[str]:
    return set(recipes_in(json.loads(path.read_text(encoding="utf-8")))) if path.suffix == ".json" else set()


def _content(path: Path, recipes: set[str]) -> dict[str, Any]:
    return {"recipes": sorted(recipes) or None, "sha256": digest(path)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def main(folder: Path = HERE / "results") -> None:
    """Complete the index of a folder, and take out files that are gone."""
    old = read(folder)
    known = {p.name: old[p.name] for p in files(folder) if old.get(p.name, {}).get("sha256") == digest(p)}
    write(folder, {p.name: known.get(p.name) or stored(p) for p in files(folder)})


if __name__ == "__main__":
    main()
