"""torch.export.export: Dynamo's capture of a module as one graph, its state made inputs."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import tocha
from tocha._dynamo.eval_frame import compile_callable
from tocha._dynamo.exc import UserError
from tocha._dynamo.recorder import set_grad_mode
from tocha.export.dims import Dim, varying
from tocha.export.program import CallSpec, ExportedProgram, ShapeRule
from tocha.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from tocha.fx import Graph, GraphModule, Node
from tocha.fx.experimental.proxy_tensor import record
from tocha.nn import Module
from tocha.tensor import Tensor
from tocha.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

#: Non-empty while something is exported: torch.compiler.is_exporting() asks.
exporting_now: list[bool] = []


def export(
    mod: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:  # fmt: skip
    """The computation of `mod(*args, **kwargs)` as an ExportedProgram. `dynamic_shapes` names the sizes that may vary, by argument.

    torch._dynamo.exc.Unsupported, naming the place, where the module can't be one graph; UserError for sizes that can't vary as asked.
    With fixed sizes the graph is of aten operators, else of torch functions. `mod` is left as it was (torch docs: torch.export.export).
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if preserve_module_call_signature:
        raise UserError("export: preserve_module_call_signature: graphs are flat here, submodules' calls leave no trace")
    call = _Call(mod, args, dict(kwargs or {}), dynamic_shapes)
    rng = tocha.get_rng_state()
    exporting_now.append(True)
    try:
        return call.program()
    finally:
        exporting_now.pop()
        tocha.set_rng_state(rng)


class _Call:
    """One export. The module is copied, and the copy run once; inputs too."""

    def __init__(self, mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> None:
        self.mod, self.copy, self.examples = mod, copy.deepcopy(mod), (args, kwargs)
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.fresh = [_fresh(x) for x in self.leaves]
        self.names = _input_names(mod, args, kwargs)
        self.dims = [
            varying(s, x.dim()) if isinstance(x, Tensor) else {}
            for x, s in zip(self.leaves, self._shapes(dynamic_shapes), strict=True)
        ]
        self.found: list[tuple[GraphModule, list[Any], Any]] = []

    def _shapes(self, given: Any) -> list[Any]:
        """The spec of each leaf."""
        args, kwargs = self.examples
        if given is None:
            return [None] * len(self.leaves)
        bound = _bound(self.mod, args, kwargs)
        if isinstance(given, dict):
            if set(given) != set(bound):
                raise UserError(
                    "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                    f"{list(bound)} of `inputs`, but here they are {list(given)}. Alternatively, you could also ignore arg names entirely "
                    "and specify `dynamic_shapes` as a list/tuple matching `inputs`."
                )
            given = [given[name] for name in bound]
        if len(given) != len(bound):
            raise UserError(f"`dynamic_shapes` has {len(given)} entries for {len(bound)} arguments: {list(bound)}")
        return [s for value, spec in zip(bound.values(), given, strict=True) for s in _per_leaf(value, spec)]

    def backend(self, gm: GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
        """Keeps the graph, and what it returned."""
        outs: list[Any] = []
        self.found.append((gm, list(inputs), outs))

        def run(*tensors: Any) -> Any:
            got = gm.forward(*tensors)
            outs[:] = got
            return got

        return run

    def program(self) -> ExportedProgram:
        for x, dims in zip(self.fresh, self.dims, strict=True):
            if dims:
                tocha._dynamo.mark_dynamic(x, list(dims))
        args, kwargs = tree_unflatten(self.fresh, self.spec)
        function = compile_callable(self.copy, self.backend, {}, True, None)
        result = function(*args, **kwargs)
        out_leaves, out_spec = tree_flatten(result)
        if len(self.found) > 1:
            raise UserError("export: the module was captured in several graphs")
        if program_of := getattr(function, "_dynamo_program", None):
            self._check_sizes(program_of)
        lifted = self._lift(out_leaves)
        return self._finish(*lifted, CallSpec(self.spec, out_spec))

    def _check_sizes(self, program: Any) -> None:
        """What the program decided on sizes that may vary must leave them free."""
        asked = [(n, d) for n, dims in zip(self.names, self.dims, strict=True) for d in dims]
        if not asked:
            return
        segment = next(iter(program.segments.values()))[0]
        words = segment.prologue.words
        decided = [w for w in words if w.endswith((" is True", " is False")) and ": is " not in w]
        fixed = [w for w in words if "is a Tensor of shape" in w]
        varies = sum("has a size" in w for w in words)
        if (
            decided
            or varies < len({id(x) * 99 + d for x, dims in zip(self.leaves, self.dims, strict=True) for d in dims})
            or (fixed and not varies)
        ):
            why = "; ".join(decided or fixed or ["they are fixed by what is done with them"])
            raise UserError(f"Constraints violated: sizes that `dynamic_shapes` lets vary are decided on: {why}. Give them Dim.STATIC, or "
                            "change what the module asks of them")  # fmt: skip

    def _lift(self, out_leaves: list[Any]) -> tuple[GraphModule, list[InputSpec], list[OutputSpec], dict[str, Any]]:
        """The graph with all state and leaves as inputs and all leaves of the result as outputs."""
        gm, inputs, outs = self.found[0] if self.found else (GraphModule({}, _empty()), [], [])
        graph, specs, constants = Graph(), [], {}
        of_tensor: dict[int, Node] = {}

        def placeholder(name: str, value: Any) -> Node:
            node = graph.placeholder(name)
            if isinstance(value, Tensor):
                of_tensor.setdefault(id(value), node)
            return node

        hidden = _hidden_buffers(self.copy)
        for name, value in self.copy.named_parameters():
            node = placeholder(f"p_{name.replace('.', '_')}", value)
            specs.append(InputSpec(InputKind.PARAMETER, TensorArgument(node.name), name))
        for name, value in self.copy.named_buffers():
            node = placeholder(f"b_{name.replace('.', '_')}", value)
            specs.append(InputSpec(InputKind.BUFFER, TensorArgument(node.name), name, name not in hidden))
        for name in hidden:
            constants[name] = dict(self.mod.named_buffers())[name]
        known = {*of_tensor, *map(id, self.fresh)}
        for value in inputs:
            if id(value) not in known:
                name = f"lifted_tensor_{len(constants)}"
                constants[name] = value
                specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(placeholder(f"c_{name}", value).name), name))
        for wish, leaf in zip(self.names, self.fresh, strict=True):
            node = placeholder(wish, leaf)
            arg: Any = TensorArgument(node.name) if isinstance(leaf, Tensor) else ConstantArgument(node.name, leaf)
            specs.append(InputSpec(InputKind.USER_INPUT, arg))
        copies: dict[Node, Node] = {}
        given = iter(inputs)
        returned: Any = ()
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                copies[node] = of_tensor[id(next(given))]
            elif node.op == "output":
                returned = node.args[0]
            else:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        for value, node in zip(outs, returned, strict=True):
            of_tensor.setdefault(id(value), copies[node])
        for leaf in out_leaves:
            if isinstance(leaf, Tensor) and id(leaf) not in of_tensor:
                raise UserError("export: a tensor that the graph doesn't make is returned")
        flat = tuple([of_tensor[id(x)] if isinstance(x, Tensor) else x for x in out_leaves])
        graph.output(flat)
        out_specs = [
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(x.name) if isinstance(x, Node) else ConstantArgument("", x))
            for x in flat
        ]
        return GraphModule({**vars(gm)["_buffers"], **vars(gm)["_modules"]}, graph), specs, out_specs, constants

    def _finish(
        self, module: GraphModule, specs: list[InputSpec], out_specs: list[OutputSpec], constants: dict[str, Any], call_spec: CallSpec
    ) -> ExportedProgram:  # fmt: skip
        rules = [self._rule(*one) for one in zip(self.names, self.leaves, self.dims, strict=True)]
        state = dict(self.mod.state_dict(keep_vars=True))
        program = ExportedProgram(
            module, ExportGraphSignature(specs, out_specs), state, constants, call_spec, rules, self.examples, False
        )
        modes = any(n.target is set_grad_mode for n in module.graph.nodes)
        if any(self.dims) or modes:
            return program
        try:
            program = program.run_decompositions()
        except RuntimeError:  # what is no operator of its own stays as it was captured
            return program
        names = [n.name if isinstance(n, Node) else None for n in program.graph.output_node().args[0]]
        program.graph_signature.output_specs = [
            s if name is None else OutputSpec(s.kind, TensorArgument(name)) for s, name in zip(out_specs, names, strict=True)
        ]
        return program

    @staticmethod
    def _rule(name: str, leaf: Any, dims: dict[int, Any]) -> ShapeRule | None:
        if not isinstance(leaf, Tensor):
            return None
        bounds = {
            d: (v.__name__, max(2, v.min), v.max) if isinstance(v, Dim) else (f"{name}_{d}", 2, None) for d, v in dims.items()
        }
        return ShapeRule(tuple([None if d in dims else n for d, n in enumerate(leaf.shape)]), leaf.dtype, bounds)


def aten_graph(module: GraphModule, inputs: list[Any], table: dict[Any, Callable[..., Any]]) -> GraphModule:
    """A lifted graph as one of aten calls, for inputs like these."""
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    return record(module.forward, inputs, names, table, "GraphModule")


def _fresh(x: Any) -> Any:
    """A tensor that may be written to instead of x."""
    if not isinstance(x, Tensor):
        return x
    made = x.detach().clone().requires_grad_(x.requires_grad)
    return made.view_as(made) if x.requires_grad and not x.is_leaf else made


def _empty() -> Graph:
    graph = Graph()
    graph.output(())
    return graph


def _hidden_buffers(mod: Module) -> list[str]:
    """Buffers that aren't in the state dict."""
    kept = set(mod.state_dict())
    return [name for name, _ in mod.named_buffers() if name not in kept]


def _bound(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter, in the order of leaves."""
    parameters = [p for p in inspect.signature(mod.forward).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    named: dict[str, Any] = {}
    for i, value in enumerate(args):
        if i < len(parameters) and parameters[i].kind is not inspect.Parameter.VAR_POSITIONAL:
            named[parameters[i].name] = value
        else:
            rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
            named[rest] = (*named.get(rest, ()), value)
    return {**named, **kwargs}


def _input_names(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf: its parameter, and its path in it."""
    found = []
    for name, value in _bound(mod, args, kwargs).items():
        found += [re.sub(r"\W+", "_", name + keystr(path)).strip("_") for path, _ in tree_flatten_with_path(value)[0]]
    return found


def _per_leaf(value: Any, spec: Any) -> list[Any]:
    """The spec of each leaf of an argument."""
    if spec is None:
        return [None] * len(tree_flatten(value)[0])
    if isinstance(value, Tensor) or not isinstance(value, (tuple, list, dict)):
        return [spec]
    if isinstance(value, dict):
        return [s for key, item in value.items() for s in _per_leaf(item, spec[key])]
    return [s for item, inner in zip(value, spec, strict=True) for s in _per_leaf(item, inner)]
