"""torch.utils.data: the public place of `tocha.data`."""

from tocha.data import *
from tocha.data import __all__ as __all__
from tocha.data import _DatasetKind as _DatasetKind
from tocha.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

from . import _utils, dataloader, dataset, distributed, sampler
