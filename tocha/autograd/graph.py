"""The tape: nodes that remember how to turn the gradient of an operator's outputs into those of its inputs.

Every node has `order`, a number that falls with time. A node is always made after the nodes of its inputs, so walking
nodes by rising `order` is a topological order and the engine needs no dependency counts. Mutations draw from the same
counter: a tensor saved by a node was changed since if its mutation is younger (has the lower number).
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tocha.autograd.mode import state
from tocha.autograd.names import shown

if TYPE_CHECKING:
    from tocha.tensor import Tensor

next_order: Callable[[], int] = itertools.count(0, -1).__next__

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Node:
    """A step of the tape. `edges[i]` leads to the node that made input i, or is the leaf tensor that input i was (None:
    no gradient wanted).

    `output_numbers[i]` says which output of that node it was; None stands for all zeros (the usual case).
    """

    __slots__ = (
        "__dict__", "__weakref__", "edges", "hooks", "order", "output_numbers", "output_versions", "outputs",
    )  # fmt: skip
    edges: tuple[Node | Tensor | None, ...]
    output_numbers: tuple[int, ...] | None
    outputs: int
    order: int
    output_versions: dict[int, tuple[Version, int]] | None  # of each output: its counter, and the stamp it was saved at
    hooks: Hooks | None

    def __init__(
        self, edges: tuple[Node | Tensor | None, ...], output_numbers: tuple[int, ...] | None = None, outputs: int = 1
    ) -> None:
        self.edges = edges
        self.output_numbers = output_numbers
        self.outputs = outputs
        self.order = next_order()
        self.output_versions = None
        self.hooks = None

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        """Gradients of the inputs, one for each edge. `grad`: a tensor, or a list when there are several outputs."""
        raise NotImplementedError

    def apply_for(self, grad: Any, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
        """The same where only some edges' gradients are `wanted`: others may be left out."""
        return self.apply(grad)

    def release(self) -> None:
        """Drop saved tensors; a later `apply` must raise."""

    def name(self) -> str:
        return type(shown(self)).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """(node, output number) for each input, as torch spells it."""
        numbers = self.output_numbers or (0,) * len(self.edges)
        nodes = (None if e is None else shown(e) if isinstance(e, Node) else accumulator(e) for e in self.edges)
        return tuple(zip(nodes, numbers, strict=True))

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for the user's own notes."""
        return self.__dict__.setdefault("_metadata", {})

    def _sequence_nr(self) -> int:
        return -self.order

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(grad_inputs, grad_outputs)` after the node; it may return new grad_inputs."""
        return _hooks_of(self).add("post", hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(grad_outputs)` before the node; it may return new grad_outputs."""
        return _hooks_of(self).add("pre", hook)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class Hooks:
    """Hooks around a node: `tensor[k]` on the gradient of output k, then `pre`, the node, `post`; `retain` last of all
    before the node (a retained gradient is what hooks left)."""

    __slots__ = ("__weakref__", "post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.pre: dict[int, Callable[..., Any]] = {}
        self.post: dict[int, Callable[..., Any]] = {}
        self.tensor: dict[int, dict[int, Callable[..., Any]]] = {}
        self.retain: dict[int, weakref.ref[Tensor]] = {}

    def add(self, kind: str, hook: Callable[..., Any], output: int | None = None) -> RemovableHandle:
        table = getattr(self, kind) if output is None else self.tensor.setdefault(output, {})
        return RemovableHandle(table, hook)


def _hooks_of(node: Node) -> Hooks:
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks


class HookTable(dict[int, Callable[..., Any]]):
    """A dictionary of hooks that can be referred to weakly."""


class RemovableHandle:
    """Returned by every register_*_hook; `remove()` takes the hook off; a context manager too.

    Made from the table that holds the hooks (torch docs: torch.utils.hooks.RemovableHandle): a given `hook` is entered
    under the handle's `id`, which is also taken out of the tables `extra_dict` (one or a list).
    """

    next_id = 0

    def __init__(self, hooks_dict: dict[int, Any], hook: Any = None, *, extra_dict: Any = None) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = () if extra_dict is None else (extra_dict,) if isinstance(extra_dict, dict) else extra_dict
        self._tables: tuple[dict[int, Any], ...] = (hooks_dict, *extra)
        if hook is not None:
            hooks_dict[self.id] = hook

    def remove(self) -> None:
        """Take the hook off; a second call does nothing."""
        for table in self._tables:
            table.pop(self.id, None)
        self._tables = ()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class AccumulateGrad(Node):
    """The end of the tape at a leaf, as an object for those who ask (`next_functions`). The tape itself has the leaf
    tensor as its edge; this node is made on demand and carries hooks."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        super().__init__((), None)
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Nothing to warn of: gradients are accumulated where they are computed."""


class GradientEdge(NamedTuple):
    """A place on the tape, given to `grad` and `backward` in place of a tensor: a node and one of its outputs. `ownership_token`
    keeps the node's graph alive."""

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of `tensor` flows (torch docs: torch.autograd.graph.get_gradient_edge)."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(tensor.grad_fn or accumulator(tensor), tensor.output_nr)


class Version:
    """The mutation count shared by a tensor and its views, with who changed it last."""

    value = 0
    stamp = 1  # younger than nothing: every node's order is <= 0
    reshaped = False  # whether one of the tensors took another geometry in place: then views' chains are to be checked
    log: deque[tuple[int, str, Any, int]] | None = None

    def bump(self, operator: str) -> None:
        """Count one in-place change by `operator`, remembering the user's line."""
        self.value += 1
        self.stamp = stamp = next_order()
        log = self.log
        if log is None:
            self.log = log = deque(maxlen=16)
        log.append((stamp, operator, *_user_line(sys._getframe(1))))

    def changed_since(self, order: int) -> bool:
        """Whether a change is younger than the node numbered `order`."""
        return self.stamp < order

    def describe(self, order: int) -> tuple[int, str]:
        """The version the node numbered `order` saw (as far as the log goes), and the first change after it in words."""
        later = [entry for entry in self.log or () if entry[0] < order]
        if not later:
            return self.value, "an operation no longer in the log"
        _, operator, code, lasti = later[0]
        if code is None:
            return self.value - len(later), f"{operator}()"
        return self.value - len(later), f"{operator}() at {code.co_filename}:{_line(code, lasti)}"


class Uncounted(Version):
    """The one counter of all tensors made in inference mode, which count nothing; it also marks them as such."""

    def bump(self, operator: str) -> None:
        refuse_outside_inference(operator)


class Loose(Uncounted):
    """... of what `.data` and `detach()` give of them outside the mode, which may be changed."""

    def bump(self, operator: str) -> None:
        """Nothing is counted."""


UNCOUNTED = Uncounted()
LOOSE = Loose()
MARKS = frozenset((Uncounted, Loose))


def refuse_outside_inference(operator: str) -> None:
    """RuntimeError outside inference mode: `operator` is to change a tensor that was made in it."""
    if not state.inference:
        raise RuntimeError(
            f"{operator}: Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal "
            "tensor before doing inplace update."
        )


def marked(args: Iterable[Any]) -> bool:
    """Whether some operand was made in inference mode."""
    for a in args:
        if getattr(a, "_vc", None).__class__ in MARKS:
            return True
    return False


def left_out(args: Iterable[Any]) -> bool:
    """Whether a call goes unrecorded: all its operands are tensors made in inference mode."""
    return not state.lenient and all(a is None or isinstance(getattr(a, "_vc", None), Uncounted) for a in args)


def check_saved(values: Iterable[Any]) -> None:
    """RuntimeError if a tensor that the tape is about to save was made in inference mode."""
    if state.lenient:
        return
    for v in values:
        if isinstance(getattr(v, "_vc", None), Uncounted):
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
                "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
                "`torch.no_grad()` instead of `torch.inference_mode()`."
            )
        if v.__class__ is tuple:
            check_saved(v)


class _Inside(dict[str, bool]):
    """Whether a file name is one of this package's."""

    def __missing__(self, name: str) -> bool:
        self[name] = inside = name.startswith(_PACKAGE_FOLDER)
        return inside


_INSIDE = _Inside()


def _user_line(frame: Any) -> tuple[Any, int]:
    """Code and instruction of the innermost frame that isn't this package's."""
    while frame is not None:
        code = frame.f_code
        if not _INSIDE[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return None, -1


def bump_all(tensors: Iterable[Tensor], operator: str) -> None:
    """Count one in-place change of each tensor, made by one call of `operator`."""
    stamp = next_order()
    entry = (stamp, operator, *_user_line(sys._getframe(1)))
    for t in tensors:
        version = t._vc
        if version is None:
            version = version_of(t)
        if version.__class__ is not Version:
            version.bump(operator)
            continue
        version.value += 1
        version.stamp = stamp
        log = version.log
        if log is None:
            version.log = log = deque(maxlen=16)
        log.append(entry)


def _line(code: Any, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return int(line)
    return int(code.co_firstlineno)


def version_of(tensor: Tensor) -> Version:
    """The tensor's version counter, made when first wanted (most tensors are never changed)."""
    version = tensor._vc
    if version is None:
        version = tensor._vc = Version()
        node = tensor._node
        if node is not None:  # a node that saved this output checks the same counter
            if node.output_versions is None:
                node.output_versions = {}
            node.output_versions[tensor._nr] = (version, node.order)
    return version


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The leaf's AccumulateGrad node: one as long as someone holds it or a hook is on it."""
    from tocha.tensor import extra_of

    extra = extra_of(leaf)
    node: AccumulateGrad | None = extra.accumulate() if extra.accumulate is not None else None
    if node is None:
        node = AccumulateGrad(leaf)
        extra.accumulate = weakref.ref(node)
    return node


def check_unchanged(version: Version | None, node: Node, tensor: Any, saved_at: int | None = None) -> None:
    """Raise if a saved tensor was changed in place after `node` saved it: when it was made, or at stamp `saved_at`."""
    order = node.order if saved_at is None else saved_at
    if version is not None and version.stamp < order:
        expected, change = version.describe(order)
        kind = f"torch.{tensor.dtype.name} {list(tensor.shape)}" if hasattr(tensor, "shape") else "tensor"
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{kind}], saved by {node.name()}, is at version {version.value}; expected version {expected} instead. "
            f"It was changed by {change}. Hint: write that change out of place (y = x + 1 in place of x += 1), or "
            "clone() the tensor before it; torch.autograd.set_detect_anomaly(True) shows the forward line that saved it."
        )


_SAVED_NAMES = (
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
)


def __getattr__(name: str) -> Any:
    """torch.autograd.graph also has the saved-tensor hooks, which build on tensors (tocha.autograd.saved)."""
    if name in _SAVED_NAMES:
        from tocha.autograd import saved

        return getattr(saved, name)
    raise AttributeError(f"module 'torch.autograd.graph' has no attribute {name!r}")
