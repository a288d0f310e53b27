"""Tensors from data: inferred types, ragged lists, sharing, strides of likes."""

import numpy as np
import pytest

import tocha as torch


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        ([1, 2.5], torch.float32, (2,)), ([True, 1], torch.int64, (2,)), ([[], []], torch.float32, (2, 0)), (1j, torch.complex64, ()),
        (np.float64(1), torch.float64, ()), ([np.float64(1)], torch.float64, (1,)), (range(3), torch.int64, (3,)),
        ([torch.tensor(1), torch.tensor(2.0)], torch.float32, (2,)), ([np.arange(2), np.arange(2)], torch.int64, (2, 2)),
        ([[True]], torch.bool, (1, 1)),
    ],
)  # fmt: skip
def test_inferred_types(data, dtype, shape):
    x = torch.tensor(data)
    assert x.dtype is dtype
    assert x.shape == shape


@pytest.mark.parametrize(
    ("data", "dtype", "error"),
    [
        ([[1, 2], [3]], None, ValueError), ([1, [2]], None, TypeError), ("a", None, TypeError), ([300], torch.uint8, RuntimeError),
        (2**63, None, ValueError), ([-(2**63) - 1], None, ValueError), (2**64, torch.uint64, OverflowError), ([1, "a"], None, TypeError),
        (["a"], None, ValueError), (object(), None, RuntimeError), (float("nan"), torch.int32, RuntimeError), (1e20, torch.int64, RuntimeError),
        (np.arange(3)[::-1], None, ValueError), (np.arange(3).astype(">i4"), None, ValueError),
        (np.zeros(3, [("a", "f4"), ("b", "i1")])["a"], None, ValueError),
    ],
)  # fmt: skip
def test_wrong_data(data, dtype, error):
    with pytest.raises(error):
        torch.tensor(data, dtype=dtype)


def test_casts_on_creation():
    assert torch.tensor([1.7, -1.7], dtype=torch.int32).tolist() == [1, -1]
    assert torch.tensor([0, 2], dtype=torch.bool).tolist() == [False, True]
    assert torch.tensor([1, 2], dtype=torch.bfloat16).dtype is torch.bfloat16


def test_tensor_copies_and_asarray_shares():
    a = np.zeros(3)
    copy, shared = torch.tensor(a), torch.asarray(a)
    a[0] = 1
    assert copy.tolist() == [0, 0, 0]
    assert shared.tolist() == [1, 0, 0]
    assert torch.asarray(shared) is shared
    with pytest.raises(ValueError, match="without copying"):
        torch.asarray(a, dtype=torch.float32, copy=False)


def test_likes_keep_the_order_of_strides():
    x = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert torch.zeros_like(x).stride() == (60, 1, 15, 3)
    assert torch.zeros_like(x, memory_format=torch.contiguous_format).stride() == (60, 20, 5, 1)
    assert torch.zeros_like(torch.zeros(2, 1).expand(2, 3)).stride() == (3, 1)
    assert torch.ones_like(x[:, :, 0], dtype=torch.int8).dtype is torch.int8


def test_given_strides():
    assert torch.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert torch.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == (3, 1, 6)
    with pytest.raises(RuntimeError, match="must match dimensionality"):
        torch.empty_strided((2, 3), (1,))
    with pytest.raises(RuntimeError, match="name each of"):
        torch.empty_permuted((2, 3), (0, 0))


def test_complex_and_polar_gradients():
    a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    assert torch.complex(a, b).tolist() == [2]
    torch.polar(a, b).backward(torch.tensor([1 + 3j]))
    assert a.grad.tolist() == [1]
    assert b.grad.tolist() == [6]
    with pytest.raises(RuntimeError, match="Expected object of scalar type"):
        torch.complex(a, b.double())


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [
        (torch.int8, 300, None), (torch.uint8, -1, 255), (torch.uint8, -1.5, None), (torch.int64, float("nan"), None),
        (torch.float32, 1e39, None), (torch.float32, float("inf"), float("inf")), (torch.bool, -3, True), (torch.int32, 2.7, 2),
        (torch.float32, 1 + 2j, None),
    ],
)  # fmt: skip
def test_numbers_that_dont_fit_are_refused(dtype, value, want):
    x = torch.zeros(1, dtype=dtype)
    mask = torch.ones(1, dtype=torch.bool)
    calls = (lambda: x.clone().fill_(value), lambda: x.masked_fill(mask, value), lambda: torch.full((1,), value, dtype=dtype))
    for call in calls:
        if want is None:
            with pytest.raises(RuntimeError, match="without overflow"):
                call()
        else:
            assert call().tolist() == [want]


def test_tensors_and_arrays_among_nested_numbers():
    t, one = torch.tensor, torch.tensor([1])
    assert t([t([[0.5]]), one]).tolist() == [0.5, 1.0]
    assert t([[one, 2], [3, t(4.0)]]).tolist() == [[1, 2], [3, 4]]
    assert t([[1, 2], np.array([1.0, 2.0])]).dtype == torch.float64
    assert t([[1, 2], torch.ones(2, dtype=torch.bfloat16)]).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="only one element"):
        t([t([0, 1]), t([2, 3])])


def test_unsigned_types_take_negative_integers():
    assert torch.tensor([-1, 255], dtype=torch.uint8).tolist() == [255, 255]
    with pytest.raises(RuntimeError, match="overflow"):
        torch.tensor([-256], dtype=torch.uint8)


def test_python_types_as_dtypes():
    found = [torch.ones(1, dtype=t).dtype for t in (float, int, bool, complex)]
    assert found == [torch.float64, torch.int64, torch.bool, torch.complex128]


@pytest.mark.parametrize(
    "call",
    [
        "torch.zeros(True)", "torch.ones((True, 2))", "torch.zeros()", "torch.zeros(2**63)", "torch.full((True,), 1)", "torch.rand(True)",
        "torch.zeros(6).view(True, 6)", "torch.zeros(6).reshape(True, 6)", "torch.zeros(2, 3).transpose(True, 0)",
        "torch.zeros(2, 3).sum(dim=True)", "torch.zeros(2, 3).unsqueeze(True)", "torch.zeros(2, 3).select(0, 1.0)",
        "torch.zeros(2, 3).narrow(0, 1.5, 1)", "torch.zeros(2, 3).roll(True, 1)", "torch.zeros(torch.tensor([2, 3]))",
    ],
)  # fmt: skip
def test_bools_and_floats_are_no_sizes(call):
    with pytest.raises(TypeError):
        eval(call)


def test_only_the_first_size_is_looked_at_closely():
    assert torch.zeros([2, True]).shape == (2, 1)


def test_cuda_without_cupy_is_an_assertion_error():
    from tocha.backends import cuda

    if cuda.cupy is None:
        for call in (lambda: torch.zeros(2, device="cuda"), lambda: torch.zeros(2).cuda(), lambda: torch.cuda.FloatTensor(2)):
            with pytest.raises(AssertionError, match="not compiled with CUDA"):
                call()
    assert not isinstance(torch.zeros(2), torch.cuda.FloatTensor)
    assert isinstance(torch.zeros(2), torch.FloatTensor)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_arithmetic_wraps_around(dtype):
    x = torch.tensor([1, 5], dtype=dtype)
    top = 2 ** (8 * dtype.itemsize) - 1
    assert [(x - 2)[0].item(), (-x)[0].item(), (x // 2)[1].item(), (x @ x).item(), x.amax().item()] == [top, top, 2, 26, 5]
    for other in (torch.tensor([1]), torch.tensor([True])):
        with pytest.raises(RuntimeError, match="Promotion for uint16"):
            x + other


def test_arange_with_start_in_place_and_end_by_name():
    assert torch.arange(1, end=4).tolist() == [1, 2, 3]
    assert torch.arange(1, end=7, step=2).tolist() == [1, 3, 5]


@pytest.mark.parametrize("data", [3.5, True, None, 1j, {}, np.float32(2)])
def test_the_old_constructors_take_sizes_or_sequences(data):
    for make in (torch.Tensor, torch.FloatTensor, torch.LongTensor, torch.ones(1).new):
        with pytest.raises(TypeError, match="must be a sequence"):
            make(data)
    assert torch.Tensor(np.array(3.0)).item() == 3 and torch.Tensor(range(3)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="int64"):
        torch.LongTensor(torch.ones(2))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_numbers_beyond_64_bits(number):
    x = torch.ones(2)
    for call in (
        lambda: x.fill_(number), lambda: torch.full((2,), number), lambda: x.masked_fill(x > 0, number),
        lambda: x.new_full((1,), number), lambda: torch.where(x > 0, x, number), lambda: x + number,
        lambda: torch.isin(x, number),
    ):  # fmt: skip
        with pytest.raises(OverflowError, match="too big"):
            call()
    assert x.tolist() == [1, 1]


def test_numbers_from_two_to_the_63_on_are_unsigned():
    x = torch.tensor([1.0, -1.0])
    assert torch.where(x > 0, x, 2**63).tolist() == [1, 2.0**63]
    assert (x + 2**63).tolist() == [2.0**63, 2.0**63]
    assert torch.isin(torch.tensor([1, -1]), 2**63).tolist() == [False, False]
    for call in (
        lambda: torch.where(x > 0, 2**63, 1), lambda: torch.where(x > 0, torch.tensor([1, 2]), 2**63),
        lambda: (x > 0) + 2**63, lambda: torch.full((2,), 2**63),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"Promotion|overflow"):
            call()


def test_numbers_too_large_for_the_integers_are_not_cut_off():
    x = torch.tensor([1, 2], dtype=torch.uint8)
    for call in (
        lambda: x.clamp(max=300), lambda: x.clamp(min=300), lambda: torch.where(x > 0, x, 300),
        lambda: torch.add(x, x, alpha=300), lambda: torch.sub(x, x, alpha=300), lambda: torch.addcmul(x, x, x, value=300),
        lambda: torch.nn.functional.pad(x, (1, 0), value=300), lambda: torch.nn.functional.threshold(x, 0, 300),
        lambda: torch.nn.functional.hardtanh(x, 0, 300), lambda: torch.threshold_(x, 0, 300),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    assert x.tolist() == [1, 2]
    assert torch.add(x, x, alpha=255).tolist() == [0, 0] and x.clamp(min=0, max=255).tolist() == [1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda **kw: torch.zeros(3, **kw), lambda **kw: torch.full((3,), 1.0, **kw), lambda **kw: torch.arange(3, **kw),
        lambda **kw: torch.eye(3, **kw), lambda **kw: torch.linspace(0, 1, 3, **kw), lambda **kw: torch.logspace(0, 1, 3, **kw),
        lambda **kw: torch.rand(3, **kw), lambda **kw: torch.randint(0, 3, (3,), **kw), lambda **kw: torch.randperm(3, **kw),
    ],
)  # fmt: skip
def test_what_is_made_is_where_out_is(make):
    out = torch.empty(3, device="meta")
    assert make(out=out) is out
    with pytest.raises(RuntimeError, match="does not match device type of out parameter \\(meta\\)"):
        make(out=out, device="cpu")


def test_fills_count_as_changes_by_name():
    x = torch.ones(2, 3)
    assert x.zero_() is x and x.fill_(2.5) is x and x.tolist() == [[2.5] * 3] * 2 and x._version == 2
    x[:, 1].fill_(float("inf"))
    assert x.tolist() == [[2.5, float("inf"), 2.5]] * 2
    w = torch.ones(3, requires_grad=True)
    a = w * w
    b = a * a
    a.zero_()
    with pytest.raises(RuntimeError, match=r"zero_"):
        b.sum().backward()
    for call in (w.zero_, lambda: w[1:].fill_(1)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            call()
    with pytest.raises(TypeError):
        x.fill_()
    with pytest.raises(RuntimeError):
        x.fill_(1e300)
    assert torch.zeros(3, dtype=torch.int64).fill_(7).tolist() == [7, 7, 7]
