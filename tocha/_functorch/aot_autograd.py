"""torch._functorch.aot_autograd: AOTAutograd for other people's backends. Graphs given to compilers are of primitives, and functional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha.aot import runtime
from tocha.aot.module import as_module
from tocha.fx import Graph
from tocha.nn import Module
from tocha.tensor import Tensor, wrap
from tocha.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["aot_function", "aot_module", "aot_module_simplified", "make_boxed_compiler", "make_boxed_func"]

Compiler = Callable[[Any, Sequence[Any]], Callable[..., Any]]


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as a function of one list of arguments, which says of itself that it is one."""

    def boxed(args: Sequence[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose functions are boxed."""
    return lambda gm, inputs: make_boxed_func(compiler(gm, inputs))


def aot_function(
    fn: Callable[..., Any], fw_compiler: Compiler, bw_compiler: Compiler | None = None, *, inference_compiler: Compiler | None = None,
    **unused: Any,
) -> Callable[..., Any]:  # fmt: skip
    """`fn` traced at its first call, its forward and backward compiled by these compilers (module, example inputs) -> callable."""
    by_part = {"forward": fw_compiler, "backward": bw_compiler or fw_compiler, "inference": inference_compiler or fw_compiler}
    made: list[tuple[Any, list[Any]]] = []

    def compiler(graph: Graph) -> runtime.Run:
        module = as_module(graph)
        call = by_part[graph.meta["part"]](module, [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"])
        boxed = getattr(call, "_boxed_call", False)

        def on_arrays(arrays: list[Any]) -> list[Any]:
            tensors = [wrap(a) for a in arrays]
            return [None if t is None else t._a for t in (call(tensors) if boxed else call(*tensors))]

        return on_arrays

    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if not made:
            out_spec: list[Any] = []

            def flat(*given: Any) -> list[Any]:
                left = iter(given)
                here_args, here_kwargs = tree_unflatten([next(left) if isinstance(x, Tensor) else x for x in leaves], spec)
                outs, found = tree_flatten(fn(*here_args, **here_kwargs))
                out_spec[:] = [found]
                return outs

            made.append((runtime.compile(flat, tensors, compiler), out_spec))
        call, out_spec = made[0]
        return tree_unflatten(call(*tensors), out_spec[0])

    return compiled


def _of_state(mod: Module) -> tuple[dict[str, Any], Callable[..., Any]]:
    """A module's parameters and buffers, and it as a function of them and its arguments."""
    from tocha.func._modules import functional_call

    state = {**dict(mod.named_parameters()), **dict(mod.named_buffers())}

    def call(state: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return functional_call(mod, state, args, kwargs)

    return state, call


def aot_module(mod: Module, *args: Any, **options: Any) -> Callable[..., Any]:
    """`aot_function` of a module: its parameters and buffers are the graphs' first inputs."""
    state, function = _of_state(mod)
    compiled = aot_function(function, *args, **options)

    def call(*inputs: Any, **kwargs: Any) -> Any:
        return compiled(state, inputs, kwargs)

    return call


def aot_module_simplified(
    mod: Module, args: Sequence[Any], fw_compiler: Compiler, bw_compiler: Compiler | None = None, **options: Any
) -> Callable[..., Any]:
    """As `aot_module`, for a module whose arguments are tensors (what a backend of torch.compile is given)."""
    return aot_module(mod, fw_compiler, bw_compiler, **options)
