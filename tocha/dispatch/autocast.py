"""Autocast: one table says in which type an operator runs while it is on; calls are rewritten before the operator.

The table goes by the names of public functions. An operator that isn't in it runs as called, with autocast still on for
public functions that it is made of; one that is in it runs without. float64 tensors and those on other devices are left
alone. Source of the table: torch docs, "Automatic Mixed Precision package", section Autocast Op Reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tocha import dtypes
from tocha.backends import device_of
from tocha.dispatch.override import FUNCTION_MODES, stacks
from tocha.dtypes import FLOAT_NP, FROM_NP, dtype
from tocha.tensor import Tensor

LOWER, FULL, WIDEST, UNSAFE = "lower", "float32", "widest", "unsafe"


def _table(**names: str) -> dict[str, str]:
    return {name: policy for policy, text in names.items() for name in text.split()}


_PRODUCTS = """
    __matmul__ matmul mm bmm addmm addbmm baddbmm linear chain_matmul multi_dot einsum tensordot inner vecdot conv1d conv2d conv3d
    conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu scaled_dot_product_attention
    multi_head_attention_forward lstm gru rnn_tanh rnn_relu
"""
TABLE: dict[str, dict[str, str]] = {
    "cuda": {
        **_table(
            lower=_PRODUCTS + "mv addmv addr lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
            float32="""
                __pow__ __rdiv__ __rpow__ __rtruediv__ acos arccos asin arcsin binary_cross_entropy_with_logits cdist cosh
                cosine_embedding_loss cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm
                hinge_embedding_loss huber_loss kl_div l1_loss layer_norm log log10 log1p log2 log_softmax logsumexp
                margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss norm nuclear_norm normalize pdist
                poisson_nll_loss pow prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin
                softplus sum tan triplet_margin_loss ctc_loss vector_norm matrix_norm
            """,
            widest="""
                addcdiv addcmul arctan2 atan2 bilinear cat concat concatenate cross dot grid_sample index_put scatter_add stack vdot
            """,
        ),
        "binary_cross_entropy": UNSAFE,
    },
    "cpu": _table(
        lower=_PRODUCTS,
        float32="""
            adaptive_avg_pool3d avg_pool3d binary_cross_entropy binary_cross_entropy_with_logits cdist cholesky cholesky_inverse
            cholesky_solve cosine_embedding_loss cross_entropy ctc_loss fft fft2 fftn grid_sample hfft hinge_embedding_loss huber_loss
            ifft ifft2 ifftn ihfft inverse irfft irfft2 irfftn kl_div l1_loss lu_solve margin_ranking_loss max_pool3d max_unpool2d
            max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss nanquantile nll_loss orgqr ormqr pinverse poisson_nll_loss
            polar prod quantile rfft rfft2 rfftn smooth_l1_loss soft_margin_loss stft trace triplet_margin_loss view_as_complex
        """,
        widest="cat concat concatenate index_copy stack",
    ),
}  # fmt: skip
_NAMES = frozenset(name for table in TABLE.values() for name in table)
DEFAULTS = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}


class State:
    """A thread's autocast: which device types it is on for and in which type, and casts of parameters made so far."""

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(TABLE, False)
        self.dtypes = dict(DEFAULTS)
        self.cache: dict[int, tuple[Tensor, int, Tensor]] = {}
        self.cache_enabled = True
        self.nesting = 0
        self.marked = False

    def mark(self) -> None:
        """Send public functions through `dispatch_function` while autocast is on anywhere."""
        wanted = any(self.enabled.values())
        if wanted and not self.marked:
            FUNCTION_MODES.append(self)
            stacks.autocast = self
        elif self.marked and not wanted:
            FUNCTION_MODES.remove(self)
            stacks.autocast = None
        self.marked = wanted

    def policy(self, name: str, args: Iterable[Any]) -> tuple[str, str] | None:
        """The device type that decides, and what the table says for it."""
        for tensor in _tensors(args):
            kind = device_of(tensor._a).type
            if self.enabled.get(kind) and tensor._a.dtype in FLOAT_NP:
                found = TABLE[kind].get(name)
                return None if found is None else (kind, found)
        return None

    def run(self, public: Any, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call as the table has it."""
        name = getattr(public, "__name__", "")
        known = name in _NAMES and kwargs.get("out") is None
        found = self.policy(name, (*args, *kwargs.values())) if known else None
        if found is None:
            return implementation(*args, **kwargs)
        kind, policy = found
        if policy is UNSAFE:
            raise RuntimeError(
                f"torch.nn.functional.{name} and torch.nn.BCELoss are unsafe to autocast. Use "
                "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe to autocast."
            )
        stacks.autocast = None  # its own casts, and what the operator is made of, are not asked again
        try:
            if policy == FULL and kwargs.get("dtype") is not None:
                return implementation(*args, **kwargs)
            wanted = self.dtypes[kind] if policy == LOWER else dtypes.float32 if policy == FULL else _widest(args, kwargs, kind)
            cast = [self._cast(a, wanted, kind, policy == LOWER) for a in args]
            return implementation(*cast, **{k: self._cast(v, wanted, kind, policy == LOWER) for k, v in kwargs.items()})
        finally:
            stacks.autocast = self

    def _cast(self, value: Any, wanted: dtype, kind: str, keep: bool) -> Any:
        if isinstance(value, Tensor):
            return self._to(value, wanted, keep) if eligible(value, kind) and value._a.dtype is not wanted.np else value
        if type(value) in (tuple, list):
            return type(value)(self._cast(v, wanted, kind, keep) for v in value)
        return value

    def _to(self, tensor: Tensor, wanted: dtype, keep: bool) -> Tensor:
        """The cast; of parameters only the first one while autocast lasts and the parameter isn't changed."""
        if not (keep and self.cache_enabled and tensor._rg and tensor._node is None):
            return tensor.to(wanted)
        held = self.cache.get(id(tensor))
        version = 0 if tensor._vc is None else tensor._vc.value
        if held is None or held[0] is not tensor or held[1] != version or held[2]._a.dtype is not wanted.np or not held[2]._rg:
            held = self.cache[id(tensor)] = (tensor, version, tensor.to(wanted))
        return held[2]


def eligible(tensor: Tensor, kind: str) -> bool:
    """Whether autocast for a device type casts this tensor: floating point, not float64, on such a device."""
    dtype = tensor._a.dtype
    return dtype in FLOAT_NP and dtype is not dtypes.float64.np and device_of(tensor._a).type == kind


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif type(a) in (tuple, list):
            yield from _tensors(a)


def _widest(args: tuple[Any, ...], kwargs: dict[str, Any], kind: str) -> dtype:
    """The type of the widest floating-point operand on the device."""
    found: dtype | None = None
    for t in _tensors((*args, *kwargs.values())):
        if t._a.dtype in FLOAT_NP and device_of(t._a).type == kind:
            own = FROM_NP[t._a.dtype]
            found = own if found is None else dtypes.promote_types(found, own)
    return found or dtypes.float32


def current() -> State:
    """This thread's state."""
    state: State | None = stacks.autocast_state
    if state is None:
        state = stacks.autocast_state = State()
    return state
