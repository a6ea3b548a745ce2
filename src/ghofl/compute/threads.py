"""Work spread over our own threads, each with a BLAS of one thread.

A BLAS that spreads every product over its own threads waits for the slowest of them each time. Beside another busy
process most of the time is spent waiting, because one thread lost its core. Here a product runs on one thread, and a
thread that is done takes the next piece of work. There are as many threads as the BLAS would use, so
OPENBLAS_NUM_THREADS, OMP_NUM_THREADS and `threadpoolctl.threadpool_limits` keep their meaning.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from itertools import islice
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
U = TypeVar("U")
_free = threading.Lock()  # held while threads are at work: other callers then work without threads


def parallel_for(work: Callable[[T], object], pieces: Iterable[T]) -> None:
    """Call `work` with every piece, on as many threads as the BLAS may use; an error in one of them is raised here.

    Pieces must not write to the same place. If a piece, or another thread in the meantime, calls `parallel_for` itself, those
    pieces run one after another.

    >>> out = [0, 0, 0]
    >>> parallel_for(lambda i: out.__setitem__(i, i * i), range(3))
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


def map_in_order(work: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """What `work` makes of items, in their order: sixteen at a time are taken, on all threads.

    >>> list(map_in_order(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    iterator = iter(items)
    while some := list(islice(iterator, 16)):
        made: dict[int, U] = {}
        parallel_for(lambda i: made.__setitem__(i, work(some[i])), range(len(some)))  # noqa: B023 - it returns before the next
        yield from (made[i] for i in range(len(some)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let the products of a block run on one thread: many small ones in a row gain nothing from a second."""
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
        with _blas().limit(limits=1):  # on every thread: some libraries need it on each, others only on the first
            while not errors:
                with taking:
                    piece = next(left, errors)
                if piece is errors:
                    return
                try:
                    work(piece)  # type: ignore[arg-type]
                except BaseException as error:
                    errors.append(error)

    def take_apart(done: threading.Event) -> None:
        try:
            take()
        finally:
            done.set()

    others: list[threading.Event] = []
    helpers = min(blas_threads(), len(pieces)) - 1  # before the limit, under which the BLAS says that it has one
    with _blas().limit(limits=1):
        try:
            for _ in range(helpers):
                done = threading.Event()
                # Each thread sees the caller's context: numpy keeps its handling of a division by zero there.
                threading.Thread(target=copy_context().run, args=(take_apart, done), daemon=True).start()
                others.append(done)
            take()
        except BaseException as error:
            errors.append(error)
        for done in others:
            _wait_for(done, errors)
    if errors:
        raise errors[0]


def _wait_for(done: threading.Event, errors: list[BaseException]) -> None:
    """Wait until a thread is done; Ctrl-C in the meantime is an error, after which it takes no more pieces.

    Left behind, it would write on after the caller has gone, and leave the BLAS with one thread for good. (Joining it will not
    do: an interrupted `Thread.join` takes a thread for dead, at least up to Python 3.12.)
    """
    while not done.is_set():
        try:
            done.wait()
        except BaseException as error:
            errors.append(error)


def prefetch(items: Iterable[T], depth: int = 1) -> Iterator[T]:
    """The same items, with up to `depth` of them made in advance on another thread.

    >>> list(prefetch("abc"))
    ['a', 'b', 'c']
    """
    iterator, end = iter(items), object()
    thread = ThreadPoolExecutor(1)
    try:
        coming = deque(thread.submit(next, iterator, end) for _ in range(depth))
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        thread.shutdown(cancel_futures=True)


def blas_threads() -> int:
    """How many threads the BLAS may use; 1 where no BLAS says so."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  # brings its own BLAS, which must be loaded before the search

    return ThreadpoolController().select(user_api="blas")
