"""Kernels over lists of arrays: what they compute, and what they refuse before anything is written."""

import ml_dtypes
import numpy as np
import pytest

from tocha import threads
from tocha.backends import native_lists
from tocha.inductor import lists
from tocha.inductor.loop_ir import Buffer

F32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def descend():
    """p, m = p - rate * (m + g), m + g"""

    def rule(o, p, g, m, *, rate):
        m = o.add(m, g)
        return o.sub(p, o.mul(m, rate)), m

    made = lists.make("descend", rule, [Buffer(n, "f32") for n in "pgm"], ["p", "m"], "f32", {"rate": 0.5})
    assert made.params == ("rate",)
    return lists.build(made.kernel, [F32] * 3, 1024)


def rows(*shapes):
    rng = np.random.default_rng(0)
    return [[rng.standard_normal(s).astype(F32) for s in shapes] for _ in range(3)]


@pytest.mark.parametrize(
    "shapes", [[], [()], [(0,)], [(3,), (0, 4), (5, 7), (), (1,)], [(1000,), (3000,), (0,), (200_001,), (2,)]]
)
def test_every_row_is_updated(descend, shapes):
    p, g, m = rows(*shapes)
    sums = [a + b for a, b in zip(m, g)]
    wanted = [a - b * np.float32(0.25) for a, b in zip(p, sums)]
    assert descend(p, g, m, 0.25) is True
    assert all(np.array_equal(a, b) for a, b in zip(p + m, wanted + sums))


def _replaced(at, value):
    def change(columns):
        columns[at][1] = value(columns[at][1])

    return change


def _read_only(a):
    a.flags.writeable = False
    return a


REFUSED = {
    "another type": _replaced(1, lambda a: a.astype(np.float64)),
    "strides": _replaced(0, lambda a: np.asfortranarray(a)),
    "another shape": _replaced(2, lambda a: a.reshape(6, 4)),
    "another rank": _replaced(2, lambda a: a.reshape(-1)),
    "read-only": _replaced(2, _read_only),
    "no array": _replaced(1, lambda a: None),
    "a subclass": _replaced(1, lambda a: a.view(type("Sub", (np.ndarray,), {}))),
    "unaligned": _replaced(1, lambda a: np.frombuffer(bytes(97), np.uint8)[1:].view(F32).reshape(4, 6)),
    "one array twice in a row": lambda columns: columns[1].__setitem__(1, columns[0][1]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_rows_leave_all_as_it_was(descend, case):
    columns = rows((3,), (4, 6))
    REFUSED[case](columns)
    before = [[np.array(a) for a in column] for column in columns]
    assert descend(*columns, 0.5) is False
    assert all(np.array_equal(a, b) for old, new in zip(before, columns) for a, b in zip(old, new))


def test_read_only_operands_will_do_where_nothing_is_written(descend):
    p, g, m = rows((4,))
    assert descend(p, [_read_only(g[0])], m, 0.5) is True


@pytest.mark.parametrize(
    "arguments", [(), ([], []), ([], [], [], 1.0, 2.0), ((), [], [], 1.0), ([], [None], [], 1.0), ([], [], [], "x")]
)
def test_wrong_arguments_raise(descend, arguments):
    with pytest.raises(TypeError):
        descend(*arguments)


def test_rows_that_share_memory_are_run_in_order(descend):
    p, g, m = rows((50_000,))
    (shared,) = p
    wanted, sums = shared, [m[0].copy() for _ in range(4)]
    states = [a.copy() for a in sums]
    for a in sums:
        wanted = wanted - (a + g[0]) * np.float32(0.5)
    assert descend([shared] * 4, g * 4, states, 0.5) is True
    assert np.array_equal(shared, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["square_sum", "abs_sum", "abs_max", "not_finite"])
def test_reductions_of_every_row_around_the_sizes_of_chunks(name, dtype):
    rng = np.random.default_rng(3)
    sizes = [1, 7, 16, 1023, 1025, 32767, 32768, 32769, 100_001, 2]
    arrays = [rng.standard_normal(n).astype(dtype) for n in sizes]
    wide = [a.astype(np.float64) for a in arrays]
    expected = {
        "square_sum": lambda x: (x * x).sum(), "abs_sum": lambda x: abs(x).sum(), "abs_max": lambda x: abs(x).max(), "not_finite": lambda x: 0.0,
    }[name]  # fmt: skip
    found = native_lists.reduced(name, arrays)
    np.testing.assert_allclose(found.astype(np.float64), [expected(x) for x in wide], rtol=1e-6)
    for bad in (np.nan, np.inf, -np.inf):
        for row, place in ((2, 15), (7, 32768), (8, 50_000)):
            spoilt = list(arrays)
            spoilt[row] = arrays[row].copy()
            spoilt[row][place] = bad
            good = np.isfinite(native_lists.reduced(name, spoilt).astype(np.float64))
            assert np.flatnonzero(~good).tolist() == [row]


def test_reductions_leave_what_is_not_dense_or_of_several_types():
    x = np.ones((4, 6), np.float32)
    assert native_lists.reduced("square_sum", [x, x.T]) is None
    assert native_lists.reduced("square_sum", [x, x.astype(np.float64)]) is None
    assert native_lists.reduced("square_sum", [x.astype(np.int64)]) is None
    assert native_lists.reduced("square_sum", [x, x[::2]]) is None
    assert native_lists.reduced("square_sum", [x[1:3], x]).tolist() == [12.0, 24.0]


def test_reductions_do_not_depend_on_the_number_of_threads():
    arrays = [np.random.default_rng(n).standard_normal(200_003).astype(np.float32) for n in range(5)]
    before = threads.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            found.append(native_lists.reduced("square_sum", arrays).tolist())
    finally:
        threads.set_num_threads(before)
    assert found[0] == found[1] == found[2]
