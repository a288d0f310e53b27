"""Views that gradients of reductions are made of."""

import itertools

import pytest

import tocha as torch
from tocha.prims import reduce
from tocha.prims.view import expand


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4), (2,), (), (0, 3), (2, 1, 3)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_spread_is_view_and_expand_at_once(shape, keepdim):
    for count in range(len(shape) + 1):
        for dim in itertools.combinations(range(len(shape)), count):
            g = torch.randn(reduce.reduced_shape(shape, dim, keepdim)).clone()
            got, want = reduce.spread(g, shape, dim, keepdim), expand(reduce.unsqueezed(g, shape, dim, keepdim), shape=shape)
            assert got.stride() == want.stride() and torch.equal(got, want)
            assert got._base is g and got._view.chain == want._view.chain
