"""Activation checkpointing: keep only a block's inputs, run it again in backward (torch docs: torch.utils.checkpoint)."""

from __future__ import annotations

import contextlib
import enum
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tocha.autograd.function import Function
from tocha.autograd.mode import enable_grad, state
from tocha.autograd.saved import saved_tensors_hooks
from tocha.dispatch.interpret import TorchDispatchMode
from tocha.dispatch.overload import OpOverload
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_leaves, tree_map

DefaultDeviceType = None


class CheckpointError(RuntimeError):
    """Recomputation gave something else than the first run."""


def _tensors(args: Iterable[Any]) -> list[Tensor]:
    return [a for a in args if isinstance(a, Tensor)]


@contextlib.contextmanager
def _random_state(saved: Any) -> Iterator[None]:
    """Run with the random state the first run started from."""
    if saved is None:
        yield
        return
    from tocha import random

    now = random.get_rng_state()
    random.set_rng_state(saved)
    try:
        yield
    finally:
        random.set_rng_state(now)


def _rng(preserve: bool) -> Any:
    if not preserve:
        return None
    from tocha import random

    return random.get_rng_state()


class CheckpointFunction(Function):
    """The reentrant form: forward without a tape, backward runs it again with one."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        ctx.run_function, ctx.rng = run_function, _rng(preserve_rng_state)
        ctx.layout = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*_tensors(args))
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        from tocha.autograd.engine import backward

        if state.runs and state.runs[-1].targets is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing "
                "the `inputs` argument."
            )
        args = list(ctx.layout)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = t.detach().requires_grad_(t.requires_grad)
        with enable_grad(), _random_state(ctx.rng):
            outs = ctx.run_function(*args)
        outs = outs if isinstance(outs, tuple) else (outs,)
        pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


class _Slot:
    """Stands for one saved tensor between forward and recomputation."""

    __slots__ = ("__weakref__", "index", "shape")

    def __init__(self, index: int, shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape


class _Frame:
    """One checkpointed call: what to run again, and the tensors that gave back."""

    def __init__(self, run: Callable[[], Any], early_stop: bool) -> None:
        self.run, self.early_stop = run, early_stop
        self.slots: list[weakref.ref[_Slot]] = []
        self.recomputed: dict[int, Tensor] = {}
        self.done = False

    def pack(self, tensor: Tensor) -> _Slot:
        slot = _Slot(len(self.slots), tuple(tensor.shape))
        self.slots.append(weakref.ref(slot))
        return slot

    def unpack(self, slot: _Slot) -> Tensor:
        if not self.recomputed:
            self._recompute()
        if slot.index not in self.recomputed:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation: "
                f"{len(self.slots)} and then {len(self.recomputed)}"
            )
        tensor = self.recomputed.pop(slot.index)
        if tuple(tensor.shape) != slot.shape:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward "
                f"pass: tensor {slot.index} had shape {list(slot.shape)}, now {list(tensor.shape)}"
            )
        return tensor

    def _recompute(self) -> None:
        count = [0]

        def keep(tensor: Tensor) -> None:
            index = count[0]
            count[0] += 1
            if index < len(self.slots) and self.slots[index]() is not None:
                self.recomputed[index] = tensor.detach()
            if self.early_stop and count[0] == len(self.slots):
                raise _Stop

        def refuse(_: None) -> Tensor:
            raise CheckpointError("a checkpointed block was differentiated inside its own recomputation")

        with contextlib.suppress(_Stop), enable_grad(), saved_tensors_hooks(keep, refuse):
            self.run()


#: What `set_checkpoint_early_stop` says, the innermost last; None leaves it to checkpoint's own argument.
_early_stop: list[bool | None] = [None]


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, whether recomputation stops once all that is needed was recomputed."""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Inside, checkpoint's `debug`: mismatches always name the tensors here, so nothing changes."""
    yield


def noop_context_fn() -> tuple[Any, Any]:
    """The default `context_fn`: no context around the forward nor around the recomputation."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """Indices and random states of the GPUs that hold the tensors among `args`."""
    from tocha import cuda

    indices = sorted({a.get_device() for a in tree_leaves(args) if isinstance(a, Tensor) and a.is_cuda})
    return indices, [cuda.get_rng_state(i) for i in indices]


def set_device_states(devices: Iterable[int], states: Iterable[Any], *, device_type: str | None = None) -> None:
    """Set back what `get_device_states` returned."""
    from tocha import cuda

    for index, random_state in zip(devices, states, strict=True):
        cuda.set_rng_state(random_state, index)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors as leaves of their own with the same requires_grad; anything else as it is."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no input requires grad, so that nothing would be recomputed."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointPolicy(enum.Enum):
    """What a selective policy says about an operator's outputs. PREFER means what MUST does here."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


class SelectiveCheckpointContext:
    """What a policy function is given first."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


class _Keep(TorchDispatchMode):
    """Around the forward: keeps the outputs that the policy names."""

    def __init__(self, policy: Callable[..., Any], kept: dict[Any, list[Any]]) -> None:
        super().__init__()
        self.policy, self.kept = policy, kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if _saves(self.policy(SelectiveCheckpointContext(is_recompute=False), func, *args, **(kwargs or {}))):
            self.kept.setdefault(func, []).append(tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, out))
        return out


class _Give(_Keep):
    """Around the recomputation: gives them back in place of running the operators."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _saves(self.policy(SelectiveCheckpointContext(is_recompute=True), func, *args, **(kwargs or {}))):
            return func(*args, **(kwargs or {}))
        if not self.kept.get(func):
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        return tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, self.kept[func].pop(0))


def _saves(said: Any) -> bool:
    if said is CheckpointPolicy.MUST_CPU_OFFLOAD:
        raise NotImplementedError("selective checkpointing doesn't move saved outputs to the CPU; use save_on_cpu")
    return said is True or said in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[TorchDispatchMode, TorchDispatchMode]:
    """The two contexts of `context_fn` that keep some outputs instead of recomputing them: those of the operators in a list
    (`torch.ops.aten.mm.default`), or that `policy(ctx, op, *args, **kwargs)` says to save."""
    if isinstance(policy_fn_or_list, (list, tuple)):
        for op in policy_fn_or_list:
            if not isinstance(op, OpOverload):
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}")
        chosen = frozenset(policy_fn_or_list)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[Any, list[Any]] = {}
    return _Keep(policy, kept), _Give(policy, kept)


class _Stop(Exception):
    """Recomputation has made everything that was asked for."""


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, context_fn: Callable[[], Any] | None = None,
    determinism_check: str = "default", debug: bool = False, early_stop: bool = True, preserve_rng_state: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """Run `function(*args, **kwargs)` keeping no activations; backward runs it again.

    `use_reentrant` True is the form built on a nested backward, False (and the default here) the one that recomputes
    saved tensors one block at a time and works with autograd.grad.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. It is taken as False here. "
            "Refer to docs for more details on the differences between the two variants.",
            stacklevel=2,
        )
    if use_reentrant:
        if context_fn is not None and context_fn is not noop_context_fn:
            raise ValueError("Passing `context_fn` is only supported when use_reentrant=False.")
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {','.join(kwargs)}")
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if not state.grad:
        return function(*args, **kwargs)
    rng = _rng(preserve_rng_state)
    forward_context, again_context = context_fn() if context_fn else (contextlib.nullcontext(), contextlib.nullcontext())

    def run() -> None:
        with _random_state(rng), again_context:
            function(*args, **kwargs)

    frame = _Frame(run, early_stop if _early_stop[-1] is None else _early_stop[-1])
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True
) -> Any:
    """Run a Sequential (or list of callables) in `segments` checkpointed pieces; the last keeps its activations."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments

    def piece(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in steps[start:end]:
                x = step(x)
            return x

        return run

    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(piece(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return piece(end, len(steps))(input)
