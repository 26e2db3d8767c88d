"""Reduction kernels over frames in memory.

Sums are accumulated in lanes (see the moments of the loss engine): a fixed number of partial
sums, folded pairwise. Lanes vectorise, and the fixed order makes the last bit the same on every
machine.
"""

from __future__ import annotations

import numpy as np

from ..._jit import kernel, subkernel
from ...arrays import Array, Floats

LANES = 64
"""Number of partial sums."""
BLOCK = 1024
"""Pixels whose moments are computed at a time, so that they stay in the fastest cache."""


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
    """Compute ``out[i, m]``, the sum over pixels of frame i times ``weights[m]``.

    Frames and weights are float32 or float64, shape (n, pixels), contiguous. Pixels of weight 0
    do not count, whatever they are.
    """
    width = len(lanes)
    pixels = frames.shape[1]
    for i in range(frames.shape[0]):
        frame = frames[i]
        for m in range(weights.shape[0]):
            weight = weights[m]
            for j in range(width):
                lanes[j] = 0.0
            start = 0
            while start + width <= pixels:
                for j in range(width):
                    lanes[j] += np.float64(frame[start + j]) * np.float64(weight[start + j])
                start += width
            for j in range(pixels - start):
                lanes[j] += np.float64(frame[start + j]) * np.float64(weight[start + j])
            total = _fold(lanes)
            if not np.isfinite(total):
                # 0 times a NaN or an infinity is NaN. Looking only here costs other frames nothing.
                for j in range(width):
                    lanes[j] = 0.0
                for x in range(pixels):
                    if weight[x] != 0:
                        lanes[x % width] += np.float64(frame[x]) * np.float64(weight[x])
                total = _fold(lanes)
            out[i, m] = total


@kernel
def frame_moments(frames: Array, lanes: Floats, squares: Floats, out: Floats) -> None:
    """Compute ``out[i]``: sum, sum of squared deviations, min and max of frame i; NaN of a NaN."""
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
        start = 0
        while start + width <= pixels:
            for j in range(width):
                lanes[j] += np.float64(frame[start + j])
            start += width
        for j in range(pixels - start):
            lanes[j] += np.float64(frame[start + j])
        total = _fold(lanes)
        if np.isnan(total):
            # Of a NaN, or of infinities. Looking only here costs other frames nothing.
            for x in range(pixels):
                if np.isnan(frame[x]):
                    low = frame[x]
                    high = frame[x]
                    break
        mean = total / pixels
        for j in range(width):
            squares[j] = 0.0
        start = 0
        while start + width <= pixels:
            for j in range(width):
                d = np.float64(frame[start + j]) - mean
                squares[j] += d * d
            start += width
        for j in range(pixels - start):
            d = np.float64(frame[start + j]) - mean
            squares[j] += d * d
        out[i, 0] = total
        out[i, 1] = _fold(squares)
        out[i, 2] = low
        out[i, 3] = high


@kernel
def pixel_moments(
    frames: Array, mean: Floats, squares: Floats, low: Floats, high: Floats, rest: Floats
) -> None:
    """Compute mean, squared deviations, min and max of every pixel; all are NaN of a NaN.

    Deviations are from the mean as it is rounded, and ``rest`` is what it lacks: their mean, by
    which squares are corrected (Chan, Golub and LeVeque, 1983). ``low`` and ``high`` begin as
    infinities, all others as 0.
    """
    count = frames.shape[0]
    pixels = frames.shape[1]
    for begin in range(0, pixels, BLOCK):
        end = min(begin + BLOCK, pixels)
        # What they have in common goes first: values that are all equal deviate by 0.
        first = frames[0, begin:end]
        centre = mean[begin:end]
        deviation = squares[begin:end]
        missed = rest[begin:end]
        least = low[begin:end]
        most = high[begin:end]
        for i in range(count):
            frame = frames[i, begin:end]
            for x in range(end - begin):
                value = np.float64(frame[x])
                centre[x] += value - np.float64(first[x])
                least[x] = min(least[x], value)
                most[x] = max(most[x], value)
        for x in range(end - begin):
            centre[x] = np.float64(first[x]) + centre[x] / count
        for i in range(count):
            frame = frames[i, begin:end]
            for x in range(end - begin):
                d = np.float64(frame[x]) - centre[x]
                missed[x] += d
                deviation[x] += d * d
        for x in range(end - begin):
            missed[x] /= count
            square = deviation[x] - count * missed[x] * missed[x]
            deviation[x] = 0.0 if square < 0 else square
    for x in range(pixels):
        if np.isnan(mean[x]):
            # Of a NaN, or of infinities. Looking only here costs other pixels nothing.
            for i in range(count):
                if np.isnan(frames[i, x]):
                    low[x] = np.nan
                    high[x] = np.nan
                    break


@kernel
def pixel_sums(frames: Array, total: Floats) -> None:
    """Add frames to the total of every pixel."""
    for i in range(frames.shape[0]):
        frame = frames[i]
        for x in range(frames.shape[1]):
            total[x] += np.float64(frame[x])
