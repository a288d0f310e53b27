"""Resizing, padding, sampling and rearranging images."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F

ROW = torch.tensor([[[0.0, 10.0, 20.0, 30.0]]])


@pytest.mark.parametrize(
    "mode, align, size, expected",
    [
        ("nearest", None, 6, [0.0, 0.0, 10.0, 20.0, 20.0, 30.0]),
        ("nearest-exact", None, 6, [0.0, 10.0, 10.0, 20.0, 30.0, 30.0]),
        ("linear", False, 2, [5.0, 25.0]),
        ("linear", True, 7, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]),
        ("area", None, 3, [5.0, 15.0, 25.0]),
    ],
)
def test_one_dimension(mode, align, size, expected):
    assert F.interpolate(ROW, size=size, mode=mode, align_corners=align)[0, 0].tolist() == expected


def test_an_infinity_spoils_only_its_neighbours():
    x = torch.zeros(1, 1, 1, 20)
    x[..., 0] = math.inf
    out = F.interpolate(x, size=(1, 10), mode="area")
    assert out[0, 0, 0, 0].item() == math.inf and out[0, 0, 0, 1:].abs().sum().item() == 0.0


def test_scale_factor_floors_and_uint8_rounds():
    assert F.interpolate(torch.ones(1, 1, 5), scale_factor=0.5).shape == (1, 1, 2)
    x = torch.tensor([[[[0, 1], [2, 4]]]], dtype=torch.uint8)
    assert F.interpolate(x, size=(1, 1), mode="bilinear").item() == 2


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({}, ValueError, "either size or scale_factor"),
        ({"size": 2, "scale_factor": 2}, ValueError, "only one of"),
        ({"size": 2, "mode": "bilinear"}, NotImplementedError, "bilinear"),
        ({"size": 2, "align_corners": True}, ValueError, "align_corners"),
        ({"size": 0}, RuntimeError, "greater than 0"),
    ],
)
def test_refused_arguments(options, error, text):
    with pytest.raises(error, match=text):
        F.interpolate(ROW, **options)


@pytest.mark.parametrize(
    "mode, pads, expected",
    [
        ("constant", (1, -2), [7.0, 0.0, 10.0]),
        ("reflect", (2, 1), [20.0, 10.0, 0.0, 10.0, 20.0, 30.0, 20.0]),
        ("replicate", (1, 2), [0.0, 0.0, 10.0, 20.0, 30.0, 30.0, 30.0]),
        ("circular", (-1, 2), [10.0, 20.0, 30.0, 10.0, 20.0]),
    ],
)
def test_pad(mode, pads, expected):
    value = 7.0 if mode == "constant" else None
    assert F.pad(ROW, pads, mode=mode, value=value)[0, 0].tolist() == expected


def test_pad_keeps_integers_exact_and_never_aliases():
    big = torch.tensor([[[2**53 + 1, 5]]])
    assert F.pad(big, (1, 0), mode="replicate")[0, 0, 0].item() == 2**53 + 1
    out = F.pad(ROW, (0, 0))
    out.zero_()
    assert ROW[0, 0, 3].item() == 30.0
    with pytest.raises(RuntimeError, match="less than the corresponding"):
        F.pad(ROW, (4, 0), mode="reflect")


def test_grid_sample_reads_pixels_and_borders():
    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    grid = torch.tensor([[[[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [3.0, 0.0]]]])
    assert F.grid_sample(x, grid, align_corners=True)[0, 0, 0].tolist() == [0.0, 3.0, 1.5, 0.0]
    border = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
    assert border[0, 0, 0].tolist() == [0.0, 3.0, 1.5, 2.0]
    nearest = F.grid_sample(x, grid, mode="nearest", padding_mode="reflection", align_corners=True)
    assert nearest[0, 0, 0, :2].tolist() == [0.0, 3.0]


def test_identity_affine_grid_gives_the_image_back():
    x = torch.arange(12.0).reshape(1, 1, 3, 4)
    theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for align in (False, True):
        grid = F.affine_grid(theta, (1, 1, 3, 4), align_corners=align)
        assert torch.allclose(F.grid_sample(x, grid, align_corners=align), x, atol=1e-5)


def test_shuffles_undo_each_other_and_copy():
    x = torch.arange(16.0).reshape(1, 4, 2, 2)
    y = F.pixel_shuffle(x, 2)
    assert y[0, 0, 0].tolist() == [0.0, 4.0, 1.0, 5.0]
    assert torch.equal(F.pixel_unshuffle(y, 2), x)
    assert F.channel_shuffle(x, 2)[0, :, 0, 0].tolist() == [0.0, 8.0, 4.0, 12.0]
    F.pixel_shuffle(x, 1).zero_()
    assert x.sum().item() == 120.0


BYTES = [
    ({"size": (3, 4), "mode": "bilinear"}, [[62, 54, 109, 165], [197, 61, 52, 108], [140, 196, 123, 51]]),
    (
        {"size": (7, 4), "mode": "bicubic"},
        [
            [0, 66, 125, 181],
            [99, 35, 106, 162],
            [200, 16, 78, 133],
            [204, 53, 54, 110],
            [177, 202, 0, 88],
            [142, 238, 72, 54],
            [124, 178, 198, 30],
        ],
    ),
    ({"size": (3, 4), "mode": "bilinear", "antialias": True}, [[68, 51, 104, 156], [181, 96, 57, 103], [149, 188, 108, 50]]),
    (
        {"size": (3, 8), "mode": "bicubic", "antialias": True},
        [[99, 43, 23, 60, 93, 122, 152, 175], [199, 189, 132, 53, 33, 60, 97, 119], [130, 158, 196, 210, 149, 57, 30, 63]],
    ),
    (
        {"scale_factor": (0.7, 1.3), "mode": "bicubic"},
        [[46, 26, 39, 78, 103, 130, 164], [221, 190, 76, 0, 53, 82, 115], [147, 170, 228, 204, 26, 24, 63]],
    ),
]


@pytest.mark.parametrize(("options", "expected"), BYTES)
def test_bytes_are_resized_with_integer_weights(options, expected):
    x = (torch.arange(30) * 37 % 256).to(torch.uint8).reshape(1, 1, 5, 6)
    got = F.interpolate(x, **options)
    assert got.dtype is torch.uint8
    assert got[0, 0].tolist() == expected


def test_channels_of_a_single_column_stay_apart():
    """torch repeats the first channel in channels_last memory."""
    x = torch.arange(60).to(torch.uint8).reshape(1, 5, 3, 4)
    options = {"size": (2, 1), "mode": "bilinear"}
    assert torch.equal(F.interpolate(x.to(memory_format=torch.channels_last), **options), F.interpolate(x, **options))


def test_bytes_in_one_or_three_dimensions_are_refused():
    for shape, mode in (((1, 1, 4), "linear"), ((1, 1, 4, 4, 4), "trilinear")):
        with pytest.raises(NotImplementedError, match="Byte"):
            F.interpolate(torch.zeros(shape, dtype=torch.uint8), scale_factor=2, mode=mode)
