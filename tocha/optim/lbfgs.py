"""Limited-memory BFGS.

Source: torch docs, torch.optim.LBFGS; Nocedal & Wright 2006, algorithm 7.4; minFunc (Schmidt 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tocha

from ._common import as_number, check_lr, real_view
from ._line_search import Point, strong_wolfe
from .optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS over one parameter group; `step` needs a closure that clears gradients, computes the loss and
    its gradients.

    State, kept under the first parameter: the direction "d" (n,), its length "t", the history "old_dirs"
    (gradient differences), "old_stps" (steps) and "ro", "H_diag", "prev_flat_grad", "prev_loss",
    "func_evals" and "n_iter".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self) -> Any:
        parts = []
        for p in self._params:
            if p.grad is None:
                parts.append(p.new_zeros(p.numel() * (2 if p.is_complex() else 1), dtype=real_view(p).dtype))
            elif p.grad.is_sparse:
                raise RuntimeError("LBFGS does not support sparse gradients")
            else:
                parts.append(real_view(p.grad).reshape(-1))
        return tocha.cat(parts, 0)

    def _move(self, t: float, direction: Any) -> None:
        """Add `t * direction` to the parameters."""
        offset = 0
        for p in map(real_view, self._params):
            p.add_(direction[offset : offset + p.numel()].view_as(p), alpha=t)
            offset += p.numel()

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Up to `max_iter` iterations; returns the first loss of `closure`."""
        with tocha.no_grad():
            return self._minimise(closure)

    def _minimise(self, closure: Callable[[], Any]) -> Any:
        def loss_now() -> Any:
            with tocha.enable_grad():
                return closure()

        group = self.param_groups[0]
        lr, max_iter, max_eval = as_number(group["lr"]), group["max_iter"], group["max_eval"]
        tolerance_grad, tolerance_change = group["tolerance_grad"], group["tolerance_change"]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported as line_search_fn, but got {search!r}")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = loss_now()
        loss = float(first_loss)
        evals, iterations = 1, 0
        state["func_evals"] += 1
        grad = self._flat_grad()
        optimal = _max_abs(grad) <= tolerance_grad
        if optimal:
            return first_loss

        while iterations < max_iter:
            iterations += 1
            state["n_iter"] += 1
            first = state["n_iter"] == 1
            self._next_direction(state, grad, group["history_size"])
            direction = state["d"]
            state["prev_flat_grad"] = grad.clone()
            state["prev_loss"] = previous_loss = loss
            t = min(1.0, 1.0 / grad.abs().sum().item()) * lr if first else lr
            state["t"] = t
            slope = grad.dot(direction).item()
            if slope > -tolerance_change:
                break

            new_evals = 0
            if search == "strong_wolfe":
                point, new_evals = self._search(
                    loss_now, Point(0.0, loss, grad, slope), t, direction, tolerance_change, max_eval - evals
                )
                t, loss, grad = point.t, point.loss, point.grad
                self._move(t, direction)
                optimal = _max_abs(grad) <= tolerance_grad
            else:
                self._move(t, direction)
                if iterations != max_iter:
                    # After the last iteration nobody would read the loss.
                    loss = float(loss_now())
                    grad = self._flat_grad()
                    optimal = _max_abs(grad) <= tolerance_grad
                    new_evals = 1
            state["t"] = t
            evals += new_evals
            state["func_evals"] += new_evals
            if (
                evals >= max_eval
                or optimal
                or _max_abs(direction * t) <= tolerance_change
                or abs(loss - previous_loss) < tolerance_change
            ):
                break
        return first_loss

    def _next_direction(self, state: dict[str, Any], grad: Any, history_size: int) -> None:
        """Put the quasi-Newton direction (two-loop recursion) into `state["d"]`, after updating the
        history.
        """
        if state["n_iter"] == 1:
            state.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return
        ys, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y = grad.sub(state["prev_flat_grad"])
        s = state["d"].mul(state["t"])
        curvature = y.dot(s)
        if curvature.item() > 1e-10:
            if len(ys) == history_size:
                del ys[0], steps[0], ro[0]
            ys.append(y)
            steps.append(s)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)
        q = grad.neg()
        weights = []
        for y, s, r in zip(reversed(ys), reversed(steps), reversed(ro)):
            weight = s.dot(q) * r
            weights.append(weight)
            q.sub_(y * weight)
        q.mul_(state["H_diag"])
        for y, s, r, weight in zip(ys, steps, ro, reversed(weights)):
            q.add_(s * (weight - y.dot(q) * r))
        state["d"] = q

    def _search(
        self,
        loss_now: Callable[[], Any],
        start: Point,
        t: float,
        direction: Any,
        tolerance_change: float,
        max_rounds: int,
    ) -> tuple[Point, int]:
        """Line search along `direction`; the parameters are back at their start afterwards."""
        at_start = [p.clone(memory_format=tocha.contiguous_format) for p in self._params]

        def restore() -> None:
            for p, value in zip(self._params, at_start):
                p.copy_(value)

        def evaluate(t: float) -> Point:
            self._move(t, direction)
            loss = float(loss_now())
            grad = self._flat_grad()
            restore()
            return Point(t, loss, grad, grad.dot(direction).item())

        return strong_wolfe(evaluate, start, t, _max_abs(direction), tolerance_change=tolerance_change, max_ls=max_rounds)


def _max_abs(x: Any) -> float:
    """The largest magnitude in a flat tensor; 0 for an empty one."""
    return float(x.abs().max().item()) if x.numel() else 0.0
