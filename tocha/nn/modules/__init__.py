"""All layers (torch docs: torch.nn), one module of torch each."""

from tocha.nn.modules.activation import *
from tocha.nn.modules.adaptive import *
from tocha.nn.modules.batchnorm import *
from tocha.nn.modules.channelshuffle import *
from tocha.nn.modules.container import *
from tocha.nn.modules.conv import *
from tocha.nn.modules.distance import *
from tocha.nn.modules.dropout import *
from tocha.nn.modules.flatten import *
from tocha.nn.modules.fold import *
from tocha.nn.modules.instancenorm import *
from tocha.nn.modules.linear import *
from tocha.nn.modules.loss import *
from tocha.nn.modules.module import Module
from tocha.nn.modules.normalization import *
from tocha.nn.modules.padding import *
from tocha.nn.modules.pixelshuffle import *
from tocha.nn.modules.pooling import *
from tocha.nn.modules.rnn import *
from tocha.nn.modules.sparse import *
from tocha.nn.modules.transformer import *
from tocha.nn.modules.upsampling import *

__all__ = [name for name in dir() if name[0].isupper()] + ["Module"]
