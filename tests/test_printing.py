"""repr of tensors, as torch prints them."""

import pytest

import tocha as torch

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (1.0, "tensor(1.)"),
        (-0.0, "tensor(-0.)"),
        (3, "tensor(3)"),
        (1 + 2j, "tensor(1.+2.j)"),
        ([1.5, -2.25], "tensor([ 1.5000, -2.2500])"),
        ([1e5, 1e-5], "tensor([1.0000e+05, 1.0000e-05])"),
        ([1.0, NAN, INF], "tensor([1., nan, inf])"),
        ([0.0, INF, 1.5], "tensor([0.0000,    inf, 1.5000])"),
        ([True, False], "tensor([ True, False])"),
        ([[1, 20], [300, -4]], "tensor([[  1,  20],\n        [300,  -4]])"),
        ([], "tensor([])"),
        ([[], []], "tensor([], size=(2, 0))"),
    ],
)
def test_values(data, want):
    assert repr(torch.tensor(data)) == want


def test_suffixes():
    x = torch.ones(2, requires_grad=True)
    assert repr(x) == "tensor([1., 1.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    assert repr(torch.ones(2, dtype=torch.float64)) == "tensor([1., 1.], dtype=torch.float64)"
    assert repr(torch.ones(2, dtype=torch.bfloat16)) == "tensor([1., 1.], dtype=torch.bfloat16)"
    assert repr(torch.zeros(0, dtype=torch.int64)) == "tensor([], dtype=torch.int64)"
    assert repr(torch.zeros(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    assert repr(torch.nn.Parameter(torch.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"


def test_long_lines_break_and_large_tensors_are_shortened():
    lines = repr(torch.arange(30)).splitlines()
    assert lines[0] == "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,"
    assert lines[1] == "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])"
    assert repr(torch.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    assert repr(torch.zeros(40, 40)).splitlines()[3] == "        ...,"


def test_options():
    x = torch.tensor([1 / 3, 100.0])
    try:
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([  0.33, 100.00])"
        torch.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([3.33e-01, 1.00e+02])"
        torch.set_printoptions(profile="short", threshold=5)
        assert repr(torch.arange(9)) == "tensor([0, 1,  ..., 7, 8])"
        with pytest.raises(ValueError, match="profile must be one of"):
            torch.set_printoptions(profile="tall")
    finally:
        torch.set_printoptions(profile="default")
    assert repr(x) == "tensor([  0.3333, 100.0000])"


def test_format_and_str():
    assert f"{torch.tensor(3.14159):.2f}" == "3.14"
    assert str(torch.tensor([1, 2])) == "tensor([1, 2])"
