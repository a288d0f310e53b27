"""torch.functional: operators under this older path."""

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES

__all__ = [
    name
    for name in (
        "atleast_1d", "atleast_2d", "atleast_3d", "align_tensors", "block_diag", "broadcast_shapes", "broadcast_tensors",
        "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm", "split", "stft", "tensordot",
        "unique", "unique_consecutive", "unravel_index",
    )
    if name in _NAMESPACES["torch"]
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in ("pca_lowrank", "svd_lowrank"):
        from tocha import _lowrank

        return getattr(_lowrank, name)
    raise AttributeError(f"module 'torch.functional' has no attribute {name!r}")


globals().update({_name: _NAMESPACES["torch"][_name] for _name in __all__})
