"""View primitives."""

from __future__ import annotations

import tocha as torch


def test_views_of_one_element_keep_torchs_strides() -> None:
    x = torch.zeros(50).as_strided((1, 1), (7, 5))
    assert x.view(1).stride() == (5,)
    assert x.view(1, 1, 1).stride() == (5, 5, 5)
