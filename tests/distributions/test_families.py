"""Every family against torch 2.13: samples of a seed, densities, moments, gradients and divergences (values in expected.json)."""

import json
from pathlib import Path

import pytest

import tocha as torch
from tocha import distributions as D

EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())
FAMILIES, DIVERGENCES = EXPECTED["families"], EXPECTED["divergences"]


def close(got, want, tolerance=2e-4):
    want = torch.tensor([float(x) for x in want], dtype=torch.float64)
    torch.testing.assert_close(got.detach().double().flatten(), want, rtol=tolerance, atol=2e-5, equal_nan=True)


def made(text, leaves=None):
    def tensor(data, requires_grad=False):
        x = torch.tensor(data, requires_grad=requires_grad)
        if requires_grad and leaves is not None:
            leaves.append(x)
        return x

    class Torch:
        eye, stack = staticmethod(torch.eye), staticmethod(torch.stack)

    Torch.tensor = staticmethod(tensor)
    return eval("D." + text, {"D": D, "torch": Torch})


@pytest.mark.parametrize("text", FAMILIES)
def test_family(text):
    want, leaves = FAMILIES[text], []
    d = made(text, leaves)
    torch.manual_seed(7)
    x = d.sample((2,))
    assert x.shape == (2, *d.batch_shape, *d.event_shape)
    assert not x.requires_grad
    close(x, want["sample"])
    log_prob = d.log_prob(x)
    close(log_prob, want["log_prob"])
    for place, got in zip(
        want.get("gradient", ()),
        leaves and torch.autograd.grad(log_prob.sum(), leaves, allow_unused=True, retain_graph=True),
        strict=False,
    ):
        if place is not None:
            close(got, place, 1e-3)
    for name in ("mean", "variance", "mode"):
        if name in want:
            close(getattr(d, name), want[name])
    for name, call in (("entropy", d.entropy), ("cdf", lambda: d.cdf(x)), ("enumerate_support", d.enumerate_support)):
        if name in want:
            close(call(), want[name])


@pytest.mark.parametrize("text", [t for t in FAMILIES if "reparametrised" in FAMILIES[t]])
def test_gradients_of_samples(text):
    leaves = []
    d = made(text, leaves)
    torch.manual_seed(7)
    x = d.rsample((2,))
    weights = torch.arange(1.0, 1 + x.numel()).reshape(x.shape)
    found = torch.autograd.grad((x * weights).sum(), leaves, allow_unused=True, retain_graph=True)
    for got, want in zip(found, FAMILIES[text]["reparametrised"], strict=True):
        if want is not None:
            close(got, want, 5e-3)  # torch approximates those of gamma variables


@pytest.mark.parametrize("text", FAMILIES)
def test_expanded_families_agree_with_the_original(text):
    d = made(text)
    e = d.expand((3, *d.batch_shape))
    assert e.batch_shape == (3, *d.batch_shape)
    assert type(e) is type(d)
    x = d.sample()
    torch.testing.assert_close(e.log_prob(x)[2], d.log_prob(x))
    assert e.sample((2,)).shape == (2, 3, *d.batch_shape, *d.event_shape)


@pytest.mark.parametrize("pair", DIVERGENCES)
def test_divergence(pair):
    p, q = (made(text) for text in pair.replace(") ", ")|").split("|"))
    close(D.kl_divergence(p, q), DIVERGENCES[pair])
