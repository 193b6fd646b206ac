"""SI of the units that results are told in: seconds of an hour and a day, bytes of a GB, a TB and a GiB."""

from __future__ import annotations

HOUR = 3600.0
DAY = 24 * HOUR
GB, TB, GIB = 1e9, 1e12, 2**30
