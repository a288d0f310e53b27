"""Batches of sequences of different lengths: packing and padding (torch docs: torch.nn.utils.rnn)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple, Self

import tocha

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence_(NamedTuple):
    """The fields of a :class:`PackedSequence`."""

    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(PackedSequence_):
    """Sequences sorted by length, stored step after step: `data` (Σ batch_sizes, *), `batch_sizes` on the
    CPU.

    `sorted_indices` and `unsorted_indices` lead from the original order to the sorted one and back.
    """

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None) -> Self:
        return super().__new__(cls, *_packed_args(data, batch_sizes, sorted_indices, unsorted_indices))

    def pin_memory(self) -> Self:
        """With `data` in pinned memory."""
        return type(self)(
            self.data.pin_memory(),
            self.batch_sizes,
            _pinned(self.sorted_indices),
            _pinned(self.unsorted_indices),
        )

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """With `data` moved or cast as by `Tensor.to`; itself where nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        # indices follow to the device, not to the dtype
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        moved = [None if t is None else t.to(data.device, **kwargs) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """On the GPU."""
        probe = tocha.tensor((), dtype=self.data.dtype, device=self.data.device).to(*args, **kwargs)  # type: ignore[operator]
        if not probe.is_cuda:
            kwargs["device"] = "cuda"
        return self.to(*args, **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> Self:
        """On the CPU."""
        probe = tocha.tensor((), dtype=self.data.dtype, device=self.data.device).to(*args, **kwargs)  # type: ignore[operator]
        if probe.device.type != "cpu":
            kwargs["device"] = "cpu"
        return self.to(*args, **kwargs)

    def double(self) -> Self:
        """As float64."""
        return self.to(dtype=tocha.double)

    def float(self) -> Self:
        """As float32."""
        return self.to(dtype=tocha.float)

    def half(self) -> Self:
        """As float16."""
        return self.to(dtype=tocha.half)

    def long(self) -> Self:
        """As int64."""
        return self.to(dtype=tocha.long)

    def int(self) -> Self:
        """As int32."""
        return self.to(dtype=tocha.int)

    def short(self) -> Self:
        """As int16."""
        return self.to(dtype=tocha.short)

    def char(self) -> Self:
        """As int8."""
        return self.to(dtype=tocha.int8)

    def byte(self) -> Self:
        """As uint8."""
        return self.to(dtype=tocha.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether `data` is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether `data` is in pinned memory."""
        return self.data.is_pinned()


def _pinned(t: Any) -> Any:
    return None if t is None else t.pin_memory()


def _packed_args(data: Any, batch_sizes: Any, sorted_indices: Any, unsorted_indices: Any) -> tuple[Any, ...]:
    if unsorted_indices is None:
        unsorted_indices = invert_permutation(sorted_indices)
    if batch_sizes is not None:
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created "
                "manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn.utils.rnn. https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return data, batch_sizes, sorted_indices, unsorted_indices
    if not isinstance(data, (list, tuple)) or len(data) != 2:
        raise AssertionError("Expected (data, batch_sizes) or both as arguments")
    return data[0], data[1], sorted_indices, unsorted_indices


def invert_permutation(permutation: Any) -> Any:
    """The inverse of a permutation (or None)."""
    if permutation is None:
        return None
    output = tocha.empty_like(permutation, memory_format=tocha.contiguous_format)
    output.scatter_(0, permutation, tocha.arange(0, permutation.numel(), device=permutation.device))
    return output


def _pack(input: Any, lengths: list[int]) -> tuple[Any, Any]:
    """Data and batch sizes of (T, N, *) whose sequences are sorted by length."""
    batch_sizes = [0] * lengths[0]
    for n in lengths:
        for t in range(n):
            batch_sizes[t] += 1
    data = tocha.cat([input[t, :n] for t, n in enumerate(batch_sizes)], 0)
    return data, tocha.tensor(batch_sizes, dtype=tocha.int64)  # type: ignore[operator]


def pack_padded_sequence(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack padded sequences (T, N, *), or (N, T, *) if `batch_first`, of the given lengths.

    With `enforce_sorted=False` they may come in any order.
    """
    if isinstance(lengths, tocha.Tensor):
        if lengths.device.type != "cpu" or lengths.dtype != tocha.int64 or lengths.dim() != 1:
            raise RuntimeError(
                f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
                f"{lengths.device} {lengths.dtype} tensor"
            )
    else:
        lengths = tocha.as_tensor(lengths, dtype=tocha.int64, device="cpu")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = tocha.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if batch_first:
        input = input.transpose(0, 1)
    data, batch_sizes = _pack(input, _checked_lengths(input, lengths.tolist()))
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def _checked_lengths(input: Any, lengths: list[int]) -> list[int]:
    if input.dim() < 2 or input.numel() == 0:
        raise RuntimeError(f"Cannot pack empty tensors: got shape {tuple(input.shape)}.")
    if len(lengths) != input.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={input.size(1)})"
        )
    if min(lengths) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in pairwise(lengths)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
            "requirement if "
            "you do not need ONNX exportability."
        )
    if lengths[0] > input.size(0):
        raise RuntimeError(f"pack_padded_sequence: a length of {lengths[0]} exceeds the input's {input.size(0)} steps")
    return lengths


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """Padded sequences (T, N, *), or batch first, in the original order, and their lengths on the CPU."""
    sizes = sequence.batch_sizes.tolist()
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    data, n = sequence.data, sizes[0]
    steps = []
    for step, size in zip(data.split(sizes, 0), sizes):
        if size < n:
            step = tocha.cat([step, data.new_full((n - size, *data.shape[1:]), padding_value)], 0)
        steps.append(step)
    extra = (total_length or longest) - longest
    steps += [data.new_full((n, *data.shape[1:]), padding_value)] * extra
    padded = tocha.stack(steps, 1 if batch_first else 0)
    lengths = tocha.tensor([sum(size > i for size in sizes) for i in range(n)], dtype=tocha.int64)  # type: ignore[operator]
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Any:
    """Stack sequences (L_i, *) padded to the longest: (T, N, *), or (N, T, *) if `batch_first`."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    if isinstance(sequences, tocha.Tensor):
        sequences = sequences.unbind(0)
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = max(s.size(0) for s in sequences)
    rows = []
    for s in sequences:
        if s.size(0) < longest:
            pad = s.new_full((longest - s.size(0), *s.shape[1:]), padding_value)
            s = tocha.cat([s, pad] if padding_side == "right" else [pad, s], 0)
        rows.append(s)
    return tocha.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The sequences of a padded batch, cut to `lengths`."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [seq[: int(n)] for seq, n in zip(padded_sequences, lengths)]


def pack_sequence(sequences: list[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, *), sorted by decreasing length unless `enforce_sorted=False`."""
    lengths = tocha.as_tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The sequences in a packed one, in the original order."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
