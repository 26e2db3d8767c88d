"""Quantiles of beta distributions, by Newton's method between bounds.

I(x; a, b) is Lentz's evaluation of the continued fraction in the Digital Library of Mathematical
Functions, 8.17.22, on the side of the mean where it converges at once. It takes some square root
of a and b in terms, so that where both are large the Cornish-Fisher expansion takes over, whose
error is below 1e-5 standard deviations there.
"""

from __future__ import annotations

import math

from ..._jit import kernel, subkernel
from ...arrays import Floats

_TINY = 1e-300
_ACCURATE = 1e-14
_TERMS = 10_000
_STEPS = 200
_STIRLING = 30.0
_LARGE = 1e4
"""Both parameters, from where the distribution is nearly normal."""


@subkernel
def _rest(x: float) -> float:
    """What Stirling's formula leaves of the logarithm of the gamma function, from ``_STIRLING``."""
    return (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x


@subkernel
def _log_beta(a: float, b: float) -> float:
    """Logarithm of the beta function, whose gamma functions may be far larger than itself."""
    small, large = min(a, b), max(a, b)
    if large < _STIRLING:
        return math.lgamma(small) + math.lgamma(large) - math.lgamma(small + large)
    both = small + large
    ratio = small - (large - 0.5) * math.log1p(small / large) - small * math.log(both)
    return math.lgamma(small) + ratio + _rest(large) - _rest(both)


@subkernel
def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function."""
    c, d = 1.0, 0.0
    value = 1.0
    for n in range(_TERMS):
        m = n // 2
        if n == 0:
            term = 1.0
        elif n % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d = 1.0 + term * d
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = 1.0 + term / c
        c = c if abs(c) > _TINY else _TINY
        value *= c * d
        if n > 0 and abs(c * d - 1.0) < _ACCURATE:
            break
    return value - 1.0


@subkernel
def _below(x: float, a: float, b: float, scale: float) -> float:
    """I(x; a, b), where ``scale`` is the logarithm of the beta function."""
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - scale)
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


@subkernel
def _begin(u: float, a: float, b: float, scale: float) -> float:
    """Near 0 and 1 the density is a power, whose quantile is one; else begin at the mean."""
    low = math.exp(min((math.log(u * a) + scale) / a, 0.0))
    if low < 0.1 * a / (a + b):
        return low
    high = math.exp(min((math.log((1.0 - u) * b) + scale) / b, 0.0)) if u < 1.0 else 0.0
    return 1.0 - high if high < 0.1 * b / (a + b) else a / (a + b)


@subkernel
def quantile(u: float, a: float, b: float) -> float:
    """Where I(x; a, b) reaches u, which is above 0 and at most 1."""
    scale = _log_beta(a, b)
    low, high = 0.0, 1.0
    x = _begin(u, a, b, scale)
    for _ in range(_STEPS):
        if x <= 0.0 or x >= 1.0:
            break
        error = _below(x, a, b, scale) - u
        if error > 0.0:
            high = x
        else:
            low = x
        log_density = (a - 1.0) * math.log(x) + (b - 1.0) * math.log1p(-x) - scale
        following = x - error * math.exp(min(-log_density, 700.0))
        if not low < following < high:
            following = math.sqrt(low * high) if low > 0.0 else 0.5 * high
        if abs(following - x) <= _ACCURATE * x:
            return following
        x = following
    return x


@subkernel
def _expanded(z: float, a: float, b: float) -> float:
    """The quantile of a normal score by the expansion of Cornish and Fisher."""
    n = a + b
    spread = math.sqrt(a * b / (n + 1.0)) / n
    skew = 2.0 * (b - a) * math.sqrt(n + 1.0) / ((n + 2.0) * math.sqrt(a * b))
    excess = (a - b) * (a - b) * (n + 1.0) / (a * b) - (n + 2.0)
    excess *= 6.0 / ((n + 2.0) * (n + 3.0))
    score = z + skew * (z * z - 1.0) / 6.0 + excess * (z * z * z - 3.0 * z) / 24.0
    score -= skew * skew * (2.0 * z * z * z - 5.0 * z) / 36.0
    return min(max(a / n + spread * score, 0.0), 1.0)


@kernel
def beta_losses(
    means: Floats, shapes: Floats, exposed: Floats, scores: Floats, out: Floats
) -> None:
    """Losses of beta distributions at normal scores.

    Args:
        means: over exposed values, in 0 to 1, shape (n,).
        shapes: a + b of each; 0 where the loss is the mean, shape (n,).
        exposed: shape (n,).
        scores: of a standard normal distribution, shape (n,).
        out: the losses, shape (n,).
    """
    for i in range(len(means)):
        a, b = means[i] * shapes[i], (1.0 - means[i]) * shapes[i]
        if shapes[i] == 0.0:
            ratio = means[i]
        elif a > _LARGE and b > _LARGE:
            ratio = _expanded(scores[i], a, b)
        else:
            u = 0.5 * math.erfc(-scores[i] * math.sqrt(0.5))
            ratio = quantile(u, a, b) if u > 0.0 else 0.0
        out[i] = ratio * exposed[i]
