"""Work spread over threads of our own, each with a BLAS of one thread.

A BLAS that spreads every product over its own threads waits for the slowest of them each time. Beside another busy
process that wait is most of the time: one thread lost its core. Here a product runs on one thread, and a thread that is
done takes the next piece of work. There are as many threads as the BLAS would use, so that OPENBLAS_NUM_THREADS,
OMP_NUM_THREADS and `threadpoolctl.threadpool_limits` mean what they always do.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_free = threading.Lock()  # held while threads are at work: whoever asks meanwhile works alone


def each(work: Callable[[T], object], pieces: Iterable[T]) -> None:
    """Call `work` with every piece, on as many threads as the BLAS may use; an error in one of them is raised here.

    Pieces must not write to the same place. A piece that calls `each` itself does those pieces one after another, and so
    does another thread that calls it in the meantime.

    >>> out = [0, 0, 0]
    >>> each(lambda i: out.__setitem__(i, i * i), range(3))
    >>> out
    [0, 1, 4]
    """
    waiting = list(pieces)
    if len(waiting) > 1 and _free.acquire(blocking=False):
        try:
            _share_out(work, waiting)
        finally:
            _free.release()
    else:
        for piece in waiting:
            work(piece)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let the products of a block run on one thread: many small ones after each other gain nothing from two."""
    is_first = _free.acquire(blocking=False)
    try:
        if is_first:
            with _blas().limit(limits=1):
                yield
        else:
            yield
    finally:
        if is_first:
            _free.release()


def _share_out(work: Callable[[T], object], pieces: list[T]) -> None:
    left, taking, errors = iter(pieces), threading.Lock(), []

    def take() -> None:
        with _blas().limit(limits=1):  # on every thread: some libraries ask it of each, others of the first
            while not errors:
                with taking:
                    piece = next(left, errors)
                if piece is errors:
                    return
                try:
                    work(piece)  # type: ignore[arg-type]
                except BaseException as error:
                    errors.append(error)

    # Each thread sees the caller's context: numpy keeps in it what happens at a division by zero.
    others = [
        threading.Thread(target=copy_context().run, args=(take,), daemon=True)
        for _ in range(min(blas_threads(), len(pieces)) - 1)
    ]
    with _blas().limit(limits=1):
        for thread in others:
            thread.start()
        take()
        for thread in others:
            thread.join()
    if errors:
        raise errors[0]


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items of an iterator, each made on another thread while the one before it is worked on.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    done: Any = object()
    with ThreadPoolExecutor(1) as maker:
        following = maker.submit(next, items, done)
        while (item := following.result()) is not done:
            following = maker.submit(next, items, done)
            yield item


def blas_threads() -> int:
    """How many threads the BLAS may use; one where none is found that says so."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  # brings a BLAS of its own, which is looked for once

    return ThreadpoolController().select(user_api="blas")
