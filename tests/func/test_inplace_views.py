"""Changes of shape in place inside vmap, gradients and forward mode: those of a loop over examples."""

import pytest

import tocha as torch
from tocha.func import grad, vmap


def grid(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) - 5


def loop(function):
    """A function of one example over the leading dimension, one by one."""
    return lambda x: torch.stack([function(e) for e in x])


#: shape, a change in place, the same as a view, and the shape of an example after it
RESHAPING = {
    "t_": ((2, 4, 3), lambda x: x.t_(), lambda x: x.t(), (3, 4)),
    "transpose_": ((2, 4, 3), lambda x: x.transpose_(-1, 0), lambda x: x.transpose(-1, 0), (3, 4)),
    "swapaxes_": ((2, 4, 3), lambda x: x.swapaxes_(0, 1), lambda x: x.t(), (3, 4)),
    "swapdims_": ((2, 4, 3), lambda x: x.swapdims_(0, 1), lambda x: x.t(), (3, 4)),
    "unsqueeze_": ((2, 3), lambda x: x.unsqueeze_(0), lambda x: x.unsqueeze(0), (1, 3)),
    "unsqueeze_ behind": ((2, 3), lambda x: x.unsqueeze_(-1), lambda x: x.unsqueeze(-1), (3, 1)),
    "squeeze_": ((2, 1, 3), lambda x: x.squeeze_(), lambda x: x.squeeze(), (3,)),
    "squeeze_ of one": ((2, 1, 3), lambda x: x.squeeze_(0), lambda x: x.squeeze(0), (3,)),
    "squeeze_ of two": ((2, 1, 3, 1), lambda x: x.squeeze_((0, 2)), lambda x: x.squeeze((0, 2)), (3,)),
    "several": ((2, 1, 3), lambda x: x.squeeze_(0).unsqueeze_(-1).t_(), lambda x: x, (1, 3)),
    "of a view": ((2, 4, 3), lambda x: x[1:].t_(), lambda x: x[1:].t(), (3, 3)),
}


@pytest.mark.parametrize("shape, change, view, after", RESHAPING.values(), ids=RESHAPING)
def test_shapes_changed_in_place(shape, change, view, after):
    x, more = grid(*shape), grid(3, *shape)
    expected = loop(lambda e: view(e) * 2)
    got = vmap(lambda x: change(x * 2))(x)
    assert got.shape == (2, *after) and got.equal(expected(x))
    assert vmap(lambda x: change(x * 2), in_dims=1, out_dims=-1)(x.movedim(0, 1)).movedim(-1, 0).equal(expected(x))
    assert vmap(vmap(lambda x: change(x * 2)))(more).equal(loop(expected)(more))
    weights = grid(*after)
    slopes = torch.autograd.grad((view(y := torch.zeros(shape[1:], requires_grad=True)) * weights).sum(), y)[0] * 2
    slopes = slopes.expand(shape)
    assert vmap(grad(lambda x: (change(x * 2) * weights).sum()))(x).equal(slopes)
    assert grad(lambda x: (vmap(lambda e: change(e * 2))(x) * weights).sum())(x).equal(slopes)
    primal, tangent = torch.func.jvp(vmap(lambda x: change(x * 1) * 2), (x,), (x + 1,))
    assert primal.equal(expected(x)) and tangent.equal(expected(x + 1))
    primal, tangent = vmap(lambda x: torch.func.jvp(lambda x: change(x * 1) * 2, (x,), (x + 1,)))(x)
    assert primal.equal(expected(x)) and tangent.equal(expected(x + 1))


def test_reshaping_the_mapped_input_itself():
    x = torch.arange(8.0).view(2, 1, 4)

    def turn(x):
        x.unsqueeze_(1)
        return x.transpose(-1, 0)

    assert vmap(turn)(x).tolist() == [[[[0]], [[1]], [[2]], [[3]]], [[[4]], [[5]], [[6]], [[7]]]]
    assert x.shape == (2, 1, 1, 4)
    y = torch.arange(6.0).view(2, 3, 1)
    assert vmap(lambda y: y.t_(), in_dims=1)(y).tolist() == [[[0, 3]], [[1, 4]], [[2, 5]]]
    assert y.tolist() == [[[0, 3], [1, 4], [2, 5]]]
    leaf = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        vmap(lambda x: x.unsqueeze_(0))(leaf)
    made = leaf * 2
    (vmap(lambda x: x.unsqueeze_(0).mul_(3))(made).sum() + made.sum()).backward()
    assert made.shape == (2, 1, 3) and leaf.grad.tolist() == [[12, 12, 12], [12, 12, 12]]


def test_reshaped_tensors_share_memory_with_their_views():
    def write(x):
        base = x * 1
        view = base[...]
        view.t_()
        view.mul_(3)
        base[0] += 1
        return base, view

    base, view = vmap(write)(torch.arange(8.0).view(2, 2, 2))
    assert base.tolist() == [[[1, 4], [6, 9]], [[13, 16], [18, 21]]]
    assert view.tolist() == [[[1, 6], [4, 9]], [[13, 18], [16, 21]]]


def test_other_memory_for_a_mapped_tensor_is_refused():
    x = grid(2, 3)
    assert vmap(lambda x: x.data * 2)(x).equal(x * 2)
    for change in (
        lambda x: x.resize_(2), lambda x: x.resize_as_(torch.ones(2)), lambda x: x.set_(torch.ones(3)), lambda x: x.set_(),
        lambda x: x.as_strided_((2,), (1,)), lambda x: setattr(x, "data", torch.ones(3)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"possible on a mapped|can't be used inside vmap"):
            vmap(lambda x, change=change: change(x * 2))(x)
    assert vmap(lambda x: x + torch.arange(3.0).resize_(1))(x).equal(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2, 3), torch.arange(6.0).view(2, 3)) * 2
        value, tangent = torch.autograd.forward_ad.unpack_dual(dual.t_().unsqueeze_(0) * 3)
        assert value.tolist() == [[[6, 6]] * 3] and tangent.tolist() == [[[0, 18], [6, 24], [12, 30]]]
