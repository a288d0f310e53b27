"""What running shared programs compiled has shown."""

import tocha as torch


def test_a_dict_keyed_by_tensors_stays_as_it_is():
    def f(p):
        opt = torch.optim.SGD([p], lr=0.1, momentum=0.9)
        p.grad = torch.ones(2)
        opt.step()
        return opt.state[p]["momentum_buffer"].clone(), p in opt.state

    state = {}

    @torch.compile(backend="eager")
    def look(d, key):
        return d[key] * 2, len(d)

    key = torch.ones(2)
    state[key] = torch.ones(3)
    out, count = look(state, key)
    assert out.tolist() == [2, 2, 2] and count == 1 and len(state) == 1
    p = torch.nn.Parameter(torch.ones(2))
    buffer, known = torch.compile(f, backend="eager")(p)
    assert buffer.tolist() == [1, 1] and known


def test_leaves_made_inside_get_gradients():
    @torch.compile
    def f():
        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        return x.grad

    assert f().tolist() == [2, 2, 2]


def test_writes_without_history_to_inputs_with_one():
    def f(x, y):
        with torch.no_grad():
            x.mul_(3)
        x.detach().add_(1)
        return (x * y).sum()

    for leaf in (True, False):
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            outs = []
            for call in (f, torch.compile(f, backend=backend)):
                base, y = torch.ones(2, requires_grad=True), torch.full((2,), 5.0, requires_grad=True)
                x = base if leaf else base * 2
                call(x, y).backward()
                outs.append((x.tolist(), base.grad.tolist(), y.grad.tolist()))
            assert outs[0] == outs[1]


def test_errors_of_graphs_are_the_programs():
    def f(table):
        try:
            torch.nn.functional.embedding(torch.tensor([4]), table)
        except IndexError:
            return "caught"
        return "read out of bounds"

    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        assert torch.compile(f, backend=backend)(torch.ones(4, 2)) == "caught"


def test_jvp_of_a_compiled_function():
    f = torch.compile(lambda x: torch.where(x > 100.0, torch.zeros_like(x), 2.0 * x).sum())
    out, tangent = torch.func.jvp(f, (torch.tensor([1.0, 2.0]),), (torch.ones(2),))
    assert out.item() == 6 and tangent.item() == 4


def test_results_assumed_constant():
    calls = []

    @torch.compiler.assume_constant_result
    def width(k):
        calls.append(k)
        return 3 * k

    f = torch.compile(lambda x: x * width(2), backend="eager", fullgraph=True)
    assert f(torch.ones(1)).item() == 6 and f(torch.ones(1)).item() == 6 and calls == [2]


def test_is_exporting_while_exporting():
    class Two(torch.nn.Module):
        def forward(self, x):
            return x * 2 if torch.compiler.is_exporting() else x * 3

    assert torch.export.export(Two(), (torch.ones(2),)).module()(torch.ones(2)).tolist() == [2, 2]
    assert torch.compile(Two(), backend="eager")(torch.ones(2)).tolist() == [3, 3]


def test_the_gradient_of_an_input_that_is_written_to_is_retained():
    def f(x):
        x.mul_(2)
        return (x + 1).sum()

    x = torch.ones(1, requires_grad=True).clone()
    x.retain_grad()
    torch.compile(f)(x).backward()
    assert x.grad.item() == 1


def test_a_retained_gradient_is_seen_where_backward_runs_inside():
    def f(x):
        a = x * 1
        a.retain_grad()
        (a * 2).sum().backward()
        return a.grad, a.retains_grad

    x = torch.ones(1, requires_grad=True)
    grad, retains = torch.compile(f, backend="eager")(x)
    assert grad.item() == 2 and retains

    look = torch.compile(lambda y: (y * 2 if y.grad is None else y.grad + 10, y.retains_grad), backend="eager")
    for retain in (False, True, False):
        y = x * 1
        if retain:
            y.retain_grad()
            y.sum().backward()
        got, retains = look(y)
        assert (got.item(), retains) == ((11, True) if retain else (2, False))
