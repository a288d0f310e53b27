"""Checks of every registered primitive, from its record alone."""

import inspect

import numpy as np
import pytest

import tocha as torch
from tocha.backends import meta
from tocha.dispatch.aten import overload_call
from tocha.dispatch.overload import OpOverload
from tocha.dispatch.prim import REGISTRY, Plan, Prim

FAMILIES = {
    "contract", "create", "fft", "index", "linalg", "loss", "move", "norm", "pointwise", "pool", "random", "recurrent", "reduce",
    "resample", "scan", "sort", "view",
}  # fmt: skip
PRIMS = sorted(REGISTRY)


def documented_elsewhere(prim):
    """By the public operator of its name (which other primitives of the kind point at), or as a gradient of one."""
    stem = prim.name.removesuffix("_backward").removesuffix("_dim")
    return (
        prim.family == "pointwise"
        or any(getattr(getattr(space, stem, None), "__doc__", None) for space in (torch, torch.Tensor, torch.nn.functional))
        or prim.name.endswith("_backward")
    )


@pytest.mark.parametrize("name", PRIMS)
def test_a_record_is_complete(name):
    prim = REGISTRY[name]
    assert prim.name == name and prim.family in FAMILIES
    assert prim.half in ("float32", "native") and prim.outputs and all(isinstance(o, str) for o in prim.outputs)
    assert prim.doc.strip() or documented_elsewhere(prim), f"{name} has no docstring"


def needed(prim):
    """Sets of wanted gradients: each argument alone, and all."""
    count = len(prim.arguments) + (2 if prim.variadic else 0)
    yield (True,) * count
    for i in range(count):
        yield tuple(j == i for j in range(count))


@pytest.mark.parametrize("name", [n for n in PRIMS if REGISTRY[n].vjp is not None])
def test_a_gradient_rule_asks_for_things_that_exist(name):
    """Building a plan resolves every name in the rule's signature; TypeError names one that is nothing."""
    prim = REGISTRY[name]
    for needs in needed(prim):
        if not callable(prim.vjp) and len(prim.vjp) > len(needs):
            pytest.fail(f"{name} has {len(prim.vjp)} rules for {len(needs)} arguments")
        rules = (prim.vjp,) if callable(prim.vjp) else prim.vjp
        if not any(rule is not None and (callable(prim.vjp) or needs[i]) for i, rule in enumerate(rules)):
            continue
        plan = Plan(prim, needs)
        assert plan.rules
        for _, function, positions, keywords in plan.rules:
            if isinstance(function, Prim):
                asked = len(function.arguments) - 1 + len(function.parameters)
            else:
                spec = inspect.getfullargspec(function)
                asked = len(spec.args) - 1 + len(spec.kwonlyargs)
            assert len(positions) + len(keywords) == asked


X = np.linspace(0.2, 0.9, 12).reshape(3, 4)
I = np.array([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 2, 1]])  # noqa: E741
#: (primitive, arguments, parameters): a call of each that isn't pointwise and whose call is short.
SAMPLES = [
    ("permute", (X,), {"dims": (1, 0)}), ("view", (X,), {"shape": (2, 6)}), ("expand", (X,), {"shape": (2, 3, 4)}),
    ("unsqueeze", (X,), {"dim": 1}), ("squeeze", (X[:, None],), {"dims": (1,)}), ("slice", (X,), {"index": (slice(None), slice(1, 3))}),
    ("as_strided", (X,), {"size": (2, 2), "stride": (4, 1), "offset": 1}),
    ("diagonal", (X,), {"offset": 1, "dim1": 0, "dim2": 1}), ("unfold", (X,), {"dim": 1, "size": 2, "step": 2}),
    ("sum", (X,), {"dim": (0,), "keepdim": True}), ("mean", (X,), {"dim": (1,), "keepdim": False}),
    ("prod", (X,), {"dim": (0, 1), "keepdim": False}), ("amax", (X,), {"dim": (1,), "keepdim": True}),
    ("amin", (X,), {"dim": (0,), "keepdim": False}), ("max_dim", (X,), {"dim": 1, "keepdim": False}),
    ("min_dim", (X,), {"dim": 0, "keepdim": True}), ("argmax", (X,), {"dim": 1, "keepdim": True}),
    ("any", (X > 0.5,), {"dim": (1,), "keepdim": False}), ("all", (X > 0.5,), {"dim": (0, 1), "keepdim": False}),
    ("count_nonzero", (X,), {"dim": (1,)}), ("var", (X,), {"dim": (1,), "keepdim": True, "correction": 1}),
    ("std", (X,), {"dim": (0, 1), "keepdim": False, "correction": 0}), ("logsumexp", (X,), {"dim": (1,), "keepdim": False}),
    ("vector_norm", (X,), {"ord": 2.0, "dim": (1,), "keepdim": False}),
    ("mm", (X, X), {"ta": True, "tb": False}), ("mv", (X, X[0]), {}), ("dot", (X[0], X[1]), {}),
    ("linear", (X, X, X[:, 0]), {}), ("softmax", (X,), {"dim": 1}), ("log_softmax", (X,), {"dim": 0}),
    ("cast", (X,), {"dtype": np.dtype(np.int32)}), ("clone", (X,), {"order": "C"}), ("unsafe_view", (X,), {"shape": (12,)}),
    ("cat", (X, X), {"dim": 1}), ("flip", (X,), {"dims": (0,)}), ("roll", (X,), {"shifts": (1,), "dims": (1,)}),
    ("repeat", (X,), {"repeats": (2, 1)}), ("tril", (X,), {"diagonal": 0}), ("triu", (X,), {"diagonal": 1}),
    ("constant_pad", (X,), {"pad": ((0, 1), (2, 0)), "value": 0}),
    ("gather", (X, I), {"dim": 0}), ("scatter", (X, I, X), {"dim": 0}), ("scatter_add", (X, I, X), {"dim": 0}),
    ("cumsum", (X,), {"dim": 1}), ("cumprod", (X,), {"dim": 0}), ("cummax", (X,), {"dim": 1}), ("logcumsumexp", (X,), {"dim": 0}),
    ("sort", (X,), {"dim": 1, "descending": True}), ("argsort", (X,), {"dim": 0, "descending": False}),
    ("topk", (X,), {"k": 2, "dim": 1, "largest": True}), ("kthvalue", (X,), {"k": 2, "dim": 1, "keepdim": True}),
    ("mode", (X,), {"dim": 1, "keepdim": False}), ("embedding", (X, I), {"padding_idx": -1, "by_frequency": False}),
]  # fmt: skip


def pointwise_samples():
    for name in PRIMS:
        prim = REGISTRY[name]
        if prim.family == "pointwise" and not prim.parameters and len(prim.arguments) <= 2 and name != "prelu":
            yield name, (X,) * len(prim.arguments), {}


def eager(prim, args, params):
    """The call on tensors, or None if the primitive isn't defined for such arguments."""
    tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in args]
    try:
        got = prim(*tensors, **params)
    except (RuntimeError, TypeError):
        return tensors, None
    return tensors, got if isinstance(got, tuple) else (got,)


@pytest.mark.parametrize("name, args, params", [*SAMPLES, *pointwise_samples()], ids=lambda v: v if isinstance(v, str) else "")
def test_inference_agrees_with_eager(name, args, params):
    prim = REGISTRY[name]
    tensors, real = eager(prim, args, params)
    if real is None:
        pytest.skip("not defined for float64")
    on_meta = prim(*[t.to("meta") for t in tensors], **params)
    on_meta = on_meta if isinstance(on_meta, tuple) else (on_meta,)
    assert [(m.shape, m.dtype) for m in on_meta] == [(r.shape, r.dtype) for r in real]
    if prim.infer is not None and prim.family != "view":
        inferred = meta.run_prim(prim, [meta.MetaArray(t._a.shape, t._a.dtype) for t in tensors], params)
        assert [(tuple(a.shape), a.dtype) for a in inferred] == [(r._a.shape, r._a.dtype) for r in real]


@pytest.mark.parametrize("name, args, params", [*SAMPLES, *pointwise_samples()], ids=lambda v: v if isinstance(v, str) else "")
def test_torchs_form_of_a_call_computes_the_same(name, args, params):
    """What __torch_dispatch__ is handed can be called, and gives what the primitive gives."""
    prim = REGISTRY[name]
    tensors, real = eager(prim, args, params)
    if real is None:
        pytest.skip("not defined for float64")
    func, given, kwargs = overload_call(prim, tuple(tensors), params)
    assert isinstance(func, OpOverload)
    got = func(*given, **kwargs)
    for r, g in zip(real, got if isinstance(got, tuple) else (got,), strict=False):
        torch.testing.assert_close(g, r, equal_nan=True)
