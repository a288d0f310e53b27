"""ExportedProgram: a graph with its state, and what it asks of its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tocha.export.signature import ConstantArgument, ExportGraphSignature, InputKind
from tocha.fx import Graph, GraphModule
from tocha.nn import Module, Parameter
from tocha.tensor import Tensor
from tocha.utils._pytree import TreeSpec, tree_flatten, tree_unflatten


@dataclasses.dataclass
class CallSpec:
    """The containers of arguments and results."""

    in_spec: TreeSpec
    out_spec: TreeSpec


@dataclasses.dataclass
class ShapeRule:
    """What a tensor input must be: sizes (None: varies, within `bounds` by dimension), dtype, and sizes that must agree by name."""

    shape: tuple[int | None, ...]
    dtype: Any
    bounds: dict[int, tuple[str, int, int | None]]


class ExportedProgram:
    """`module()` runs it. The graph takes parameters, buffers, constants and the arguments' leaves, and returns the results' leaves."""

    def __init__(
        self, graph_module: GraphModule, graph_signature: ExportGraphSignature, state_dict: dict[str, Any], constants: dict[str, Any],
        call_spec: CallSpec, rules: list[ShapeRule | None], example_inputs: Any, aten: bool,
    ) -> None:  # fmt: skip
        self.graph_module, self.graph_signature, self.state_dict, self.constants = (
            graph_module,
            graph_signature,
            state_dict,
            constants,
        )
        self.call_spec, self.rules, self.example_inputs, self.aten = call_spec, rules, example_inputs, aten

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.graph_module.graph

    @property
    def range_constraints(self) -> dict[str, tuple[int, int | None]]:
        """Least and greatest sizes, by the dimension's name."""
        return {name: (low, high) for r in self.rules if r is not None for name, low, high in r.bounds.values()}

    def parameters(self) -> Iterator[Parameter]:
        """The parameters, in the graph's order."""
        for _, p in self.named_parameters():
            yield p

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters by name."""
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers, in the graph's order."""
        for _, b in self.named_buffers():
            yield b

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers by name."""
        hidden = self.graph_signature.non_persistent_buffers
        for name in self.graph_signature.buffers:
            yield name, (self.constants if name in hidden else self.state_dict)[name]

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """Tensors that are neither parameters nor buffers in the state dict."""
        return self.constants

    def module(self) -> Module:
        """A module that checks its inputs and runs the graph; its parameters and buffers are the program's."""
        return _Unlifted(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def run_decompositions(self, decomp_table: Mapping[Any, Callable[..., Any]] | None = None) -> ExportedProgram:
        """The program with a graph of aten operators, those in the table replaced by what their functions call."""
        from tocha.export.capture import aten_graph

        if any(None in r.shape for r in self.rules if r is not None):
            raise RuntimeError(
                "run_decompositions: a program whose sizes vary stays as it was captured; export it with fixed sizes"
            )
        state = self.state()
        leaves, _ = tree_flatten(self.example_inputs)
        module = aten_graph(self.graph_module, [*state.values(), *leaves], dict(decomp_table or {}))
        return ExportedProgram(
            module, self.graph_signature, self.state_dict, self.constants, self.call_spec, self.rules, self.example_inputs, True
        )

    def state(self) -> dict[str, Any]:
        """The graph's inputs that are no arguments, by the node's name."""
        specs = [s for s in self.graph_signature.input_specs if s.kind is not InputKind.USER_INPUT]
        known = {**self.constants, **self.state_dict}
        return {s.arg.name: known[str(s.target)] for s in specs}

    def __str__(self) -> str:
        code = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {code}\nGraph signature:\n    {signature}\nRange constraints: {self.range_constraints}\n"

    __repr__ = __str__


class _Unlifted(Module):
    """An exported program as a module."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.__dict__["_program"] = program
        hidden = program.graph_signature.non_persistent_buffers
        for name, value in (*program.named_parameters(), *program.named_buffers()):
            *path, last = name.split(".")
            owner: Module = self
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, Module())
                owner = owner._modules[part]
            if isinstance(value, Parameter):
                owner.register_parameter(last, value)
            else:
                owner.register_buffer(last, value, persistent=name not in hidden)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph; AssertionError for inputs that it isn't for."""
        program: ExportedProgram = self.__dict__["_program"]
        spec = program.call_spec.in_spec
        leaves, found = tree_flatten((args, _ordered(kwargs, program)))
        if found != spec:
            raise ValueError(f"the exported program takes arguments like {spec}, got {found}")
        check_inputs(program, leaves)
        own = dict(self.named_parameters(remove_duplicate=False)) | dict(self.named_buffers(remove_duplicate=False))
        specs = [s for s in program.graph_signature.input_specs if s.kind is not InputKind.USER_INPUT]
        known = {**program.constants, **own}
        state = [known[str(s.target)] for s in specs]
        return tree_unflatten(program.graph_module(*state, *leaves), program.call_spec.out_spec)

    def train(self, mode: bool = True) -> Any:
        """RuntimeError: what depends on the mode is decided."""
        raise NotImplementedError(
            "Calling train() or eval() is not supported for exported modules: export the module in the mode wanted"
        )

    def eval(self) -> Any:
        """As train()."""
        return self.train(False)


def _ordered(kwargs: dict[str, Any], program: ExportedProgram) -> dict[str, Any]:
    """Keyword arguments in the order of the example's."""
    names = list(program.example_inputs[1])
    return {n: kwargs[n] for n in names if n in kwargs} | kwargs


def check_inputs(program: ExportedProgram, leaves: list[Any]) -> None:
    """AssertionError unless the arguments are such as the graph was made for."""
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    sizes: dict[str, int] = {}
    for leaf, spec, rule in zip(leaves, specs, program.rules, strict=True):
        name = spec.arg.name
        if isinstance(spec.arg, ConstantArgument):
            if type(leaf) is not type(spec.arg.value) or leaf != spec.arg.value:
                raise AssertionError(f"Guard failed: {name} == {spec.arg.value!r}, got {leaf!r}")
            continue
        assert rule is not None
        if not isinstance(leaf, Tensor) or leaf.dim() != len(rule.shape) or leaf.dtype != rule.dtype:
            raise AssertionError(
                f"Guard failed: {name} is a tensor of {len(rule.shape)} dimensions of {rule.dtype}, got {_words(leaf)}"
            )
        for d, (n, want) in enumerate(zip(leaf.shape, rule.shape, strict=True)):
            if want is not None and n != want:
                raise AssertionError(f"Guard failed: {name}.size()[{d}] == {want}, got {n}")
            if want is None:
                label, low, high = rule.bounds[d]
                if n < low or (high is not None and n > high):
                    raise AssertionError(
                        f"Guard failed: {low} <= {name}.size()[{d}] <= {'inf' if high is None else high}, got {n}"
                    )
                if sizes.setdefault(label, n) != n:
                    raise AssertionError(f"Guard failed: {name}.size()[{d}] == {label} == {sizes[label]}, got {n}")
        if rule.bounds and not leaf.is_contiguous():
            raise AssertionError(f"Guard failed: {name} is contiguous")


def _words(value: Any) -> str:
    return f"{list(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
