"""svd_lowrank, pca_lowrank and lobpcg. Values from torch 2.13 with the same seed."""

import pytest

import tocha as torch

A = torch.arange(60.0).reshape(10, 6) * 7 % 11


def test_svd_lowrank():
    torch.manual_seed(3)
    u, s, v = torch.svd_lowrank(A, 4)
    assert s.tolist() == pytest.approx([39.334373, 15.341389, 13.765635, 7.294848], rel=1e-5)
    assert (u.T @ u).sum().item() == pytest.approx(4.0, abs=1e-4)
    assert v.shape == (6, 4)
    u, s, v = torch.svd_lowrank(A, 6)
    assert torch.allclose(u @ s.diag() @ v.T, A, atol=1e-4)
    c = torch.randn(5, 4, dtype=torch.complex64)
    u, s, v = torch.svd_lowrank(c, 4)
    assert torch.allclose(u @ s.diag().to(c.dtype) @ v.mH, c, atol=1e-4)


def test_pca_lowrank_and_a_mean_to_take_off():
    expected = [15.450152, 13.828925, 7.047355]
    torch.manual_seed(3)
    assert torch.pca_lowrank(A, q=3)[1].tolist() == pytest.approx(expected, rel=1e-5)
    torch.manual_seed(3)
    _, s, v = torch.svd_lowrank(torch.stack([A, A * 2]), 3, M=A.mean(0))
    assert s[0].tolist() == pytest.approx(expected, rel=1e-5)
    assert v.shape == (2, 6, 3)
    with pytest.raises(ValueError, match="not greater than min"):
        torch.pca_lowrank(A, q=7)


def test_lobpcg():
    g, b = A.T @ A + torch.eye(6), torch.arange(1.0, 7.0).diag()
    assert torch.lobpcg(g, k=2)[0].tolist() == pytest.approx([1548.1931, 236.6325], rel=1e-5)
    assert torch.lobpcg(g, k=2, largest=False)[0].tolist() == pytest.approx([42.569588, 52.189835], rel=1e-5)
    e, v = torch.lobpcg(g, k=2, B=b)
    assert e.tolist() == pytest.approx([671.54736, 94.698776], rel=1e-5)
    assert torch.allclose(g @ v, b @ v @ e.diag(), atol=1e-2)
    with pytest.raises(ValueError, match="3 x"):
        torch.lobpcg(g, k=3)
