"""torch.utils.data.datapipes: data sets chained by methods."""

from tocha.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]
