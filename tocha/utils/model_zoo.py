"""torch.utils.model_zoo: the older path of torch.hub's download."""

from tocha.hub import load_state_dict_from_url as load_url
from tocha.hub import progress_bar as tqdm

__all__ = ["load_url", "tqdm"]
