# mypy: disable-error-code="import-not-found"
"""Train for an epoch; killed and started again, it goes on with the next batch.

    python train.py http://127.0.0.1:8000 scan1 checkpoint.pt

A checkpoint holds the token of the last batch beside the model, so the losses are the same to the
last bit however often the trainer or the service is killed. Needs thalweg[torch].
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import thalweg
import thalweg.torch
import torch
from torch import nn
from torch.utils.data import DataLoader


def pipeline(dataset: str) -> dict[str, Any]:
    """Every frame once, in a random order that the seed fixes."""
    return {
        "order": 1,
        "stages": [
            {"op": "source", "dataset": dataset, "unit": "frame", "view": {"dtype": "<f4"}},
            {"op": "permute", "seed": 7},
            {"op": "batch", "size": 16},
        ],
    }


def train(url: str, dataset: str, path: Path) -> list[float]:
    """Train a small autoencoder; returns the losses of all batches, earlier processes' too."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more would add in an order of their own
    key = os.environ.get("THALWEG_KEY")
    with thalweg.Client(url, key) as client:
        height, width = client.datasets[dataset].sig_shape
    pixels = height * width
    model = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.Tanh(), nn.Linear(8, pixels))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = thalweg.torch.IterableDataset(url, pipeline(dataset), key=key)
    losses: list[float] = []
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.load_state_dict({"token": saved["token"]})
        losses = saved["losses"]
    for tensors, token in DataLoader(batches, batch_size=None):
        frames = tensors["data"] / 4096
        loss = nn.functional.mse_loss(model(frames), frames.flatten(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "token": token, "losses": losses}, f"{path}.partial")
        Path(f"{path}.partial").replace(path)  # a whole checkpoint, or the one before
        sys.stdout.write(f"batch {len(losses)}: {loss.item():.6f}\n")
        sys.stdout.flush()
    return losses


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("url", help="of the service; the variable THALWEG_KEY is its key")
    arguments.add_argument("dataset", help="id of a dataset of frames: thalweg datasets list")
    arguments.add_argument("checkpoint", type=Path, help="file to go on from, and to keep")
    given = arguments.parse_args()
    train(given.url, given.dataset, given.checkpoint)
