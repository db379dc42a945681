"""The demo's network on N processes by DistributedDataParallel; its losses are those of one process.

python examples/train_ddp.py
python -m torch.distributed.run --nproc-per-node 2 examples/train_ddp.py
"""

from parallel_digits import train
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    train(DistributedDataParallel)
