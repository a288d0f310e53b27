"""torch.utils.data._utils.worker."""

from tocha.data.worker import WorkerInfo as WorkerInfo
from tocha.data.worker import get_worker_info as get_worker_info
