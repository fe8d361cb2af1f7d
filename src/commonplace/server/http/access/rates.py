"""Rates: how many calls in how much time a caller has, counted in this process by a token bucket a caller."""

from __future__ import annotations

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from commonplace.errors import InvalidInput, RateLimited

MAX_CALLERS = 10_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WRITTEN = re.compile(r"([1-9]\d{0,8})/([smhd])")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls in so many seconds, all at once where nothing was used before."""

    calls: int
    seconds: int

    @classmethod
    def parse(cls, text: str) -> Rate:
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None:
            raise InvalidInput(f"{text!r} is no rate; write how many calls a second, minute, hour or day: 100/m")
        return cls(int(match[1]), _SECONDS[match[2]])

    def __str__(self) -> str:
        return f"{self.calls}/{next(unit for unit, seconds in _SECONDS.items() if seconds == self.seconds)}"


class Rates:
    """The buckets. Those of callers that were quiet longest are forgotten, which is in their favour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, rate: Rate) -> None:
        """Count one call, or raise RateLimited with the time until there is room for it."""
        now = self._clock()
        with self._lock:
            held, at = self._buckets.pop(caller, (float(rate.calls), now))
            held = min(rate.calls, held + (now - at) * rate.calls / rate.seconds)
            is_taken = held >= 1
            self._buckets[caller] = (held - 1 if is_taken else held, now)
            if len(self._buckets) > MAX_CALLERS:
                self._buckets.popitem(last=False)
        if not is_taken:
            wait = math.ceil((1 - held) * rate.seconds / rate.calls)
            raise RateLimited(f"this access takes {rate} calls; try again in {wait} s", wait)
