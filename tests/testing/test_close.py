"""assert_allclose: its own tolerances and no look at types; assert_close is used by all other tests."""

import pytest

import tocha as torch


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_assert_allclose():
    close = torch.testing.assert_allclose
    close(torch.ones(2), torch.full((2,), 1.00005))
    close(torch.ones(2, dtype=torch.int64), torch.ones(2))
    close(torch.tensor(torch.nan), torch.tensor(torch.nan))
    close(1.0, 1.00005)
    with pytest.raises(AssertionError):
        close(torch.ones(2), torch.full((2,), 1.0002))
    with pytest.raises(AssertionError):
        close(torch.ones(2, dtype=torch.float64), torch.full((2,), 1.00005, dtype=torch.float64))
    with pytest.raises(AssertionError, match="said so"):
        close(1, 2, msg="said so")
    with pytest.raises(ValueError, match="got no atol"):
        close(1, 1, rtol=1)
    with pytest.warns(FutureWarning, match="assert_close"):
        close(1, 1)
