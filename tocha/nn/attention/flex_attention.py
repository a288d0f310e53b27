"""Attention with a score function and a mask function of positions (Dong et al. 2024; torch docs:
torch.nn.attention.flex_attention).

Scores and masks are computed for all positions at once, with index tensors that broadcast against each
other, so the functions must be made of tensor operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tocha

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_score_mod_signature = Callable[..., Any]
_mask_mod_signature = Callable[..., Any]


@dataclass
class AuxRequest:
    """Further results of :func:`flex_attention`: the log-sum-exp and the largest score of each row."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Further results of :func:`flex_attention`, None where not asked for."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """The mask function that allows everything."""
    return batch.new_ones(size=(), dtype=tocha.bool, device=batch.device)


def _combined(mask_mods: tuple[Callable[..., Any], ...], combine: Callable[[Any, Any], Any], start: bool) -> Callable[..., Any]:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = tocha.full((), start, dtype=tocha.bool, device=b.device)
        for mod in mask_mods:
            result = combine(result, mod(b, h, q_idx, kv_idx))
        return result

    return mask


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that allows what one of the given ones allows."""
    return _combined(mask_mods, lambda x, y: x | y, False)


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """The mask function that allows what all of the given ones allow."""
    return _combined(mask_mods, lambda x, y: x & y, True)


def _indices(b: int, h: int, q_len: int, kv_len: int, device: Any) -> tuple[Any, Any, Any, Any]:
    """Index tensors of batch, head, query and key, each along its own dimension of (b, h, q_len, kv_len)."""
    sizes = (b, h, q_len, kv_len)
    shapes = ((b, 1, 1, 1), (1, h, 1, 1), (1, 1, q_len, 1), (1, 1, 1, kv_len))
    ints = (tocha.arange(n, device=device, dtype=tocha.int32).view(shape) for n, shape in zip(sizes, shapes))
    return tuple(ints)


def create_mask(mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Any:
    """The mask (or score bias) of a function at all positions, (B, H, Q_LEN, KV_LEN)."""
    b, h = B or 1, H or 1
    index = _indices(b, h, Q_LEN, KV_LEN, device)
    arguments = mod_fn.__code__.co_argcount - (1 if hasattr(mod_fn, "__self__") else 0)
    if arguments == 5:
        return mod_fn(tocha.zeros((b, h, Q_LEN, KV_LEN), device=device), *index)
    return mod_fn(*index).expand(b, h, Q_LEN, KV_LEN)


class BlockMask:
    """A mask function with the sizes it is for."""

    def __init__(
        self,
        mask_mod: Callable[..., Any],
        batch: int | None,
        heads: int | None,
        seq_lengths: tuple[int, int],
        block_size: tuple[int, int],
        device: Any = None,
        separate_full_blocks: bool = True,
    ) -> None:
        self.separate_full_blocks = separate_full_blocks
        self.mask_mod = mask_mod
        self.batch = batch
        self.heads = heads
        self.seq_lengths = seq_lengths
        self.BLOCK_SIZE = block_size
        self.device = device

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch or 1, heads or 1, query length, key length)."""
        return self.batch or 1, self.heads or 1, *self.seq_lengths

    def numel(self) -> int:
        """The number of positions."""
        return math.prod(self.shape)

    def _blocks(self) -> Any:
        """The mask in blocks, (B, H, query blocks, key blocks, rows, columns); what is past the end is not allowed."""
        b, h, q, kv = self.shape
        mask = create_mask(self.mask_mod, b, h, q, kv, self.device)
        rows, columns = self.BLOCK_SIZE
        mask = tocha.nn.functional.pad(mask, (0, -kv % columns, 0, -q % rows))
        return mask.reshape(b, h, mask.shape[2] // rows, rows, mask.shape[3] // columns, columns).transpose(3, 4)

    def to_dense(self) -> Any:
        """1 for each block in which anything is allowed, (B, H, query blocks, key blocks)."""
        return self._blocks().flatten(4).any(dim=4).to(tocha.int32)

    def _kinds(self) -> tuple[Any, Any]:
        """Which blocks are allowed in part, and which as a whole (None if those count among the former)."""
        blocks = self._blocks().flatten(4)
        if not self.separate_full_blocks:
            return blocks.any(dim=4), None
        full = blocks.all(dim=4)
        return blocks.any(dim=4) & ~full, full

    @property
    def kv_num_blocks(self) -> Any:
        """How many blocks of keys each block of queries looks at in part, (B, H, query blocks)."""
        return _counted(self._kinds()[0])

    @property
    def kv_indices(self) -> Any:
        """Which, those first, (B, H, query blocks, key blocks)."""
        return _listed(self._kinds()[0])

    @property
    def full_kv_num_blocks(self) -> Any:
        """How many blocks of keys each block of queries looks at as a whole; None if they aren't told apart."""
        return _counted(self._kinds()[1])

    @property
    def full_kv_indices(self) -> Any:
        """Which, those first."""
        return _listed(self._kinds()[1])

    @property
    def q_num_blocks(self) -> Any:
        """How many blocks of queries look at a block of keys in part, (B, H, key blocks)."""
        return _counted(self._kinds()[0].mT)

    @property
    def q_indices(self) -> Any:
        """Which, those first."""
        return _listed(self._kinds()[0].mT)

    @property
    def full_q_num_blocks(self) -> Any:
        """How many blocks of queries look at a block of keys as a whole; None if they aren't told apart."""
        full = self._kinds()[1]
        return None if full is None else _counted(full.mT)

    @property
    def full_q_indices(self) -> Any:
        """Which, those first."""
        full = self._kinds()[1]
        return None if full is None else _listed(full.mT)

    def sparsity(self) -> float:
        """The share of positions in blocks without anything allowed, in per cent."""
        rows, columns = self.BLOCK_SIZE
        return float(100 * (1 - self.to_dense().sum().item() * rows * columns / self.numel()))

    def to(self, device: Any) -> BlockMask:
        """The mask for another device."""
        return BlockMask(
            self.mask_mod, self.batch, self.heads, self.seq_lengths, self.BLOCK_SIZE, device, self.separate_full_blocks
        )

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches and heads: `mask[0]`, `mask[:, 2:4]`; a number keeps its dimension."""
        given = index if isinstance(index, tuple) else (index,)
        if len(given) > 2 or not all(isinstance(i, (int, slice)) for i in given):
            raise IndexError(f"BlockMask: expected numbers or slices for batch and head, got {index}")
        parts = [slice(i, i + 1 or None) if isinstance(i, int) else i for i in (*given, slice(None))[:2]]
        batches, heads = (tocha.arange(n, device=self.device)[i] for n, i in zip(self.shape, parts))
        if not len(batches) or not len(heads):
            raise IndexError(f"BlockMask: {index} is out of range for shape {self.shape}")
        inner = self.mask_mod

        def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            return inner(batches[b], heads[h], q_idx, kv_idx)

        return BlockMask(
            mask_mod, len(batches), len(heads), self.seq_lengths, self.BLOCK_SIZE, self.device, self.separate_full_blocks
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask for other lengths."""
        sizes = (new_q_len, new_kv_len)
        return BlockMask(self.mask_mod, self.batch, self.heads, sizes, self.BLOCK_SIZE, self.device, self.separate_full_blocks)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _counted(blocks: Any) -> Any:
    return None if blocks is None else blocks.sum(dim=-1).to(tocha.int32)


def _listed(blocks: Any) -> Any:
    return None if blocks is None else blocks.to(tocha.int32).argsort(dim=-1, descending=True, stable=True).to(tocha.int32)


def create_block_mask(
    mask_mod: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The mask of `mask_mod(b, h, q_idx, kv_idx)`, True where attention is allowed; B or H None broadcast."""
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    if not callable(mask_mod):
        raise TypeError(f"{mask_mod} is not a callable object")
    return BlockMask(mask_mod, B, H, (Q_LEN, KV_LEN), block, device, separate_full_blocks)  # type: ignore[arg-type]


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention of query (B, Hq, L, E) to key (B, Hkv, S, E) and value (B, Hkv, S, Ev): (B, Hq, L, Ev).

    `score_mod(score, b, h, q_idx, kv_idx)` changes the scaled scores. A row that may attend to nothing
    gives zeros. With `return_lse` or `return_aux` further results follow.
    """
    _check(query, key, value, block_mask, enable_gqa)
    b, hq, q_len, _ = query.shape
    hkv, kv_len = key.shape[1], key.shape[2]
    if score_mod is None and block_mask is None and not return_lse and return_aux is None:
        return tocha.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=hq != hkv)
    if hq != hkv:
        key, value = (t.repeat_interleave(hq // hkv, dim=1) for t in (key, value))
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = ((query @ key.transpose(-2, -1)) * scale).to(tocha.float64 if query.dtype == tocha.float64 else tocha.float32)
    index = _indices(b, hq, q_len, kv_len, query.device)
    if score_mod is not None:
        scores = score_mod(scores, *index)
    if block_mask is not None:
        allowed = block_mask.mask_mod(*index)
        scores = scores.masked_fill(~allowed, -math.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
    out = (weights.to(value.dtype) @ value).to(query.dtype)
    if return_aux is not None:
        largest = scores.amax(dim=-1) if return_aux.max_scores else None
        return out, AuxOutput(lse if return_aux.lse else None, largest)
    return (out, lse) if return_lse else out


def _check(query: Any, key: Any, value: Any, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    """Errors as torch's for operands that don't fit."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.dtype.is_complex:
        raise ValueError(f"flex_attention: expected real numbers, got {query.dtype}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"Expect query and key/value to have the same embedding dimension but got E={query.shape[-1]} and E={key.shape[-1]}."
        )
    hq, hkv = query.shape[1], key.shape[1]
    if hq != hkv and not enable_gqa:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={hq} and Hkv={hkv}. "
            "Try setting enable_gqa=True for GQA."
        )
    if hq != hkv and (not hkv or hq % hkv):
        raise ValueError(f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={hq} and Hkv={hkv}.")
    if query.shape[0] != key.shape[0] and block_mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask=None, "
            f"Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )
    if block_mask is None:
        return
    _, _, q_len, kv_len = block_mask.shape
    if query.shape[2] > q_len or key.shape[2] > kv_len:
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={query.shape[2]} and kv_len={key.shape[2]}. "
            "As the block mask was created for a smaller length than you're using it for, you likely need to create a new block mask."
        )
    if query.shape[2] < q_len or key.shape[2] < kv_len:
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={query.shape[2]} and kv_len={key.shape[2]}. "
            "As the block mask was created for a larger length than you're using it for, you can either 1. create a new block mask "
            "with the correct length, or 2. 'adjust' the existing block mask to the correct length by calling "
            "block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, which does not work "
            "for all mask_mods!"
        )
