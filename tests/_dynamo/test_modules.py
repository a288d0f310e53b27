"""Modules: layers, containers, hooks, outputs, subclasses; compiled in whole, by method and in place."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo import helpers
from tocha import nn
from tocha._dynamo.testing import CompileCounter


class Block(nn.Module):
    def __init__(self, d: int = 8, heads: int = 2, p: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(collections.OrderedDict(up=nn.Linear(d, 2 * d), act=nn.GELU(), down=nn.Linear(2 * d, d)))
        self.heads, self.drop = heads, nn.Dropout(p)

    def forward(self, x: Any, mask: Any = None) -> Any:
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.mlp(self.norm2(x))


@dataclasses.dataclass
class Config:
    vocab: int = 11
    d: int = 8
    layers: int = 2
    act: str = "gelu"
    use_cache: bool = False


class ModelOutput(collections.OrderedDict):  # type: ignore[type-arg]
    """The outputs of a well-known model library: a dict whose entries are dataclass fields."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self) -> Any:
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class Output(ModelOutput):
    loss: Any = None
    logits: Any = None
    hidden: Any = None


ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


class Model(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.d)
        self.layers = nn.ModuleList([Block(config.d) for _ in range(config.layers)])
        self.head = nn.Linear(config.d, config.vocab, bias=False)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        self.tables = nn.ModuleDict({"a": nn.Linear(config.d, config.d)})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(config.d))])

    def forward(self, ids: Any, labels: Any = None, output_hidden: Any = None, **kwargs: Any) -> Any:
        output_hidden = output_hidden if output_hidden is not None else self.config.use_cache
        hidden = () if output_hidden else None
        x = self.embed(ids) * self.scale
        for layer in self.layers:
            if hidden is not None:
                hidden = (*hidden, x)
            x = layer(x)
        x = ACTIVATIONS[self.config.act](self.tables["a"](x)) * self.weights[0]
        logits = self.head(x)
        loss = F.cross_entropy(logits.view(-1, self.config.vocab), labels.view(-1)) if labels is not None else None
        return Output(loss=loss, logits=logits, hidden=hidden)


def trained(model: nn.Module, *inputs: Any) -> tuple[Any, list[Any]]:
    """The output of a model and the gradients of its sum."""
    out = model(*inputs)
    first = out[0] if isinstance(out, (tuple, ModelOutput)) else out
    first.sum().backward()
    return out, [None if p.grad is None else p.grad for p in model.parameters()]


MODELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "block": (lambda: Block(), (torch.randn(2, 5, 8),)),
    "dropout": (lambda: Block(p=0.3), (torch.randn(2, 5, 8),)),
    "model": (lambda: Model(Config()), (torch.tensor([[1, 2, 3]]), torch.tensor([[2, 3, 4]]))),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)),
        (torch.randn(2, 1, 8, 8),),
    ),
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), (torch.randn(2, 5, 3),)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (torch.randn(2, 3, 8),) * 3),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.randn(2, 3, 8),)),
    "tied": (lambda: _tied(), (torch.tensor([[1, 2]]),)),
}


def _tied() -> nn.Module:
    model = Model(Config())
    model.head.weight = model.embed.weight
    return model


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, backend: str) -> None:
    torch._dynamo.reset()
    make, inputs = MODELS[name]
    plain = make()
    ours = copy.deepcopy(plain)
    compiled = torch.compile(ours, backend=backend)
    for seed in range(2):
        torch.manual_seed(seed)
        expected = trained(plain, *inputs)
        torch.manual_seed(seed)
        got = trained(compiled, *inputs)
        assert helpers.same(expected, got, 1e-6 if backend == "aot_eager" else 0)
    assert helpers.same([*plain.state_dict().values()], [*ours.state_dict().values()], 1e-6)


@pytest.mark.parametrize("name", ["block", "model", "convolution", "dropout", "tied"])
def test_one_graph(name: str) -> None:
    make, inputs = MODELS[name]
    counter = CompileCounter()
    model = torch.compile(make(), backend=counter, fullgraph=True)
    model(*inputs), model(*inputs)
    assert counter.frame_count == 1
    model.eval()
    model(*inputs), model.train(), model(*inputs)
    assert counter.frame_count == (2 if name in ("convolution", "dropout") else counter.frame_count)


def test_methods_and_in_place() -> None:
    block, x = Block(), torch.randn(1, 3, 8)
    counter = CompileCounter()
    expected = block(x)
    assert torch.equal(torch.compile(block.forward, backend=counter)(x), expected)
    block.compile(backend=counter)
    assert torch.equal(block(x), expected) and counter.frame_count == 2

    class Decorated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        @torch.compile(backend=counter, fullgraph=True)
        def forward(self, x: Any) -> Any:
            return x * self.w

    counter.clear()
    models = nn.Sequential(*[Decorated() for _ in range(12)])
    models(torch.ones(3))
    assert counter.frame_count == 2  # one for an input without history; layers alike share the other


def test_hooks() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        model[0].register_forward_hook(lambda m, args, out: out * 2)
        model[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        return model

    x = torch.randn(2, 3)
    compiled = torch.compile(make(), backend="eager")
    assert torch.equal(compiled(x), make()(x))
    compiled._orig_mod[0].register_forward_hook(lambda m, args, out: out - 5)
    plain = make()
    plain[0].register_forward_hook(lambda m, args, out: out - 5)
    assert torch.equal(compiled(x), plain(x))


def test_what_changes_on_modules_is_seen() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout(0.0))
    x = torch.randn(2, 3)
    compiled = torch.compile(model, backend="eager")

    def agree() -> None:
        assert torch.equal(compiled(x), model(x))

    agree()
    model[0].weight.data = torch.ones(3, 3)
    agree()
    model[0].weight = nn.Parameter(torch.zeros(3, 3))
    agree()
    model[1] = nn.Tanh()
    agree()
    model[0].bias = None
    agree()
    model[0].forward = lambda x: x * 7
    agree()
    model.append(nn.Linear(3, 2))
    agree()
    model.to(torch.float64)
    assert torch.equal(compiled(x.double()), model(x.double()))
    model[3].requires_grad_(False)
    assert compiled(x.double()).requires_grad == model(x.double()).requires_grad


def test_checkpoint_function_and_autocast() -> None:
    from tocha.utils.checkpoint import checkpoint

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3 + ctx.saved_tensors[0] * 0

    layer = nn.Linear(3, 3)

    def f(x: Any) -> Any:
        y = checkpoint(layer, x, use_reentrant=False)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = layer(Double.apply(y))
        return z.float().sum() + x.sum()

    for backend in ("eager", "aot_eager"):
        a, b = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        f(a).backward()
        torch.compile(f, backend=backend)(b).backward()
        assert torch.equal(a.grad, b.grad)


class Tagged(torch.Tensor):
    pass


def test_tensor_subclasses() -> None:
    x = torch.ones(3).as_subclass(Tagged)
    got = torch.compile(lambda x: x * 2 + 1, backend="eager")(x)
    assert type(got) is Tagged and got.tolist() == [3.0, 3.0, 3.0]
    p = nn.Parameter(torch.ones(3))
    kinds = torch.compile(lambda p: (isinstance(p, nn.Parameter), isinstance(p * 2, nn.Parameter)), backend="eager")
    assert kinds(p) == (True, False)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("fullgraph", [False, True])
def test_lazy_layers_get_their_parameters_in_a_compiled_call(fullgraph: bool) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.ReLU())
            self.linear = nn.LazyLinear(2)

        def forward(self, x: Any) -> Any:
            return self.linear(self.conv(x).flatten(1))

    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = Lazy()
        call = torch.compile(model, fullgraph=fullgraph) if compiled else model
        outs = [call(torch.arange(32.0).view(2, 1, 4, 4)) for _ in range(3)]
        outs[-1].sum().backward()
        assert type(model.linear) is nn.Linear
        found.append([*outs, *[p.grad for p in model.parameters()], model.conv[1].running_mean])
    torch.testing.assert_close(*found)


def test_an_averaged_model_is_one_graph() -> None:
    model = torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2))
    helpers.check(model, torch.ones(1, 2), fullgraph=True)
