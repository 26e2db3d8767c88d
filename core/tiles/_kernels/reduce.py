"""Passes over frames in memory: each value is read once.

Sums go through lanes (see the loss engine's moments): they vectorise, and their last bit
does not depend on the machine.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats

"""float32 or float64, shape (frames, pixels), contiguous."""

LANES = 64


@subkernel
def _fold(lanes: Floats) -> float:
    half = len(lanes) >> 1
    while half > 0:
        for j in range(half):
            lanes[j] += lanes[j + half]
        half >>= 1
    return float(lanes[0])


@kernel
def weighted_sums(frames: Array, weights: Array, lanes: Floats, out: Floats) -> None:
    """``out[i, m]`` = sum over pixels of frame i times ``weights[m]``."""
    width = len(lanes)
    pixels = frames.shape[1]
    for i in range(frames.shape[0]):
        frame = frames[i]
        for m in range(weights.shape[0]):
            weight = weights[m]
            for j in range(width):
                lanes[j] = 0.0
            at = 0
            while at + width <= pixels:
                for j in range(width):
                    lanes[j] += np.float64(frame[at + j]) * np.float64(weight[at + j])
                at += width
            for j in range(pixels - at):
                lanes[j] += np.float64(frame[at + j]) * np.float64(weight[at + j])
            out[i, m] = _fold(lanes)


@kernel
def frame_moments(frames: Array, lanes: Floats, squares: Floats, out: Floats) -> None:
    """``out[i]`` = sum, sum of squared deviations from the mean, min and max of frame i."""
    width = len(lanes)
    pixels = frames.shape[1]
    for i in range(frames.shape[0]):
        frame = frames[i]
        low = frame[0]
        high = frame[0]
        for j in range(width):
            lanes[j] = 0.0
        for x in range(pixels):
            low = min(low, frame[x])
            high = max(high, frame[x])
        at = 0
        while at + width <= pixels:
            for j in range(width):
                lanes[j] += np.float64(frame[at + j])
            at += width
        for j in range(pixels - at):
            lanes[j] += np.float64(frame[at + j])
        total = _fold(lanes)
        mean = total / pixels
        for j in range(width):
            squares[j] = 0.0
        at = 0
        while at + width <= pixels:
            for j in range(width):
                d = np.float64(frame[at + j]) - mean
                squares[j] += d * d
            at += width
        for j in range(pixels - at):
            d = np.float64(frame[at + j]) - mean
            squares[j] += d * d
        out[i, 0] = total
        out[i, 1] = _fold(squares)
        out[i, 2] = low
        out[i, 3] = high


@kernel
def pixel_moments(
    frames: Array, before: int, mean: Floats, squares: Floats, low: Floats, high: Floats
) -> None:
    """Take frames into the running mean, squared deviations, min and max of every pixel.

    Welford's update (Technometrics 4, 1962); ``before`` frames have been taken.
    """
    pixels = frames.shape[1]
    for i in range(frames.shape[0]):
        frame = frames[i]
        count = np.float64(before + i + 1)
        for x in range(pixels):
            value = np.float64(frame[x])
            d = value - mean[x]
            mean[x] += d / count
            squares[x] += d * (value - mean[x])
            low[x] = min(low[x], value)
            high[x] = max(high[x], value)


@kernel
def pixel_sums(frames: Array, total: Floats) -> None:
    """Add frames to the total of every pixel."""
    for i in range(frames.shape[0]):
        frame = frames[i]
        for x in range(frames.shape[1]):
            total[x] += np.float64(frame[x])
