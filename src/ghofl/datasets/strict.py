"""Pillow's warnings as errors, in the thread that asks for it and nowhere else.

The filters of Python's `warnings` belong to the whole process: a thread that changes them changes them for all, and
threads that put them back in another order leave them changed. So they are not touched. Pillow's modules are given a
`warnings` of their own, which asks whether the thread it is called from is strict.
"""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


class _OfThread(threading.local):
    is_strict = False


_of_thread = _OfThread()


class _PillowsWarnings:
    """The module `warnings` as Pillow's modules see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)

    def warn(
        self, message: Warning | str, category: type[Warning] | None = None, stacklevel: int = 1, **options: Any
    ) -> None:
        if _of_thread.is_strict:
            raise message if isinstance(message, Warning) else (category or UserWarning)(message)
        warnings.warn(message, category, stacklevel + 1, **options)


@contextmanager
def strictly() -> Iterator[None]:
    """What Pillow warns of inside, in this thread, it raises."""
    _watch_pillow()
    before, _of_thread.is_strict = _of_thread.is_strict, True
    try:
        yield
    finally:
        _of_thread.is_strict = before


@cache
def _watch_pillow() -> None:
    from PIL import Image

    Image.init()  # loads the readers of all formats, which have warnings to give
    own = _PillowsWarnings()
    for name, module in list(sys.modules.items()):
        if name.startswith("PIL.") and getattr(module, "warnings", None) is warnings:
            module.warnings = own  # type: ignore[attr-defined]
