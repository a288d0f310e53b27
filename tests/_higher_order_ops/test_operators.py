"""cond, while_loop, scan, associative_scan and map: values (from torch 2.13), gradients, errors, and the same compiled."""

import pytest

import tocha as torch
from tocha._dynamo.exc import UncapturedHigherOrderOpError
from tocha._higher_order_ops import associative_scan, map, scan, while_loop

X = torch.arange(6.0).view(2, 3)


def _cond(x):
    return torch.cond(x.sum() > 10, lambda x: x.sin(), lambda x: {"a": x.cos()}["a"], (x,))


CASES = {
    "scan": (lambda: scan(lambda c, x: (c + x, c * 2), torch.zeros(2), X, dim=1), ([3.0, 12.0], [[0, 0, 2], [0, 6, 14]])),
    "scan reversed": (
        lambda: scan(lambda c, x: (c + x, c), torch.zeros(3), X, reverse=True),
        ([3.0, 5, 7], [[3, 4, 5], [0, 0, 0]]),
    ),
    "associative": (
        lambda: (associative_scan(lambda a, b: a * b + 1, X, 1, combine_mode="generic"),),
        ([[0, 1, 3], [3, 13, 66]],),
    ),
    "associative order": (
        lambda: (associative_scan(lambda a, b: a * b + 1, torch.arange(7.0), 0, reverse=True, combine_mode="generic"),),
        ([1.0, 1213, 809, 404, 125, 31, 6],),
    ),
    "associative pairs": (
        lambda: associative_scan(lambda a, b: (a[0] + b[0], a[1] * b[1]), (X, X), 1, combine_mode="generic"),
        ([[0, 1, 3], [3, 7, 12]], [[0, 0, 0], [3, 12, 60]]),
    ),
    "map": (lambda: map(lambda x, y: (x + y, x.sum()), X, torch.ones(3)), ([[1, 2, 3], [4, 5, 6]], [3.0, 12.0])),
    "while": (
        lambda: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + i), (torch.tensor(0), X)),
        (3, [[3, 4, 5], [6, 7, 8]]),
    ),
    "while on an int": (lambda: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + 1), (0, X[0])), (3, [3, 4, 5])),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, compiled):
    function, expected = CASES[name]
    got = torch.compile(function, backend="eager")() if compiled else function()
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert (a.tolist() if isinstance(a, torch.Tensor) else a) == b


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("while")])
def test_loops_of_known_length_are_one_graph(name):
    torch.compile(CASES[name][0], backend="eager", fullgraph=True)()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_cond_takes_the_branch_and_its_gradient(compiled):
    f = torch.compile(_cond) if compiled else _cond
    for value, branch, slope in (
        (1.0, "cos", lambda x: -x.sin()),
        (2.0, "sin", lambda x: x.cos()),
        (1.0, "cos", lambda x: -x.sin()),
    ):
        x = torch.full((2, 3), value, requires_grad=True)
        out = f(x)
        assert torch.allclose(out, getattr(x, branch)())
        out.sum().backward()
        assert torch.allclose(x.grad, slope(x.detach()))


def test_gradients_go_through_loops():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = associative_scan(torch.mul, x, 0, combine_mode="generic")
    out.sum().backward()
    assert x.grad.tolist() == [1 + 2 + 6, 1 + 3, 2]
    y = torch.tensor([2.0], requires_grad=True)
    while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y), (torch.tensor(0), y))[1].backward()
    assert y.grad.item() == 8 * 2.0**7


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.cond("a", len, len, (X,)), RuntimeError, "Expected pred to be bool or tensor, but got a"),
        (lambda: torch.cond(X > 0, len, len, (X,)), RuntimeError, "bool or single-element tensor"),
        (lambda: torch.cond(True, 3, len, (X,)), RuntimeError, "Expect both branches to be callable"),
        (lambda: torch.cond(True, len, len, X), RuntimeError, "Expect operands to be a tuple"),
        (lambda: torch.cond(True, len, len, (X, "a")), RuntimeError, "Expect operands to be a tuple"),
        (lambda: while_loop(1, len, (X,)), RuntimeError, "Expect cond_fn and body_fn to be callable"),
        (lambda: while_loop(lambda x: 3, lambda x: x, (X,)), UncapturedHigherOrderOpError, "scalar tensor or a bool but got 3"),
        (lambda: while_loop(lambda x: True, lambda x: x.sum(), (X,)), UncapturedHigherOrderOpError, r"pair\[0\] differ in shape"),
        (lambda: while_loop(lambda x: True, lambda x: (x, x), (X,)), UncapturedHigherOrderOpError, "same number of outputs"),
        (lambda: scan(3, X, X), RuntimeError, "Combine_fn must be a callable, but got 3"),
        (lambda: scan(lambda c, x: (c, x), X[0], X, dim=5), IndexError, "Dimension out of range"),
        (lambda: scan(lambda c, x: (c, x), X[0], X[:0]), RuntimeError, "scan dimension > 0"),
        (lambda: scan(lambda c, x: (c.sum(), x), X[0], X), UncapturedHigherOrderOpError, "carry and init to have same metadata"),
        (lambda: associative_scan(3, X, 0), ValueError, "Combine_fn must be a callable"),
        (lambda: associative_scan(torch.add, X, 0), ValueError, "need to be on CUDA or XPU"),
        (lambda: associative_scan(torch.add, X, 0, combine_mode="a"), ValueError, "must either 'pointwise' or 'generic'"),
        (lambda: map(torch.neg, X[:0]), RuntimeError, "Leading dimensions of mapped xs cannot be 0"),
        (lambda: map(torch.neg, 3), RuntimeError, "can only consist of tensors"),
        (lambda: map(len, (X, X[:1])), RuntimeError, "must be consistent"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
