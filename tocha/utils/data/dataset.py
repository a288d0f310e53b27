"""torch.utils.data.dataset."""

from tocha.data.dataset import ChainDataset as ChainDataset
from tocha.data.dataset import ConcatDataset as ConcatDataset
from tocha.data.dataset import Dataset as Dataset
from tocha.data.dataset import IterableDataset as IterableDataset
from tocha.data.dataset import StackDataset as StackDataset
from tocha.data.dataset import Subset as Subset
from tocha.data.dataset import TensorDataset as TensorDataset
from tocha.data.dataset import random_split as random_split
