"""torch.export.save and load: a program as a zip file of JSON (the graph) and tensors. Loading runs no code of the file."""

from __future__ import annotations

import io
import json
import operator
import os
import zipfile
from typing import IO, Any

import tocha
from tocha import dtypes
from tocha.device import Size, device, layout, memory_format
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
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_unflatten

_VERSION = 1
_OPERATOR_NAMES = frozenset(n for n in operator.__all__ if not n.startswith(("attrgetter", "itemgetter", "methodcaller", "call")))


def save(ep: ExportedProgram, f: str | os.PathLike[str] | IO[bytes], *, extra_files: dict[str, Any] | None = None) -> None:
    """Write a program, with further files of text or bytes by name. TypeError for a value in the graph that can't be written."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    leaves, _ = tree_flatten(ep.example_inputs)
    program = {
        "version": _VERSION,
        "aten": ep.aten,
        "nodes": [_node(n) for n in ep.graph.nodes],
        "inputs": [[s.kind.name, _argument(s.arg), s.target, s.persistent] for s in ep.graph_signature.input_specs],
        "outputs": [[s.kind.name, _argument(s.arg), s.target] for s in ep.graph_signature.output_specs],
        "in": _dump(ep.example_inputs, list(range(len(leaves)))),
        "out": _dump_spec(ep.call_spec.out_spec),
        "rules": [None if r is None else [_dump(list(r.shape)), _dump(r.dtype), sorted(r.bounds.items())] for r in ep.rules],
        "examples": [None if isinstance(x, Tensor) else _dump(x) for x in leaves],
    }
    graph_state = {n.target: getattr(ep.graph_module, n.target) for n in ep.graph.nodes if n.op == "get_attr"}
    tensors = {
        "state": dict(ep.state_dict),
        "constants": dict(ep.constants),
        "graph": graph_state,
        "examples": {str(i): x for i, x in enumerate(leaves) if isinstance(x, Tensor)},
    }
    packed = io.BytesIO()
    tocha.save(tensors, packed)
    with zipfile.ZipFile(f, "w") as archive:
        archive.writestr("program.json", json.dumps(program))
        archive.writestr("tensors.pt", packed.getvalue())
        for name, content in (extra_files or {}).items():
            archive.writestr(f"extra_files/{name}", content)


def load(f: str | os.PathLike[str] | IO[bytes], *, extra_files: dict[str, Any] | None = None) -> ExportedProgram:
    """Read a program; the values of `extra_files` are replaced by the files of those names. RuntimeError if it isn't one."""
    try:
        with zipfile.ZipFile(f) as archive:
            program = json.loads(archive.read("program.json"))
            tensors = tocha.load(io.BytesIO(archive.read("tensors.pt")), weights_only=True)
            for name in extra_files or {}:
                assert extra_files is not None
                extra_files[name] = archive.read(f"extra_files/{name}").decode()
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise RuntimeError(f"torch.export.load: not a program that tocha saved: {error}") from error
    if program["version"] != _VERSION:
        raise RuntimeError(f"torch.export.load: the file's version is {program['version']}, this is for version {_VERSION}")
    graph = Graph()
    nodes: dict[str, Node] = {}
    for op, name, target, args, kwargs in program["nodes"]:
        found = _target(target) if op == "call_function" else target
        nodes[name] = graph.create_node(op, found, _load(args, nodes), _load(kwargs, nodes), name)
    leaves = [_load(e, nodes) for e in program["examples"]]
    for i, t in tensors["examples"].items():
        leaves[int(i)] = t
    examples = _load(program["in"], leaves)
    signature = ExportGraphSignature(
        [InputSpec(InputKind[k], _load_argument(a), t, p) for k, a, t, p in program["inputs"]],
        [OutputSpec(OutputKind[k], _load_argument(a), t) for k, a, t in program["outputs"]],
    )
    rules = [
        None if r is None else ShapeRule(tuple(_load(r[0], nodes)), _load(r[1], nodes), {d: tuple(b) for d, b in r[2]})
        for r in program["rules"]
    ]
    out = _load(program["out"], list(range(len(signature.output_specs))))
    spec = CallSpec(tree_flatten(examples)[1], tree_flatten(out)[1])
    module = GraphModule(tensors["graph"], graph)
    return ExportedProgram(module, signature, tensors["state"], tensors["constants"], spec, rules, examples, program["aten"])


# ---- values: plain JSON for None, bool, int, float, str; [kind, …] for the rest


def _dump(a: Any, leaves: list[int] | None = None) -> Any:
    """A value as JSON. With `leaves`, leaves are numbers, taken from it in order."""
    if type(a) in (list, tuple, Size):
        return [type(a).__name__, [_dump(x, leaves) for x in a]]
    if isinstance(a, dict):
        return ["dict", [[_dump(k), _dump(v, leaves)] for k, v in a.items()]]
    if leaves is not None:
        return ["leaf", leaves.pop(0)]
    if a is None or type(a) in (bool, int, str):
        return a
    if type(a) is float:
        return ["float", a.hex()]
    if type(a) is complex:
        return ["complex", [a.real.hex(), a.imag.hex()]]
    if isinstance(a, Node):
        return ["node", a.name]
    if isinstance(a, slice):
        return ["slice", [_dump(a.start), _dump(a.stop), _dump(a.step)]]
    if a is ...:
        return ["ellipsis", None]
    for kind in (dtypes.dtype, device, layout, memory_format):
        if isinstance(a, kind):
            return [kind.__name__, str(a).removeprefix("torch.")]
    raise TypeError(f"torch.export.save: a {type(a).__name__} in the graph can't be written")


def _dump_spec(spec: Any) -> Any:
    count = spec.num_leaves
    return _dump(tree_unflatten([_Leaf] * count, spec), list(range(count)))


class _Leaf:
    """Stands for a leaf."""


def _load(a: Any, known: Any) -> Any:
    """A value from JSON; `known` has the nodes by name, or the leaves by number."""
    if not isinstance(a, list):
        return a
    kind, held = a
    if kind in ("list", "tuple", "Size"):
        return {"list": list, "tuple": tuple, "Size": Size}[kind]([_load(x, known) for x in held])
    if kind == "dict":
        return {_load(k, known): _load(v, known) for k, v in held}
    if kind in ("node", "leaf"):
        return known[held]
    if kind == "float":
        return float.fromhex(held)
    if kind == "complex":
        return complex(*map(float.fromhex, held))
    if kind == "slice":
        return slice(*[_load(x, known) for x in held])
    if kind == "ellipsis":
        return ...
    if kind == "device":
        return device(held)
    expected = {"dtype": dtypes.dtype, "layout": layout, "memory_format": memory_format}[kind]
    found = getattr(tocha, held)
    if not isinstance(found, expected):
        raise RuntimeError(f"torch.export.load: {held} is no {kind}")
    return found


def _argument(arg: Any) -> Any:
    return [arg.name, _dump(arg.value)] if isinstance(arg, ConstantArgument) else [arg.name]


def _load_argument(held: list[Any]) -> Any:
    return TensorArgument(held[0]) if len(held) == 1 else ConstantArgument(held[0], _load(held[1], {}))


def _node(n: Node) -> list[Any]:
    target = n.target if isinstance(n.target, str) else _path(n.target)
    return [n.op, n.name, target, _dump(n.args), _dump(dict(n.kwargs))]


def _path(target: Any) -> str:
    """Where a function is found."""
    if hasattr(target, "overloadpacket"):
        return f"ops.{target.namespace}.{target.__name__}"
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target and name in _OPERATOR_NAMES:
        return f"operator.{name}"
    for place in ("", "nn.functional.", "linalg.", "fft.", "special."):
        if _found(f"{place}{name}") is target:
            return f"{place}{name}"
    raise TypeError(f"torch.export.save: {name or target} in the graph is no public function of torch, so it can't be written")


def _found(path: str) -> Any:
    found: Any = tocha
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _target(path: str) -> Any:
    """The function that `_path` named: an operator or a public function of tensors, nothing else."""
    from tocha._dynamo.calls import torch_functions

    head, _, rest = path.partition(".")
    if head == "operator" and rest in _OPERATOR_NAMES:
        return getattr(operator, rest)
    if head == "ops":
        return _found(path)
    found = _found(path)
    if id(found) not in torch_functions():
        raise RuntimeError(f"torch.export.load: {path} is no function of tensors")
    return found
