"""Softmax approximation for many classes (Grave et al. 2017; torch docs:
torch.nn.AdaptiveLogSoftmaxWithLoss)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tocha
from tocha.nn import functional as F
from tocha.nn.modules.container import ModuleList, Sequential
from tocha.nn.modules.linear import Linear
from tocha.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over `n_classes` sorted by frequency: frequent ones in a head, the rest in clusters below
    it.

    Cluster i is projected to `in_features / div_value^(i+1)` first.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if len(cutoffs) == 0:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(set(cutoffs))
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                "where "
                "each value is between 1 and n_classes-1"
            )
        kw = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kw)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, hidden, bias=False, **kw), Linear(hidden, size, bias=False, **kw)))

    def reset_parameters(self) -> None:
        """Reset the head and all clusters."""
        self.head.reset_parameters()
        for inner, outer in self.tail:  # type: ignore[attr-defined]
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> _ASMoutput:
        """Log probabilities of the targets, (N,), and their mean negated, for input (N, in_features)."""
        targets_dim = target_.dim()
        if targets_dim == 1:
            if input_.size(0) != target_.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError("1D target tensor expects 2D input tensors, but found inputs with size", input_.size())
        elif targets_dim == 0:
            if input_.dim() != 1:
                raise RuntimeError("0D target tensor expects 1D input tensors, but found inputs with size", input_.size())
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = targets_dim > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)

        outside = (target < 0) | (target >= self.n_classes)
        if bool(outside.any()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        index = target.clone()
        output = input.new_zeros(target.size(0)).to(head.dtype)
        for i, cluster in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            index = index.index_fill(0, rows, self.shortlist_size + i)
            logprob = F.log_softmax(cluster(input.index_select(0, rows)), dim=1)
            relative = (target.index_select(0, rows) - low).unsqueeze(1)
            output = output.index_add(0, rows, logprob.gather(1, relative).squeeze(1))
        output = output + head.gather(1, index.unsqueeze(1)).squeeze()
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Any, head_output: Any) -> Any:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return tocha.cat(parts, dim=1)

    def log_prob(self, input: Any) -> Any:
        """Log probabilities (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Any) -> Any:
        """The most probable class of each row, (N,)."""
        head_output = self.head(input)
        output = tocha.argmax(head_output, dim=1)
        not_in_shortlist = output >= self.shortlist_size
        if not bool(not_in_shortlist.any()):
            return output
        if bool(not_in_shortlist.all()):
            return tocha.argmax(self._get_full_log_prob(input, head_output), dim=1)
        rows = not_in_shortlist.nonzero().squeeze(1)
        full = self._get_full_log_prob(input[rows], head_output[rows])
        return output.index_copy(0, rows, tocha.argmax(full, dim=1))
