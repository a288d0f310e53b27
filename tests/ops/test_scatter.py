"""gather, scatter and kin: values, gradients, indices out of range."""

import pytest

import tocha as torch


def test_scatter_add_with_an_index_smaller_than_src():
    src = torch.arange(6.0).reshape(2, 3).requires_grad_()
    out = torch.zeros(2, 3).scatter_add(1, torch.tensor([[0, 1]]), src)
    assert out.tolist() == [[0, 1, 0], [0, 0, 0]]
    out.sum().backward()
    assert src.grad.tolist() == [[1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("reduce", "include", "want"),
    [
        ("sum", True, [11, 10, 2]), ("sum", False, [6, 7, 2]), ("prod", True, [40, 21, 2]), ("mean", True, [3, 5, 2]),
        ("mean", False, [3, 7, 2]), ("amax", True, [5, 7, 2]), ("amin", False, [2, 7, 2]),
    ],
)  # fmt: skip
def test_scatter_reduce_of_integers(reduce, include, want):
    x, index, src = torch.tensor([[5, 3, 2]]), torch.tensor([[0, 0, 1]]), torch.tensor([[2, 4, 7]])
    assert x.scatter_reduce(1, index, src, reduce, include_self=include).tolist() == [want]


def test_prod_gradient_with_a_zero_factor():
    x = torch.tensor([2.0], requires_grad=True)
    src = torch.tensor([0.0, 3.0], requires_grad=True)
    x.scatter_reduce(0, torch.tensor([0, 0]), src, "prod").backward()
    assert x.grad.tolist() == [0]
    assert src.grad.tolist() == [6, 0]


def test_amax_gradient_is_shared_by_ties():
    x = torch.tensor([3.0], requires_grad=True)
    src = torch.tensor([3.0, 1.0, 3.0], requires_grad=True)
    x.scatter_reduce(0, torch.tensor([0, 0, 0]), src, "amax").backward(torch.tensor([6.0]))
    assert x.grad.tolist() == [2]
    assert src.grad.tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.gather(1, torch.tensor([[3]])), RuntimeError),
        (lambda x: x.gather(1, torch.tensor([[-1]])), RuntimeError),
        (lambda x: x.scatter_add(1, torch.tensor([[7]]), x), RuntimeError),
        (lambda x: x.index_select(1, torch.tensor([3])), RuntimeError),
        (lambda x: x.index_copy(1, torch.tensor([3]), x[:, :1]), IndexError),
        (lambda x: x.take(torch.tensor([6])), IndexError),
        (lambda x: x.put(torch.tensor([-7]), torch.zeros(1)), IndexError),
        (lambda x: x.index_put((torch.tensor([2]),), torch.zeros(3), accumulate=True), IndexError),
    ],
)
def test_out_of_range(call, error):
    with pytest.raises(error, match=r"index -?\d+ is out of bounds for dimension \d with size \d"):
        call(torch.zeros(2, 3))


def test_zero_dim_and_empty():
    x = torch.tensor(5.0)
    assert x.gather(0, torch.tensor(0)).item() == 5
    assert x.scatter(0, torch.tensor(0), 2.0).item() == 2
    assert x.index_fill(0, torch.tensor([0]), 3.0).item() == 3
    assert torch.zeros(2, 3).gather(1, torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3)
    assert torch.zeros(2, 3).index_add(0, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3)).shape == (2, 3)


def test_index_add_of_rows_in_half_precision_rounds_once():
    x = torch.zeros(1, dtype=torch.bfloat16)
    out = x.index_add(0, torch.zeros(300, dtype=torch.int64), torch.ones(300, dtype=torch.bfloat16))
    assert out.item() == 300  # summing in bfloat16 would stop at 256


def test_noncontiguous_target_in_place():
    x = torch.zeros(3, 2).t()
    x.index_add_(1, torch.tensor([0, 2, 0]), torch.ones(2, 3))
    assert x.tolist() == [[2, 0, 1], [2, 0, 1]]


def test_out_must_have_the_results_type():
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.gather(torch.zeros(2, 2), 1, torch.zeros(2, 2, dtype=torch.int64), out=torch.zeros(2, 2, dtype=torch.float64))


def test_index_select_of_the_first_dimension_out_of_range_is_an_index_error():
    for index in (2, -1):
        with pytest.raises(IndexError, match="out of bounds"):
            torch.zeros(2, 3).index_select(0, torch.tensor([index]))
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.zeros(2, 0).index_select(0, torch.tensor([2]))


def test_types_of_errors_are_torchs():
    x, v, far, one = torch.zeros(3, 3), torch.zeros(3), torch.tensor([0, 5]), torch.tensor([0.0])
    cases = [
        (RuntimeError, lambda: x.index_add(0, far, torch.ones(2, 3))),
        (RuntimeError, lambda: x.index_add(1, far - 7, torch.ones(3, 2))),
        (IndexError, lambda: v.index_add(0, far, torch.ones(2))),
        (IndexError, lambda: x.index_copy(0, far, torch.ones(2, 3))),
        (IndexError, lambda: x.index_fill(0, far, 1.0)),
        (IndexError, lambda: x.index_fill(0, one, 1.0)),
        (RuntimeError, lambda: x.index_fill(0, torch.tensor([[0]]), 1.0)),
        (RuntimeError, lambda: x.scatter(1, far[None], 1.0)),
        (RuntimeError, lambda: x.gather(1, far[None])),
        (RuntimeError, lambda: x.index_select(1, far)),
        (IndexError, lambda: x.take(far * 3)),
        (IndexError, lambda: x.put(far * 3, torch.ones(2))),
        (IndexError, lambda: x.put(torch.tensor([0, 1]), torch.ones(3))),
    ]
    for error, call in cases:
        with pytest.raises(error):
            call()


def test_take_along_dim_counts_from_the_end():
    x = torch.arange(9.0).view(3, 3)
    assert torch.take_along_dim(x, torch.tensor([[0, -1]]), 1).tolist() == [[0, 2], [3, 5], [6, 8]]
    assert torch.take_along_dim(x, torch.tensor([[0, -3, -1]]), 0).tolist() == [[0, 1, 8]]
    with pytest.raises(RuntimeError, match=r"range|bounds"):
        torch.take_along_dim(x, torch.tensor([[0, -4]]), 1)


def test_index_put_adds_up_in_memory_that_elements_share():
    line = torch.zeros(3)
    with_rows = line.expand(3, 3)
    with_rows.index_put_((torch.tensor([0, 1]),), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
    assert line.tolist() == [2, 4, 6]
    column = torch.zeros(3, 1)
    column.expand(3, 2).index_put_((torch.tensor([0, 0]), torch.tensor([0, 1])), torch.tensor(1.0), accumulate=True)
    assert column.tolist() == [[2], [0], [0]]


@pytest.mark.parametrize("index", [1, slice(0, 1), [0, 1]])
def test_index_put_takes_tensors_alone(index):
    with pytest.raises(TypeError, match="expected Tensor as element 0"):
        torch.zeros(3).index_put_((index,), torch.tensor(1.0))


@pytest.mark.parametrize("index", [torch.tensor([0, 1], dtype=torch.int32), torch.zeros(0, dtype=torch.int32)])
def test_fills_and_copies_take_int64_indices_alone(index):
    x, source = torch.zeros(3, 2), torch.ones(len(index), 2)
    for name in ("index_fill", "index_fill_"):
        with pytest.raises(IndexError, match="Expected dtype int64 for index"):
            getattr(x, name)(0, index, 1.0)
    for name in ("index_copy", "index_copy_"):
        with pytest.raises(RuntimeError, match="Expected dtype int64 for index"):
            getattr(x, name)(0, index, source)
    assert x.index_add(0, index, source).sum() == 2 * len(index)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("size", [7, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_index_copy_writes_in_place(dim, size, dtype):
    x, source = (torch.randn(size, size, size).mul(3).to(dtype) for _ in range(2))
    index = torch.randperm(size)[:5]
    source = source.narrow(dim, 0, 5)
    expected = x.index_copy(dim, index, source)
    assert torch.equal(expected.index_select(dim, index), source)
    place = x.data_ptr()
    assert x.index_copy_(dim, index, source) is x
    assert torch.equal(x, expected) and x.data_ptr() == place and x._version == 1
    index[1] = index[0]
    x.index_copy_(dim, index, source)  # the last of several stays
    assert torch.equal(x.select(dim, int(index[0])), source.select(dim, 1))
    index[1] = size
    before = x.clone()
    with pytest.raises(IndexError):
        x.index_copy_(dim, index, source)
    assert torch.equal(x, before)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.index_copy_(0, torch.arange(5), x[1:6])
