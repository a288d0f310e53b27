"""Batches split over the GPUs of one process (torch docs: torch.nn.DataParallel)."""

from __future__ import annotations

import itertools
from typing import Any

import tocha
from tocha.nn.modules.module import Module
from tocha.nn.parallel.scatter_gather import gather, scatter_kwargs
from tocha.nn.utils.stateless import _functional_call

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Any) -> list[Any]:
    if device_ids is None:
        device_ids = range(tocha.cuda.device_count()) if tocha.cuda.is_available() else ()
    return [tocha.device("cuda", d) if isinstance(d, int) else tocha.device(d) for d in device_ids]


def _run_replicas(module: Module, devices: list[Any], args: tuple[Any, ...], kwargs: tuple[Any, ...]) -> list[Any]:
    """The module on each device with its part of the batch; copies of parameters pass gradients back."""
    named = [*module.named_parameters(), *module.named_buffers()]
    outputs = []
    for device, a, k in zip(devices, args, kwargs):
        if device == devices[0]:
            outputs.append(module(*a, **k))
        else:
            copies = {name: value.to(device) for name, value in named}
            outputs.append(_functional_call(module, copies, a, k))
    return outputs


class DataParallel(Module):
    """Runs `module` on all `device_ids` (all GPUs by default), each with a part of the batch along `dim`.

    The outputs are joined on `output_device`. Without a GPU, or with one, simply the module.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = _devices(device_ids)
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            if len(self.device_ids) == 1:
                self.module.to(self.device_ids[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output for the whole batch."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        source = self.device_ids[0]
        for t in itertools.chain(self.module.parameters(), self.module.buffers()):
            if t.device != source:
                raise RuntimeError(
                    f"module must have its parameters and buffers on device {source} (device_ids[0]) but "
                    "found one "
                    f"of them on device: {t.device}"
                )
        args, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
        if len(self.device_ids) == 1:
            return self.module(*args[0], **named[0])
        outputs = _run_replicas(self.module, self.device_ids, args, named)
        return gather(outputs, self.output_device, self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """One call of `module` as by :class:`DataParallel`."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
