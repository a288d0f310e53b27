"""Hooks on what the tape saves (torch docs: torch.autograd.graph)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tocha.autograd.graph import RemovableHandle, version_of
from tocha.autograd.mode import _ContextDecorator, state
from tocha.autograd.views import edge_of
from tocha.tensor import Tensor


class saved_tensors_hooks:
    """Inside, every saved tensor goes through `pack_hook` and comes back through `unpack_hook`."""

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pair = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        if state.saved_hooks_disabled is not None:
            raise RuntimeError(state.saved_hooks_disabled)
        state.saved_hooks.append(self.pair)
        state.refresh()

    def __exit__(self, *exc: object) -> None:
        state.saved_hooks.pop()
        state.refresh()


class save_on_cpu(saved_tensors_hooks):
    """Inside, saved tensors wait for backward in CPU memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class disable_saved_tensors_hooks(_ContextDecorator):
    """Inside, entering saved_tensors_hooks raises RuntimeError with this message."""

    def __init__(self, error_message: str) -> None:
        self.message = error_message

    def clone(self) -> disable_saved_tensors_hooks:
        return disable_saved_tensors_hooks(self.message)

    def __enter__(self) -> None:
        if state.saved_hooks:
            raise RuntimeError(self.message)
        self.previous = state.saved_hooks_disabled
        state.saved_hooks_disabled = self.message

    def __exit__(self, *exc: object) -> None:
        state.saved_hooks_disabled = self.previous


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Inside, tensors may be changed in place after they were saved: what is saved is a copy made at once."""

    def __init__(self) -> None:
        super().__init__(lambda t: t.clone(), lambda t: t)


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all") -> _Handles:
    """Call `fn` once per backward: when the gradients of all `tensors` that this backward reaches are known (with the list,
    None for the others), or with `mode` 'any' when the first one is (with it)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    grads: list[Tensor | None] = [None] * len(tensors)
    current: list[Any] = [None, 0]  # the engine's walk, and how many gradients of it are still to come
    places = [edge_of(t) for t in tensors]

    def hook_for(i: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            walk = state.runs[-1] if state.runs else None
            first = current[0] is not walk
            if first:
                current[:] = walk, sum(walk is None or walk.reaches(p) for p in places)
                grads[:] = [None] * len(tensors)
            if mode == "any":
                if first:
                    fn(grad)
                return
            grads[i] = grad
            current[1] -= 1
            if current[1] == 0:
                given, grads[:], current[0] = list(grads), [None] * len(tensors), None
                fn(given)

        return hook

    return _Handles(t.register_hook(hook_for(i)) for i, t in enumerate(tensors))


class _Handles:
    """Several handles removed as one."""

    def __init__(self, handles: Iterable[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def increment_version(tensor: Any) -> None:
    """Count an in-place change made behind the tape's back."""
    for t in tensor if isinstance(tensor, (list, tuple)) else (tensor,):
        if not t.is_inference():
            version_of(t).bump("increment_version")
