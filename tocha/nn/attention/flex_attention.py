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
    ) -> None:
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

    def to_dense(self) -> Any:
        """1 for each block in which anything is allowed, (B, H, query blocks, key blocks)."""
        b, h, q, kv = self.shape
        mask = create_mask(self.mask_mod, b, h, q, kv, self.device)
        block_q, block_kv = self.BLOCK_SIZE
        mask = tocha.nn.functional.pad(mask, (0, -kv % block_kv, 0, -q % block_q))
        blocks = mask.reshape(b, h, mask.shape[2] // block_q, block_q, mask.shape[3] // block_kv, block_kv)
        return blocks.any(dim=5).any(dim=3).to(tocha.int32)

    def sparsity(self) -> float:
        """The share of blocks without anything allowed, in per cent."""
        dense = self.to_dense()
        return 100 * (1 - dense.sum().item() / dense.numel())

    def to(self, device: Any) -> BlockMask:
        """The mask for another device."""
        return BlockMask(self.mask_mod, self.batch, self.heads, self.seq_lengths, self.BLOCK_SIZE, device)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
) -> BlockMask:
    """The mask of `mask_mod(b, h, q_idx, kv_idx)`, True where attention is allowed; B or H None broadcast."""
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, B, H, (Q_LEN, KV_LEN), block, device)  # type: ignore[arg-type]


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
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("flex_attention: query, key and value must have 4 dimensions")
    b, hq, q_len, _ = query.shape
    hkv, kv_len = key.shape[1], key.shape[2]
    if hq != hkv:
        if not enable_gqa or hq % hkv:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq={hq} and Hkv={hkv}. "
                "Try setting enable_gqa=True for GQA."
            )
        key, value = (t.repeat_interleave(hq // hkv, dim=1) for t in (key, value))
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = ((query @ key.transpose(-2, -1)) * scale).to(tocha.promote_types(query.dtype, tocha.float32))
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
