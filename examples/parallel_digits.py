"""Code that train_ddp.py and train_fsdp.py share: the demo's network and data, on one process or several."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import torch
from torch import distributed, nn

import opsmith
from opsmith.cli.demonstration.training import BATCH, digits, network


def train(wrap: Callable[[nn.Module], nn.Module]) -> None:
    """Trains what ``wrap`` makes of the network, and has the first process print the loss of each epoch.

    Each process takes its part of each batch; batch norm is over all of it, and nothing is dropped, so that
    the losses are those of one process.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="sim", help="a backend of opsmith")
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    device = opsmith.load(asked.device).name
    alone = "RANK" not in os.environ  # not started by torch.distributed.run
    if not alone:
        distributed.init_process_group()
    rank, ranks = (0, 1) if alone else (distributed.get_rank(), distributed.get_world_size())
    if BATCH % ranks:
        raise SystemExit(f"batches of {BATCH} images cannot be split among {ranks} processes")

    torch.manual_seed(0)
    model = network()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model = (
        model.to(device)
        if alone
        else wrap(nn.SyncBatchNorm.convert_sync_batchnorm(model.to(device)))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images, labels = digits()
    source = torch.Generator().manual_seed(0)
    for epoch in range(asked.epochs):
        losses = []
        for batch in torch.randperm(len(images), generator=source).split(BATCH):
            if len(batch) < BATCH:
                continue
            own = batch[rank::ranks]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(images[own].to(device)), labels[own].to(device)
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        if not alone:
            distributed.all_reduce(mean, op=distributed.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {mean.item():.6f} on {ranks} x {device}", flush=True)
    if not alone:
        distributed.destroy_process_group()
