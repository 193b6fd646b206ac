from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import units
from planner.errors import Refused

READ = [
    (units.tokens, "3T", 3 * 10**12),
    (units.tokens, "2M tokens", 2_000_000),
    (units.tokens, "300B", 300 * 10**9),
    (units.tokens, "1.3T tokens", 1_300_000_000_000),
    (units.tokens, "4Mi tokens", 4 * 2**20),
    (units.tokens, "1e12", 10**12),
    (units.tokens, 1e12, 10**12),
    (units.tokens, "1_000_000", 10**6),
    (units.tokens, "1,000,000 tokens", 10**6),
    (units.sequence_length, 4096, 4096),
    (units.sequence_length, "8Ki", 8192),
    (units.money, "2M USD", 2e6),
    (units.money, "$2M", 2e6),
    (units.money, "USD 150k", 150e3),
    (units.money, "1,500,000 USD", 1.5e6),
    (units.money, "2.5B USD", 2.5e9),
    (units.price, "2.00 USD/gpu-hour", 2.0),
    (units.price, "$0.80/gpu-hour", 0.8),
    (units.price, "0.5 USD / GPU-hour", 0.5),
    (units.value_of_time, "86400 USD/day", 1.0),
    (units.value_of_time, "$3600/h", 1.0),
    (units.duration, "60 days", 60 * 86400.0),
    (units.duration, "8 weeks", 56 * 86400.0),
    (units.duration, "36 h", 36 * 3600.0),
    (units.duration, "1.5d", 1.5 * 86400),
    (units.duration, "90 min", 5400.0),
    (units.size, "80 GB", 80e9),
    (units.size, "75 GiB", 75 * 2.0**30),
    (units.bandwidth, "50 GB/s", 50e9),
    (units.bandwidth, "400 Gbit/s", 50e9),
    (units.bandwidth, "400 Gb/s", 50e9),
    (units.fraction, "5%", 0.05),
    (units.fraction, 0.4, 0.4),
    (units.count, "16", 16),
    (units.parameters, "1.8T", 1.8e12),
]

REFUSED = [
    (units.tokens, "3 tesla", "3T"),
    (units.tokens, "70 GB", "3T"),
    (units.tokens, "0.3", "3T"),
    (units.tokens, -3, "3T"),
    (units.tokens, "1e30", "3T"),
    (units.tokens, True, "booleans"),
    (units.tokens, None, "3T"),
    (units.tokens, [3], "3T"),
    (units.tokens, "", "3T"),
    (units.tokens, "nan", "not a finite"),
    (units.tokens, float("inf"), "not a finite"),
    (units.tokens, "-.inf", "not a finite"),
    (units.tokens, "1,5T", "thousands"),
    (units.tokens, "1e999999999", "more than any plan"),
    (units.sequence_length, "4K", "1024"),
    (units.money, 2_000_000, "write 2000000 USD"),
    (units.money, "2M EUR", "USD"),
    (units.money, "2M USDD", "USD"),
    (units.money, "$-5", "not positive"),
    (units.money, "2 USD/gpu-hour", "2M USD"),
    (units.price, "2 USD", "per GPU and hour"),
    (units.price, "2 USD/h", "per GPU and hour"),
    (units.price, "16 USD/node-hour", "USD/gpu-hour"),
    (units.price, "0 USD/gpu-hour", "own"),
    (units.price, "2000 USD/gpu-hour", "more than any plan"),
    (units.duration, 60, "60:00"),
    (units.duration, "60:00", "60 min"),
    (units.duration, "1.5 months", "give days"),
    (units.duration, "1 year", "give days"),
    (units.duration, "5 m", "minutes or months"),
    (units.duration, "60 dyas", "did you mean 'days'"),
    (units.duration, "0 days", "not positive"),
    (units.duration, "-3 days", "not positive"),
    (units.duration, "1e6 days", "more than any plan"),
    (units.size, "80", "80 GB"),
    (units.size, "80 Gb", "GiB"),
    (units.bandwidth, "50 GB", "GB/s"),
    (units.fraction, 5, "did you mean 5%"),
    (units.fraction, "140%", "from 0 to 1"),
    (units.fraction, -0.1, "from 0 to 1"),
    (units.batch, 640, "say tokens or sequences"),
    (units.batch, "0.5 sequences", "whole"),
    (units.count, 2.5, "whole"),
    (units.count, "8 GPUs", "whole number"),
    (units.count, 0, "1 or more"),
]


@pytest.mark.parametrize(("parse", "written", "value"), READ)
def test_a_quantity_is_read_exactly(parse, written, value):
    result = parse(written)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(("parse", "written", "says"), REFUSED)
def test_what_is_not_that_quantity_is_refused_and_told_what_is(parse, written, says):
    with pytest.raises(Refused) as caught:
        parse(written)
    assert says in str(caught.value)
    assert caught.value.accepted


@given(st.integers(1, 9_999), st.sampled_from([("K", 10**3), ("M", 10**6), ("B", 10**9), ("T", 10**12)]))
def test_tokens_are_exact_integers_whatever_the_scale(number, scale):
    suffix, factor = scale
    assert units.tokens(f"{number / 1000:.3f}{suffix}") == number * factor // 1000


PARSERS = (
    units.tokens,
    units.money,
    units.price,
    units.duration,
    units.size,
    units.bandwidth,
    units.fraction,
)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=20), st.floats(), st.integers(), st.booleans(), st.none()))
def test_no_value_raises_anything_but_a_refusal(value):
    for parse in (
        *PARSERS,
        units.batch,
        units.count,
        units.value_of_time,
        units.plain,
        units.sequence_length,
    ):
        with suppress(Refused):
            parse(value)
