"""Named tuples that operators with several results return: `torch.max(x, 0).values`, `torch.return_types.max`.

One table; a class has torch's name, module and fields.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

_FIELDS = {
    "aminmax": "min max",
    "cummax": "values indices",
    "cummin": "values indices",
    "frexp": "mantissa exponent",
    "geqrf": "a tau",
    "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges",
    "kthvalue": "values indices",
    "linalg_cholesky_ex": "L info",
    "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_inv_ex": "inverse info",
    "linalg_ldl_factor": "LD pivots",
    "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values",
    "linalg_lu": "P L U",
    "linalg_lu_factor": "LU pivots",
    "linalg_lu_factor_ex": "LU pivots info",
    "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet",
    "linalg_solve_ex": "result info",
    "linalg_svd": "U S Vh",
    "lu_unpack": "P L U",
    "max": "values indices",
    "median": "values indices",
    "min": "values indices",
    "mode": "values indices",
    "nanmedian": "values indices",
    "qr": "Q R",
    "slogdet": "sign logabsdet",
    "sort": "values indices",
    "svd": "U S V",
    "topk": "values indices",
    "triangular_solve": "solution cloned_coefficient",
}


def _make(name: str, fields: str) -> Any:
    made = namedtuple(name, fields, module="torch.return_types")  # type: ignore[misc]

    def show(self: Any) -> str:
        body = ",\n".join(f"{f}={v!r}" for f, v in zip(fields.split(), self, strict=True))
        return f"torch.return_types.{name}(\n{body})"

    made.__repr__ = show  # type: ignore[method-assign]
    return made


TYPES: dict[str, Any] = {name: _make(name, fields) for name, fields in _FIELDS.items()}


def named(name: str, values: Sequence[Any]) -> Any:
    """The results of operator `name` as its named tuple."""
    return TYPES[name]._make(values)
