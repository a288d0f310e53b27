"""torch.utils.data.sampler."""

from tocha.data.sampler import BatchSampler as BatchSampler
from tocha.data.sampler import RandomSampler as RandomSampler
from tocha.data.sampler import Sampler as Sampler
from tocha.data.sampler import SequentialSampler as SequentialSampler
from tocha.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tocha.data.sampler import WeightedRandomSampler as WeightedRandomSampler
