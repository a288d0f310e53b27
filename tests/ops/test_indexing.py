"""Indexing and assignment by index: which results are views, where indexed dimensions go, errors, gradients."""

import numpy as np
import pytest

import tocha as torch

X = torch.arange(12.0).reshape(3, 4)
Z = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("index", "want"),
    [
        (0, [0, 1, 2, 3]),
        ((slice(None), -1), [3, 7, 11]),
        ((Ellipsis, 1), [1, 5, 9]),
        ((Ellipsis, Ellipsis, 1), [1, 5, 9]),
        (np.int64(2), [8, 9, 10, 11]),
        (torch.tensor(1), [4, 5, 6, 7]),
        (slice(torch.tensor(1), torch.tensor(2)), [[4, 5, 6, 7]]),
        (slice(None, None, 2), [[0, 1, 2, 3], [8, 9, 10, 11]]),
    ],
)
def test_basic_indices_give_views(index, want):
    got = X[index]
    assert got.tolist() == want
    assert got._base is not None
    assert got._base is X._base


@pytest.mark.parametrize(
    ("index", "shape", "first"),
    [
        ([0, 2], (2, 4), [0, 1, 2, 3]),
        ((0, [1, 2]), (2,), 1),
        (True, (1, 3, 4), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        (False, (0, 3, 4), None),
        (X > 5, (6,), 6),
        ([True, False, True], (2, 4), [0, 1, 2, 3]),
        (torch.tensor([-1]), (1, 4), [8, 9, 10, 11]),
        (torch.tensor([0, 1], dtype=torch.int32), (2, 4), [0, 1, 2, 3]),
        ((slice(None), None, torch.tensor([0, 1])), (3, 1, 2), [[0, 1]]),
    ],
)
def test_advanced_indices_give_contiguous_copies(index, shape, first):
    got = X[index]
    assert got.shape == shape
    assert got._base is None
    assert got.is_contiguous()
    if first is not None:
        assert got[0].tolist() == first


def test_integers_are_applied_before_index_tensors():
    i = torch.tensor([0, 1])
    assert Z[0, :, i].shape == (3, 2)  # NumPy would give (2, 3)
    assert Z[i, :, i].tolist() == [[0.0, 4.0, 8.0], [13.0, 17.0, 21.0]]
    assert Z[:, i, i].shape == (2, 2)


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (5, IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
        ((0, 9), IndexError, "index 9 is out of bounds for dimension 1 with size 4"),
        ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
        (slice(1.5), TypeError, "slice indices must be integers"),
        (1.5, IndexError, "only integers, slices"),
        (torch.tensor([1.0]), IndexError, "must be long, int, byte or bool"),
        (torch.tensor([0, 4]), IndexError, "index 4 is out of bounds for dimension 0 with size 3"),
        (torch.tensor([True, False]), IndexError, r"The shape of the mask \[2\] at index 0 does not match"),
        (
            (torch.tensor([0, 1]), torch.tensor([0, 1, 2])),
            IndexError,
            r"could not be broadcast together with shapes \[2\], \[3\]",
        ),
    ],
)
def test_wrong_indices(index, error, text):
    with pytest.raises(error, match=text):
        X[index]


def test_zero_dim_tensors():
    x = torch.tensor(1.0)
    assert x[...].shape == x[()].shape == ()
    assert x[None].shape == (1,)
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        x[0]
    with pytest.raises(IndexError, match=r"slice\(\) cannot be applied"):
        x[:]


def test_assignment_writes_through_views_and_broadcasts():
    x = torch.zeros(3, 4)
    row = x[1]
    x[:, 1] = torch.tensor([1.0, 2.0, 3.0])
    x[0] = torch.full((1, 1, 4), 5.0)
    x[x == 3] = 7
    x[torch.tensor([2, 2]), torch.tensor([0, 3])] = torch.tensor([8.0])
    assert x.tolist() == [[5, 5, 5, 5], [0, 2, 0, 0], [8, 7, 0, 8]]
    assert row.tolist() == [0, 2, 0, 0]
    assert row._version == x._version == 4


@pytest.mark.parametrize(
    ("index", "value", "error"),
    [
        (0, torch.ones(2, 4), RuntimeError),
        (torch.tensor([0, 2]), torch.ones(3), RuntimeError),
        ([0, 2], torch.ones(4, dtype=torch.float64), RuntimeError),
        (X > 5, torch.arange(5.0), RuntimeError),
        (0, [1, 2, 3, 4], TypeError),
        (0, 1 + 2j, RuntimeError),
        (9, 1.0, IndexError),
    ],
)
def test_wrong_assignments_change_nothing(index, value, error):
    x = X.clone()
    with pytest.raises(error):
        x[index] = value
    assert torch.equal(x, X)


def test_assignment_to_an_expanded_tensor():
    x = torch.arange(6)
    y = x.expand(2, 6)
    y[0, 0] = 5
    assert x.tolist() == [5, 1, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="more than one element"):
        y[:] = 1


def test_gradient_of_repeated_indices_adds_up():
    x = torch.zeros(3, 4, requires_grad=True)
    i = torch.tensor([0, 2, 0])
    (x[i] * torch.arange(12.0).reshape(3, 4)).sum().backward()
    assert x.grad.tolist() == [[8, 10, 12, 14], [0, 0, 0, 0], [4, 5, 6, 7]]


def test_gradient_of_assignments():
    x = torch.ones(3, 4, requires_grad=True)
    v = torch.ones(3, requires_grad=True)
    y = x * 2
    y[:, 1] = v
    y[y.detach() == 2] = 0
    (y * torch.arange(12.0).reshape(3, 4)).sum().backward()
    assert x.grad.abs().sum().item() == 0
    assert v.grad.tolist() == [1, 5, 9]


def test_a_leaf_that_requires_grad_refuses_assignment():
    x = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0] = 1


def test_changing_an_index_tensor_is_noticed():
    x = torch.zeros(3, requires_grad=True)
    i = torch.tensor([0, 2])
    y = x[i]
    i[0] = 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_meta_tensors_infer_shapes():
    x = torch.empty(5, 6, 7, device="meta")
    i = torch.empty(2, 3, dtype=torch.int64, device="meta")
    assert x[:, i].shape == (5, 2, 3, 7)
    assert x[i, :, i].shape == (2, 3, 6)
    assert x[1:3, ..., None].shape == (2, 6, 7, 1)


@pytest.mark.parametrize("index", [MASK := torch.tensor([True, False, True]), (MASK,), [True, False, True], (..., MASK)])
@pytest.mark.parametrize("value", [torch.tensor(7), torch.tensor([7.0], dtype=torch.float64)])
def test_a_mask_is_filled_with_a_single_value_of_any_type(index, value):
    x = torch.zeros(3)
    x[index] = value
    assert x.tolist() == [7, 0, 7]


def test_index_put_with_one_mask_and_one_value():
    mask = torch.tensor([True, False])
    assert torch.zeros(2).index_put((mask,), torch.tensor(3)).tolist() == [3, 0]
    with pytest.raises(RuntimeError, match="dtypes match"):
        torch.zeros(2).index_put((torch.tensor([0]),), torch.tensor(3))


def test_assignment_through_true_and_false():
    x = torch.zeros(3)
    x[False] = torch.tensor([7, 8])
    x[True] = torch.tensor([7, 8, 9])
    assert x.tolist() == [7, 8, 9]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_one_value_by_a_uint8_mask_is_refused():
    x, mask = torch.arange(6.0).view(2, 3), torch.tensor([1, 0], dtype=torch.uint8)
    for index, value in ((mask, 9.0), (mask, torch.tensor(9.0)), ((mask, 0), torch.ones(1)), (mask.numpy(), 5.0)):
        with pytest.raises(RuntimeError, match="boolean masks"):
            x[index] = value
    with pytest.raises(RuntimeError, match="boolean masks"):
        x.index_put_((mask,), torch.tensor(3.0))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x[mask] = torch.ones(1, 3)
    assert x.tolist() == [[1, 1, 1], [3, 4, 5]] and x[mask].tolist() == [[1, 1, 1]]


def test_numpy_scalars_and_float_arrays_as_indices():
    x = torch.arange(6.0).view(2, 3)
    for index in (np.bool_(True), (0, np.bool_(False)), np.float32(1)):
        with pytest.raises(IndexError, match="only integers"):
            x[index]
        with pytest.raises(IndexError, match="only integers"):
            x[index] = 1.0
    assert x[np.int64(1)].tolist() == [3, 4, 5] and x[np.array([1.9])].tolist() == [[3, 4, 5]]
    assert x[np.array(True)].shape == (1, 2, 3)


def test_gradients_of_indexing_what_has_no_elements():
    none = torch.zeros(0, dtype=torch.int64)
    for shape, call in (
        ((0, 5), lambda x: x[none]), ((5, 0), lambda x: torch.index_select(x, 0, torch.tensor([4, 0]))),
        ((0, 4), lambda x: torch.gather(x, 0, none.reshape(0, 1))), ((0, 1), lambda x: torch.take_along_dim(x, none[:, None], 0)),
    ):  # fmt: skip
        x = torch.zeros(shape, requires_grad=True)
        out = call(x)
        for again in (False, True):
            (grad,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=again, retain_graph=True)
            assert grad.shape == x.shape
