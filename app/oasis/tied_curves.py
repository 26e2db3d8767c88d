"""Whether two exceedance curves differ by the order of tied losses alone.

Losses of equal size, in periods of different weight, have their points in an order that nothing
defines. Let periods 1 and 2, of weights 0.02 and 0.10, both lose 100:

    by period             return periods 50, 8.33, ...   the row at 20 years is 100
    the other way round   return periods 10, 8.33, ...   there is no row at 20 years

The last point of the tie, 8.33, is the same, and so is every loss; points inside move, and with
them the losses interpolated beside the tie. So a curve is *equal but for ties*

* of all points, if losses are equal in order, and so are all return periods but those followed by
  an equal loss;
* at return periods, under weights that differ, if the curves agree on some loss, each other loss is
  between the nearest on which they agree, and rows of one curve alone are above the highest return
  period of the other. The mean of samples' curves (EPCalc 3) takes other samples at each return
  period: it has to be that of the PSEPT of its run, where there is one.

The outputs do not hold the losses of periods. So at return periods this shows that ties can explain
the difference, not that they do: hence an exit code of its own. Below the last loss TVaR follows
from the weights of other periods, and is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from core.arrays import Floats

PRINTED: Final = 1.01e-6
"""A unit of the last digit of a loss or a return period, as csv prints it."""


class Curve(NamedTuple):
    """Points of a curve, from the lowest return period."""

    periods: Floats
    losses: Floats

    def at(self, periods: Floats) -> Floats:
        """Losses at some of its return periods."""
        return self.losses[np.searchsorted(self.periods, periods)]


@dataclass(frozen=True, slots=True, eq=False)
class TiedCurves:
    """A curve of two runs.

    Of a TVaR, ``losses_a`` and ``losses_b`` are the losses it is the mean of; else the curves
    themselves.
    """

    a: Curve
    b: Curve
    losses_a: Curve
    losses_b: Curve
    tolerance: float

    def _close(self, a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
        return np.isclose(a, b, rtol=self.tolerance, atol=PRINTED)

    def tied_at_points(self) -> bool:
        """Whether curves of all points differ in the return periods inside ties alone."""
        ties = self.losses_a.losses
        if not len(ties) == len(self.a.losses) == len(self.b.losses):
            return False
        # The last point of a tie, which is defined, has the lowest return period.
        inside = np.append(False, self._close(ties[1:], ties[:-1]))
        equal = self._close(self.a.periods, self.b.periods)
        return bool(self._close(self.a.losses, self.b.losses).all() and (equal | inside).all())

    def tied_at_returns(self) -> bool:
        """Whether ties can explain how curves read at return periods differ."""
        if not len(self.a.periods) or not len(self.b.periods):
            return False
        shared = np.intersect1d(self.a.periods, self.b.periods)
        agree = shared[self._close(self.a.at(shared), self.b.at(shared))]
        agreed = Curve(agree, self.a.at(agree))
        if not agreed.losses.any():
            return False
        top = min(self.a.periods[-1], self.b.periods[-1])
        return all(
            np.isin(
                curve.periods[(curve.periods >= self._last()) & (curve.periods < top)], shared
            ).all()
            and self._is_between(curve, agreed)
            for curve in (self.a, self.b)
        )

    def _last(self) -> float:
        """The lowest return period with a loss; below it a TVaR is not defined under weights."""
        if self.losses_a is self.a:
            return 0.0
        both = (self.losses_a, self.losses_b)
        return min(
            (float(c.periods[c.losses > 0][0]) for c in both if c.losses.any()), default=np.inf
        )

    def _is_between(self, curve: Curve, agreed: Curve) -> bool:
        """Whether each point is between the nearest points on which both curves agree."""
        chosen = curve.periods >= self._last()
        periods, losses = curve.periods[chosen], curve.losses[chosen]
        least = np.append(0.0, agreed.losses)[np.searchsorted(agreed.periods, periods, "right")]
        most = np.append(agreed.losses, np.inf)[np.searchsorted(agreed.periods, periods, "left")]
        noise = self.tolerance * losses + PRINTED
        return bool(((losses >= least - noise) & (losses <= most + noise)).all())
