"""Learning-rate schedulers (torch.optim.lr_scheduler)."""

from ._schedulers.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from ._schedulers.base import LRScheduler
from ._schedulers.compose import ChainedScheduler, SequentialLR
from ._schedulers.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from ._schedulers.cyclic import CyclicLR, OneCycleLR
from ._schedulers.factor import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from ._schedulers.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

#: The base class under its older name.
_LRScheduler = LRScheduler

for _name in __all__:
    # One public home: repr, pickles and checkpoints name this module.
    globals()[_name].__module__ = __name__
