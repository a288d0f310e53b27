"""AOTAutograd for other people's backends."""

import tocha as torch
from tocha._functorch.aot_autograd import aot_function, aot_module_simplified, make_boxed_func

X = torch.arange(6.0).view(2, 3)


def test_graphs_of_forward_and_backward():
    seen = []

    def compiler(gm, inputs):
        seen.append((len(inputs), [n.op for n in gm.graph.nodes].count("call_function")))
        return make_boxed_func(gm.forward)

    x = X.clone().requires_grad_()
    f = aot_function(lambda x, k: {"y": x.sin() * k}, compiler)
    out = f(x, 2)
    out["y"].sum().backward()
    assert torch.allclose(out["y"], 2 * X.sin()) and torch.allclose(x.grad, 2 * X.cos())
    assert len(seen) == 2 and seen[0][0] == 1
    f(x, 2)["y"].sum().backward()
    assert len(seen) == 2 and torch.allclose(x.grad, 4 * X.cos())


def test_as_a_backend_of_compile():
    parts = []

    def backend(gm, inputs):
        def compiler(part):
            return lambda gm, inputs: parts.append(part) or gm.forward

        return aot_module_simplified(
            gm, inputs, compiler("forward"), compiler("backward"), inference_compiler=compiler("inference")
        )

    model = torch.nn.Linear(3, 2)
    compiled = torch.compile(model, backend=backend)
    compiled(X).square().sum().backward()
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    assert all(torch.allclose(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    with torch.no_grad():
        assert torch.equal(compiled(X), model(X))
    assert parts == ["forward", "backward", "inference"]


def test_modules_state_is_an_input():
    model = torch.nn.Linear(3, 2)
    call = aot_module_simplified(model, [X], lambda gm, inputs: gm.forward)
    with torch.no_grad():
        call(X)
        model.weight.zero_()
        assert torch.equal(call(X), model.bias.expand(2, 2))
