"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import tocha as torch
from tocha import nn


def test_sequential_indexing_and_editing():
    a, b, c = nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)
    m = nn.Sequential(a, b, c)
    assert m[-1] is c and list(m[:2]) == [a, b] and isinstance(m[:2], nn.Sequential)
    del m[1]
    assert list(m._modules) == ["0", "1"] and m[1] is c
    m.insert(1, b)
    m.append(b)
    assert list(m) == [a, b, c, b]
    assert m.pop(0) is a and len(m) == 3
    assert len(m * 2) == 6 and len(m + m) == 6
    with pytest.raises(IndexError, match="index 3 is out of range"):
        m[3]
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        nn.Sequential(3)


def test_sequential_of_names():
    m = nn.Sequential(OrderedDict(first=nn.Linear(1, 1), second=nn.ReLU()))
    assert list(m.state_dict()) == ["first.weight", "first.bias"]
    assert m.first is m[0] and list(m[1:]._modules) == ["second"]


def test_module_list():
    m = nn.ModuleList([nn.ReLU()])
    m += [nn.Tanh()]
    m.insert(-1, nn.Sigmoid())
    m[0] = nn.Identity()
    assert [type(x).__name__ for x in m] == ["Identity", "Sigmoid", "Tanh"]
    assert [type(x).__name__ for x in m[1:]] == ["Sigmoid", "Tanh"]
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        m(1)


def test_module_list_repr_joins_equal_children():
    m = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU()])
    assert repr(m) == ("ModuleList(\n  (0-1): 2 x Linear(in_features=1, out_features=1, bias=True)\n  (2): ReLU()\n)")


def test_module_dict():
    m = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    m.update([("c", nn.Identity())])
    assert list(m) == ["b", "a", "c"] and "a" in m
    assert type(m.pop("a")) is nn.Tanh and len(m) == 2
    with pytest.raises(ValueError, match="element #0 has length 3; 2 is required"):
        m.update([("x", nn.ReLU(), 3)])
    with pytest.raises(TypeError, match="should be called with an iterable of key/value pairs, but got int"):
        nn.ModuleDict(3)


def test_parameter_list():
    m = nn.ParameterList([torch.zeros(1), 3, nn.Parameter(torch.ones(2, 3))])
    assert [n for n, _ in m.named_parameters()] == ["0", "2"]
    assert m[1] == 3 and len(m) == 3 and len(m[1:]) == 2
    assert repr(m) == (
        "ParameterList(\n"
        "    (0): Parameter containing: [torch.float32 of size 1]\n"
        "    (1): Object of type: int\n"
        "    (2): Parameter containing: [torch.float32 of size 2x3]\n"
        ")"
    )


def test_parameter_dict():
    m = nn.ParameterDict({"b": torch.zeros(1), "a": torch.zeros(2)})
    m["c"] = 3
    assert list(m) == ["a", "b", "c"] and m.get("z", 5) == 5
    assert m.setdefault("d", torch.ones(1)) is m["d"] and isinstance(m["d"], nn.Parameter)
    del m["a"]
    assert list(m.state_dict()) == ["b", "d"]
    assert m.popitem()[0] == "d"
    merged = m | nn.ParameterDict({"z": torch.ones(1)})
    assert list(merged) == ["b", "c", "z"] and merged["b"] is m["b"]
