"""torch.export: graphs, signatures, what is checked of inputs, files."""

import io
import json
import zipfile

import pytest

import tocha as torch
from tocha import nn
from tocha._dynamo.exc import Unsupported, UserError
from tocha.export import Dim, export, load, save

X = torch.arange(6.0).view(2, 3)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.w = torch.full((3,), 2.0)

    def forward(self, x, *, k=1):
        self.n.add_(1)
        return {"a": x + self.n + self.w * self.hidden, "k": k}


class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class OnSize(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] > 4 else x


def test_a_linear_layer():
    model = nn.Linear(3, 2)
    program = export(model, (X,))
    signature = program.graph_signature
    assert signature.inputs_to_parameters == {"p_weight": "weight", "p_bias": "bias"} and signature.parameters == (
        "weight",
        "bias",
    )
    assert signature.user_inputs == ("input_1",) and len(signature.user_outputs) == 1
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [
        torch.ops.aten.t.default,
        torch.ops.aten.addmm.default,
    ]
    module = program.module()
    assert torch.equal(module(X + 1), model(X + 1))
    assert program.state_dict["weight"] is model.weight and list(module.state_dict()) == ["weight", "bias"]
    module(X).sum().backward()
    assert torch.equal(model.weight.grad, X.sum(0).expand(2, 3))
    with pytest.raises(RuntimeError, match=r"use `exported_program.module\(\)`"):
        program(X)
    with pytest.raises(NotImplementedError):
        module.eval()


def test_state_and_constants():
    model = Counting()
    program = export(model, (X,), {"k": 2})
    assert model.n.item() == 0  # left as it was
    signature = program.graph_signature
    assert signature.buffers == ("n", "hidden") and signature.non_persistent_buffers == ("hidden",)
    assert len(signature.lifted_tensor_constants) == 1 and signature.user_inputs == ("x", 2) and signature.user_outputs[1] == 2
    out = program.module()(X, k=2)
    assert out["k"] == 2 and torch.equal(out["a"], X + 3) and model.n.item() == 1
    with pytest.raises(AssertionError, match="Guard failed: k == 2"):
        program.module()(X, k=3)


def test_modes_and_random_numbers():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    torch.manual_seed(0)
    state = torch.get_rng_state()
    program = export(model, (X,))
    assert torch.equal(torch.get_rng_state(), state) and model[1].num_batches_tracked.item() == 0
    torch.manual_seed(1)
    a = program.module()(X)
    torch.manual_seed(1)
    assert torch.allclose(a, model(X)) and model[1].num_batches_tracked.item() == 2
    assert torch.equal(export(model.eval(), (X,)).module()(X), model(X))


def test_sizes_that_vary():
    rows = Dim("rows", max=100)
    program = export(Counting(), (X,), {"k": 1}, dynamic_shapes={"x": {0: rows}, "k": None})
    module = program.module()
    assert module(torch.ones(7, 3), k=1)["a"].shape == (7, 3) and program.range_constraints == {"rows": (2, 100)}
    for bad, text in (
        (torch.ones(7, 4), r"x.size\(\)\[1\] == 3"),
        (torch.ones(101, 3), "<= 100"),
        (torch.ones(7, 3).double(), "float32"),
    ):
        with pytest.raises(AssertionError, match=f"Guard failed: .*{text}"):
            module(bad, k=1)

    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    two = export(Two(), (X, X), dynamic_shapes=({0: rows}, {0: rows})).module()
    assert two(torch.ones(5, 3), torch.ones(5, 3)).shape == (5, 3)
    with pytest.raises(AssertionError, match="rows"):
        two(torch.ones(5, 3), torch.ones(4, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: export(len, (X,)), ValueError, "Expected `mod` to be an instance of `torch.nn.Module`"),
        (lambda: export(nn.ReLU(), [X]), UserError, "Expecting `args` to be a tuple"),
        (lambda: export(nn.ReLU(), (X,), dynamic_shapes={"y": {0: Dim("b")}}), UserError, r"must be the arg names \['input'\]"),
        (lambda: export(Branch(), (X,)), Unsupported, r"a branch on a tensor's value .*test_export.py"),
        (lambda: export(OnSize(), (X,), dynamic_shapes=({0: Dim("b")},)), UserError, "Constraints violated.*> 4 is False"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("dynamic", [None, {"x": {0: Dim("b")}, "k": None}], ids=["fixed", "varying"])
def test_files(dynamic):
    program = export(Counting(), (X,), {"k": 1}, dynamic_shapes=dynamic)
    file = io.BytesIO()
    save(program, file, extra_files={"note.txt": "hello"})
    file.seek(0)
    extra = {"note.txt": ""}
    loaded = load(file, extra_files=extra)
    assert extra == {"note.txt": "hello"} and loaded.graph_signature == program.graph_signature
    assert loaded.graph_module.code == program.graph_module.code and loaded.range_constraints == program.range_constraints
    assert torch.equal(loaded.module()(X, k=1)["a"], X + 3)


def test_files_name_operators_only(tmp_path):
    save(export(nn.ReLU(), (X,)), tmp_path / "a.pt2")
    with zipfile.ZipFile(tmp_path / "a.pt2") as archive:
        program, tensors = json.loads(archive.read("program.json")), archive.read("tensors.pt")
    for node in program["nodes"]:
        if node[0] == "call_function":
            node[2] = "serialization.load"
    with zipfile.ZipFile(tmp_path / "b.pt2", "w") as archive:
        archive.writestr("program.json", json.dumps(program))
        archive.writestr("tensors.pt", tensors)
    with pytest.raises(RuntimeError, match="is no function of tensors"):
        load(tmp_path / "b.pt2")
    (tmp_path / "c.pt2").write_bytes(b"nothing")
    with pytest.raises(RuntimeError, match="not a program"):
        load(tmp_path / "c.pt2")
