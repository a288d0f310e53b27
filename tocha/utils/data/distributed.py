"""torch.utils.data.distributed."""

from tocha.data.distributed import DistributedSampler as DistributedSampler
