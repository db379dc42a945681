"""The demo's network on N processes by FSDP2, each with a part of every parameter; losses as of one process.

python examples/train_fsdp.py
python -m torch.distributed.run --nproc-per-node 2 examples/train_fsdp.py
"""

from parallel_digits import train
from torch import nn
from torch.distributed.fsdp import fully_shard


def sharded(model: nn.Module) -> nn.Module:
    """Each layer with parameters is gathered by itself."""
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    return fully_shard(model)


if __name__ == "__main__":
    train(sharded)
