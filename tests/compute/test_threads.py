import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from deadlines import run
from federations import integer_rows
from ghofl import HEADS, Encoder, Features, Gaussians, Grid, Layout, Lift, Moments, Projection, Recipe
from ghofl.compute import threads as compute_threads


@pytest.fixture
def on_threads(monkeypatch):
    """As many threads as a test asks for, whatever the machine and its settings."""
    return lambda threads: monkeypatch.setattr(compute_threads, "blas_threads", lambda: threads)


def test_as_many_threads_work_as_the_blas_may_use(on_threads):
    on_threads(3)
    together = threading.Barrier(3)  # breaks unless three threads come to it
    compute_threads.parallel_for(lambda _: together.wait(10), range(3))


def test_products_of_a_worker_run_on_one_thread_and_afterwards_on_as_many_as_before(on_threads):
    before, seen = compute_threads.blas_threads(), []
    on_threads(2)
    libraries = compute_threads._blas().lib_controllers
    compute_threads.parallel_for(lambda _: seen.append([library.num_threads for library in libraries]), range(8))
    with compute_threads.one_thread():
        seen.append([library.num_threads for library in libraries])
    assert seen == [[1] * len(libraries)] * 9
    assert max(library.num_threads for library in libraries) == before


def test_work_inside_work_is_done_one_after_another(on_threads):
    on_threads(2)
    seen: list[set[int]] = []

    def outer(_):
        inner: set[int] = set()
        compute_threads.parallel_for(lambda _: inner.add(threading.get_ident()), range(20))
        seen.append(inner)

    compute_threads.parallel_for(outer, range(4))
    assert [len(inner) for inner in seen] == [1, 1, 1, 1]


@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_in_a_piece_is_raised_and_ends_the_work(on_threads, threads):
    on_threads(threads)
    done = []

    def fail_at_three(i):
        if i == 3:
            raise LookupError("piece 3")
        done.append(i)

    with pytest.raises(LookupError, match="piece 3"):
        compute_threads.parallel_for(fail_at_three, range(100_000))
    assert len(done) < 100_000
    compute_threads.parallel_for(done.append, range(2))  # and the threads are free again
    assert done[-2:] in ([0, 1], [1, 0])


def test_threads_see_how_their_caller_wants_errors_of_floats(on_threads):
    on_threads(2)
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        compute_threads.parallel_for(lambda _: np.log(np.zeros(2)), range(50))


def test_items_made_ahead_come_in_order_and_errors_where_they_happen():
    def items():
        yield 1
        yield 2
        raise LookupError("the third")

    got = []
    with pytest.raises(LookupError, match="the third"):
        got.extend(compute_threads.prefetch(items()))  # extend keeps what came before the error
    assert got == [1, 2]


def test_the_limit_of_threads_that_a_user_sets_is_kept():
    with threadpool_limits(1):
        assert compute_threads.blas_threads() == 1


@pytest.mark.slow
@given(st.integers(0, 2**31), st.sampled_from([("B",), ("S",), ("D",)]), st.sampled_from([0, 3]))
def test_any_number_of_threads_gives_the_same_moments(seed, statistics, sketch):
    rng = np.random.default_rng(seed)
    layout = Layout(7, 150, statistics, sketch=sketch, bound=int(rng.choice([3, 127, 2047])))
    matrix = rng.choice([-1, 1], size=(150, 3)) if sketch else None
    x, y = integer_rows(rng, layout, 700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compute_threads, "blas_threads", lambda: 1)
        alone = Moments.of(x, y, layout, matrix)
        patch.setattr(compute_threads, "blas_threads", lambda: 4)
        assert Moments.of(x, y, layout, matrix).sha256 == alone.sha256


@pytest.mark.parametrize("space", [{}, {"projection": Projection(dim=20)}, {"lift": Lift(dim=64)}])
def test_any_number_of_threads_gives_the_same_features_and_counts_what_was_clipped(on_threads, space, rng):
    recipe = Recipe(("a", "b"), Encoder(dim=40), grid=Grid(bits=6, scale=12.0), **space)
    x = rng.normal(size=(3000, 40)).astype(np.float16)
    found = []
    for threads in (1, 4):
        on_threads(threads)
        found.append(Features.of(recipe).rows(x))
    assert np.array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert found[0][1].clipped > 0


@pytest.mark.parametrize("head", [HEADS["qda"], HEADS["low_rank_qda"]])
def test_any_number_of_threads_gives_the_same_head_and_scores(on_threads, head, rng):
    layout = Layout(6, 12, ("S",))
    x, y = integer_rows(rng, layout, 600)
    gaussians = Gaussians.estimate(Moments.of(x, y, layout))
    found = []
    for threads in (1, 4):
        on_threads(threads)
        fitted = head.fit(gaussians)
        found.append((fitted, fitted.scores(x.astype(float))))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


def test_ctrl_c_waits_for_the_other_threads_and_gives_the_blas_its_threads_back(on_threads):
    """The BLAS stayed on one thread for the rest of the process, and helpers wrote on."""
    on_threads(2)
    is_alone, written = threading.Event(), []

    def work(piece):
        if threading.current_thread() is threading.main_thread():
            is_alone.wait(10)  # only the other thread is left with work, while this one comes to wait for it
            return
        is_alone.set()
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.1)
        written.append(piece)

    libraries = compute_threads._blas().lib_controllers
    with threadpool_limits(2):
        before = [library.num_threads for library in libraries]
        with pytest.raises(KeyboardInterrupt):
            compute_threads.parallel_for(work, range(2))
        assert len(written) == 1
        assert [library.num_threads for library in libraries] == before


TOGETHER = """
import threading
from ghofl.compute.threads import parallel_for
together = threading.Barrier(2)
parallel_for(lambda _: together.wait(10), range(2))
"""


@pytest.mark.skipif(os.cpu_count() == 1, reason="the BLAS of a single core has one thread")
def test_threads_work_together_where_the_blas_has_several():
    """They were counted once under a limit of one, and every product ran alone."""
    run(sys.executable, "-c", TOGETHER, env={**os.environ, "OPENBLAS_NUM_THREADS": "2"})
