"""Does a measured curve stay flat? A robust slope, so that a few odd samples decide nothing.

The slope is the median of the slopes between all pairs of samples (Theil and Sen); how sure it is, is said by the
spread of those slopes between the samples' first and second half, whatever their distribution.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM_UP = 0.25  # of the samples: caches fill, pools grow
SAMPLES_MIN = 8


@dataclass(frozen=True)
class Curve:
    """What one column of the samples has to keep to: it may grow by ``share`` of its middle, or by ``slack``, over the
    whole run, whichever is more."""

    name: str
    unit: str
    share: float
    slack: float


@dataclass(frozen=True)
class Verdict:
    """``grown`` is the slope times the length of the run, in the curve's unit; ``allowed`` how much that may be."""

    curve: Curve
    middle: float
    grown: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.grown <= self.allowed

    def line(self) -> str:
        word = "flat " if self.is_flat else "GROWS"
        return (
            f"{word} {self.curve.name}: {self.middle:.4g} {self.curve.unit}, "
            f"{self.grown:+.3g} over the run, up to {self.allowed:.3g} is allowed"
        )


def judge(curve: Curve, times: Sequence[float], values: Sequence[float]) -> Verdict:
    """The verdict about one curve, its warm-up left out. Raises ValueError for fewer than ``SAMPLES_MIN`` samples."""
    start = int(len(values) * WARM_UP)
    times, values = times[start:], values[start:]
    if len(values) < SAMPLES_MIN:
        raise ValueError(f"{len(values)} samples after the warm-up are too few, {SAMPLES_MIN} are needed")
    middle = statistics.median(values)
    grown = slope(times, values) * (times[-1] - times[0])
    return Verdict(curve, middle, grown, max(curve.share * middle, curve.slack))


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Median of the slopes between samples half a run apart and further, where noise weighs least."""
    half = (times[-1] - times[0]) / 2
    slopes = [
        (values[b] - values[a]) / (times[b] - times[a])
        for a in range(len(values))
        for b in range(a + 1, len(values))
        if times[b] - times[a] >= half
    ]
    return statistics.median(slopes)
