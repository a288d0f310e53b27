"""In-place changes, views and version counters."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch

W = torch.ones(3, requires_grad=True)


def test_writing_a_view_gives_the_base_a_history() -> None:
    base = torch.zeros(4)
    w = torch.tensor(3.0, requires_grad=True)
    view = base[1:3]
    view.add_(w)
    view.mul_(w)
    assert base.tolist() == [0.0, 9.0, 9.0, 0.0]
    base.sum().backward()
    assert w.grad.item() == 12.0  # d(2 w^2)/dw


def test_views_made_before_see_the_new_history() -> None:
    base = torch.zeros(3)
    before = base[:2]
    w = torch.tensor(2.0, requires_grad=True)
    base.add_(w)
    assert before.requires_grad
    before.sum().backward()
    assert w.grad.item() == 2.0


def test_view_of_a_view_and_transpose() -> None:
    base = torch.zeros(2, 3)
    w = torch.ones(2, requires_grad=True)
    base.t()[1].copy_(w * 5)
    assert base.tolist() == [[0.0, 5.0, 0.0], [0.0, 5.0, 0.0]]
    (base * torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    assert w.grad.tolist() == [10.0, 25.0]


def test_overwriting_cuts_history() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.zero_()
    assert y.requires_grad
    y.sum().backward()
    assert x.grad is None or x.grad.tolist() == [0.0, 0.0]


def test_changing_a_saved_input_names_operator_and_line() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(
        RuntimeError, match=r"modified by an inplace operation.*version 1; expected version 0.*add_\(\) at .*test_inplace\.py:\d+"
    ):
        z.sum().backward()


def test_changing_a_saved_output_is_seen_too() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_operator_keeps_the_operand_it_overwrites() -> None:
    w = torch.tensor([2.0], requires_grad=True)
    x = torch.tensor([5.0])
    x.mul_(w)
    x.sum().backward()
    assert w.grad.tolist() == [5.0]


def test_leaves_and_their_views_are_protected() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        x[0].add_(1)
    assert x.tolist() == [1.0, 1.0, 1.0]
    with torch.no_grad():
        x.add_(1)
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_multi_output_views_refuse_writes() -> None:
    y = torch.ones(4, requires_grad=True) * 1
    first, _ = y.split(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        first.add_(1)


def test_expanded_memory_refuses_writes() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1).expand(3).add_(1)


def test_versions_are_shared_with_views_and_detach_but_not_data() -> None:
    x = torch.zeros(3)
    view, detached, data = x[:2], x.detach(), x.data
    x.add_(1)
    assert (x._version, view._version, detached._version, data._version) == (1, 1, 1, 0)
    assert data.tolist() == [1.0, 1.0, 1.0]


def test_inplace_type_and_shape_errors_change_nothing() -> None:
    x = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.add_(1.5)
    y = torch.zeros(2)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        y.add_(torch.ones(3, 2))
    assert x.tolist() == [0, 0]
    assert y._version == 0


def test_hook_on_a_tensor_later_changed_in_place_stays_with_the_old_value() -> None:
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.mul_(3)
    y.sum().backward()
    assert seen == [[3.0, 3.0]]


def test_retain_grad_follows_the_tensor_through_an_inplace_change() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["relu", "exp", "sigmoid", "tanh", "sqrt", "rsqrt", "reciprocal"])
def test_operators_that_save_their_result_work_in_place(name: str) -> None:
    start = [0.5, 1.0, 2.0]
    x, y = (torch.tensor(start, requires_grad=True) for _ in range(2))
    changed = x * 1
    getattr(changed, name + "_")()
    changed.sum().backward()
    getattr(torch, name)(y).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_a_later_change_of_a_result_saved_in_place_is_refused() -> None:
    y = (torch.ones(2, requires_grad=True) * 1).exp_()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="saved by ExpBackward0, is at version 2; expected version 1"):
        y.sum().backward()


def test_a_copy_has_a_history_of_its_own() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    z = torch.zeros(2).copy_(y)
    assert z.grad_fn.name() == "CopyBackwards"
    z.retain_grad()
    (z * 3 + y * 5).sum().backward(retain_graph=True)
    assert z.grad.tolist() == [3.0, 3.0]
    z.mul_(2)  # exp saved y, not its copy
    y.sum().backward()


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.mul_(2),
        lambda v: v.add_(1.0),
        lambda v: v.clamp_(0, 1),
        lambda v: v.lerp_(v.clone(), 0.5),
        lambda v: v.uniform_(),
        lambda v: v.__setitem__(0, 3.0),
    ],
)
def test_view_made_without_recording_is_not_changed_with_recording(change):
    y = torch.ones(3, requires_grad=True) * 2
    with torch.no_grad():
        v = y.view(3)
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        change(v)
    assert (y.tolist(), y._version) == ([2.0, 2.0, 2.0], 0)
    with torch.no_grad():
        change(v)


def test_value_with_history_into_a_view_that_may_not_take_one():
    w = torch.ones(2, requires_grad=True)
    base = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="multiple views"):
        base.unbind()[0].mul_(w)
    with torch.no_grad():
        v = base[0]
    with pytest.raises(RuntimeError, match="no_grad mode"):
        v.copy_(w)
    assert base.tolist() == [[1, 1], [1, 1]]


def test_pieces_of_tensor_split_take_changes_in_place():
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    y.tensor_split(2)[1].mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 3, 3]


def test_one_value_into_elements_that_share_memory():
    x = torch.zeros(2)
    x.expand(3, 2).fill_(4)
    assert x.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="single memory location"):
        x.expand(3, 2).add_(1)


@pytest.mark.parametrize("change", [lambda y: y.zero_(), lambda y: y.fill_(3), lambda y: y.copy_(W), lambda y: y.normal_()])
def test_overwritten_values_have_zero_gradients(change):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    change(y)
    (y * x.detach()).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def _weighted(r):
    return (r * torch.arange(1.0, r.numel() + 1).reshape(r.shape)).sum()


@pytest.mark.parametrize(
    "change", [lambda y: y.unsqueeze_(0), lambda y: y.t_(), lambda y: y.transpose_(0, 1), lambda y: y.swapaxes_(0, 1)]
)
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda y: y[0], [[2, 4, 6], [0, 0, 0]]),
        (lambda y: y.t(), [[2, 6, 10], [4, 8, 12]]),
        (lambda y: y[:, ::2], [[2, 0, 4], [6, 0, 8]]),
        (lambda y: y.view(-1), [[2, 4, 6], [8, 10, 12]]),
        (lambda y: y.diagonal(), [[2, 0, 0], [0, 4, 0]]),
    ],
)
def test_views_outlive_a_change_of_their_bases_geometry(make, expected, change):
    x = torch.ones(2, 3, requires_grad=True)
    y = x * 2
    view = make(y)
    change(y)
    _weighted(view).backward()
    assert x.grad.tolist() == expected


def test_writing_to_a_view_after_its_base_was_transposed():
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    w = torch.tensor(3.0, requires_grad=True)
    y = x * 2
    row = y[0]
    y.t_()
    row.mul_(w)
    assert y.tolist() == [[6, 8], [12, 10], [18, 12]]
    (_weighted(row) + (y * y).sum()).backward()
    assert x.grad.tolist() == [[78, 156, 234], [32, 40, 48]]
    assert w.grad.item() == 364.0


def test_a_view_takes_another_geometry_in_place():
    x = torch.ones(2, 3, requires_grad=True)
    y = x * 2
    row = y[0]
    row.unsqueeze_(-1)
    row.mul_(3)
    (_weighted(row) + y.sum()).backward()
    assert x.grad.tolist() == [[12, 18, 24], [2, 2, 2]]


def test_view_moved_to_other_memory_is_refused_when_its_base_changes():
    y = torch.ones(2, 3, requires_grad=True) * 2
    row = y[0]
    row.data = torch.zeros(3)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="other memory"):
        row.sum()


SEVERAL = [lambda y: y.split(1)[0], lambda y: y.unbind()[0], lambda y: y.chunk(2)[0]]
VIEWS = [lambda y: y[0:2], lambda y: y[0], lambda y: y.view(-1), lambda y: y.t(), *SEVERAL]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("make", VIEWS)
def test_views_made_without_recording_require_grad_as_their_base_does(make, leaf, mode):
    x = torch.ones(3, 2, requires_grad=True)
    base = x if leaf else x * 2
    with mode():
        view = make(base)
    assert (view.requires_grad, view.is_leaf, view.grad_fn, view._is_view()) == (True, True, None, True)
    out = (view * 2).sum()
    assert out.requires_grad and view.view_as(view).grad_fn is not None
    out.backward()  # there is no way from the view to x
    assert x.grad is None and view.grad is None
    assert view.requires_grad_(False).requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        view.detach_()
    with pytest.raises(RuntimeError, match="mode and is being modified inplace"):
        view.mul_(2)
    with pytest.raises(RuntimeError, match="mode and is being modified inplace"):
        view.view_as(view).mul_(2)
    with torch.no_grad():
        view.mul_(2)
    with pytest.raises(RuntimeError, match="mode and its base or another view of its base has been modified inplace"):
        view.grad_fn  # noqa: B018
    assert "grad_fn=<Invalid>" in repr(view)


@pytest.mark.parametrize("make", SEVERAL)
def test_one_of_several_views_is_spoilt_by_changes_of_the_base(make):
    y = torch.ones(3, 2, requires_grad=True) * 2
    view = make(y)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        view * 2


def test_a_view_made_without_recording_has_no_gradient_to_give():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        view = x[:2]
    out = (view * 2).sum()
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(out, view)
    view.requires_grad_()
    (view * 2).sum().backward()
    assert view.grad.tolist() == [2, 2]


def test_views_of_a_detached_base():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    view = y[:1]
    y.detach_()
    y.mul_(2)
    assert view.requires_grad and not y.requires_grad
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        view.mul_(2)
    (view * 3).sum().backward()
    assert x.grad is None


def test_shape_changed_while_nothing_is_recorded():
    x = torch.ones(1, 2, requires_grad=True)
    for change, works in ((lambda y: y.unsqueeze_(0), True), (lambda y: y.t_(), False)):
        y = x * 2
        with torch.no_grad():
            change(y)
        loss = (y * 3).sum()
        if works:
            loss.backward()
            assert x.grad.tolist() == [[6, 6]]
        else:
            with pytest.raises(RuntimeError, match="invalid gradient"):
                loss.backward()


def test_a_leaf_that_no_longer_requires_grad_gets_none():
    x = torch.ones(2, requires_grad=True)
    out = (x * 2).sum()
    x.requires_grad_(False)
    out.backward()
    assert x.grad is None


def test_a_view_turned_under_no_grad_stays_the_view_it_was():
    x = torch.ones(2, 3, requires_grad=True)
    view = (x * 2)[0:1]
    with torch.no_grad():
        view.t_()
    (view * torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert x.grad.tolist() == [[2, 4, 6], [0, 0, 0]]


def test_composites_in_place_keep_the_operand_they_overwrite():
    def gradients(change):
        x = torch.tensor([[3.0, 4.0], [0.3, 0.4]], requires_grad=True)
        out = change(x.clone())
        (out * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
        return out.detach(), x.grad

    for name, args in (("renorm", (2, 0, 1.0)), ("index_reduce", (0, torch.tensor([0]), torch.tensor([[2.0, 5.0]]), "prod"))):
        apart, here = (gradients(lambda x, n=n: getattr(x, n)(*args)) for n in (name, name + "_"))  # noqa: B023
        torch.testing.assert_close(here, apart)


def test_results_of_in_place_calls_are_held_once_and_may_not_change():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    a = x * 1
    a.exp_()
    assert a.grad_fn._saved_result.data_ptr() == a.data_ptr()
    a.sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([1.0, 2.718281828]))
    b = (x * 1).view(2)
    b.exp_()
    b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()


def test_what_others_saved_of_an_operand_still_may_not_change():
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 1
    source = (y * y)[:1]  # saves y, before the call that overwrites it
    y.index_reduce_(0, torch.tensor([0]), source, "prod")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


INDICES: dict[str, Any] = {
    "max": lambda x: x.max(-1), "sort": lambda x: x.sort(-1), "topk": lambda x: x.topk(2), "median": lambda x: x.median(-1),
    "kthvalue": lambda x: x.kthvalue(2), "mode": lambda x: x.mode(), "cummin": lambda x: x.cummin(-1),
    "max_pool1d": lambda x: torch.nn.functional.max_pool1d(x[None], 2, return_indices=True),
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_indices_that_backward_reads_may_not_change(name: str) -> None:
    x = torch.tensor([[3.0, 1.0, 4.0, 1.5], [2.0, 7.0, 1.0, 8.0]], requires_grad=True)
    values, indices = INDICES[name](x)
    values.sum().backward()
    values, indices = INDICES[name](x)
    indices[:1].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()
