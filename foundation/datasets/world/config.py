"""Every dial of the world, in one frozen object.

`gemcutter world --help` is made from the texts here, so a dial is described once. A longer world
begins with the shorter one's days, except that outcomes which the shorter log ended too early to
see are then seen, and more users leave those of whole blocks as they were. Any other dial may
change every draw that depends on it, and none of the others.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from features.errors import DataError
from features.times import LATEST_MS

MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR
MAX_HORIZON = 1 << 13
NUM_STYLES = 16
"""Styles of ads and of what users do; a power of two, so that matches are exactly fair."""

# An event's number must fit 24 bits beside its user's id, see `clock`.
MAX_EVENTS_PER_USER = 1 << 23
MAX_SHOWN = 16
MAX_ORGANIC_SOURCES = 8


# The first dial of each group, in the order of the dials.
GROUPS = {
    "seed": "Size",
    "events_per_day": "Activity",
    "num_dims": "Taste",
    "num_ads": "Ads",
    "num_surfaces": "Surfaces",
    "num_sources": "Sources",
    "rho": "Memory",
    "taste_logit_sd": "Clicks",
    "requests_per_event": "Exposure",
    "delay_hours": "Conversions",
}


def _dial(default: float, text: str, unit: str, low: float, high: float) -> Any:
    return dataclasses.field(
        default=default, metadata={"text": text, "unit": unit, "low": low, "high": high}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """The dials, each with its meaning, unit and range; the defaults are a small world.

    Raises:
        DataError: a dial is out of its range, or two do not fit together.
    """

    # The defaults make about 200,000 impressions and 370,000 other events.
    seed: int = _dial(7, "Changes every draw.", "", 0, 2**63 - 1)
    num_users: int = _dial(1000, "Users.", "users", 1, 2**31 - 1)
    num_days: int = _dial(28, "Length of the log.", "days", 4, 3650)
    start_ms: int = _dial(1_704_067_200_000, "First moment.", "Unix ms, UTC", 0, LATEST_MS)
    ticks_per_day: int = _dial(1, "Pieces of time of a day that are made at once.", "", 1, 24)
    users_per_block: int = _dial(
        512, "Users that are made at once; a shard is some whole blocks.", "users", 1, 65536
    )

    events_per_day: float = _dial(
        12.0, "Organic events of a mean user.", "events/day", 0.01, 5000.0
    )
    activity_sigma: float = _dial(
        0.5, "Spread of users' activity: SD of its log.", "log units", 0.0, 2.0
    )
    daily_cycle_frac: float = _dial(0.6, "Swing of the hour of day.", "frac", 0.0, 0.95)
    weekly_cycle_frac: float = _dial(0.2, "Swing of the weekend.", "frac", 0.0, 0.95)
    shock_day_frac: float = _dial(
        0.04, "Days on which one department is in fashion.", "frac", 0.0, 1.0
    )
    shock_logit: float = _dial(1.0, "How much, on such a day.", "logit", 0.0, 5.0)

    num_dims: int = _dial(16, "Width of tastes and contents.", "", 2, 64)
    num_departments: int = _dial(16, "Upper level of the topic tree.", "", 2, 128)
    topics_per_department: int = _dial(16, "Lower level of the topic tree.", "", 1, 128)
    zipf_exponent: float = _dial(1.0, "Of the popularity of branches and ads.", "", 0.0, 2.0)
    trend_sd: float = _dial(0.03, "Step of topics' popularity walk, each day.", "logit", 0.0, 1.0)
    num_intents: int = _dial(2, "Fast intents that a user may have at once.", "", 0, 8)
    intent_days: float = _dial(4.0, "An intent starts once in this time.", "days", 1.0, 60.0)
    intent_hours: float = _dial(30.0, "Mean length of an intent.", "hours", 0.1, 1000.0)

    num_ads: int = _dial(4000, "Ads alive at any moment.", "ads", 1, 2**19)
    ad_churn_frac: float = _dial(0.04, "Ads replaced by new ones each day.", "frac/day", 0, 0.5)
    semantic_noise_sd: float = _dial(
        0.5, "Noise of ads' observed content vectors; 1 is as much as signal.", "", 0.0, 10.0
    )

    num_surfaces: int = _dial(4, "Places where ads are shown.", "", 2, 16)
    min_relatedness: float = _dial(
        0.5, "Of the surface least like the first; the others lie between.", "frac", 0.0, 1.0
    )
    conflict_frac: float = _dial(
        0.75, "Share of taste that the last surface turns round.", "frac", 0.0, 1.0
    )

    num_sources: int = _dial(
        6, "Organic event sources; ad clicks and conversions are two more.", "", 4, 8
    )
    fault_scale: float = _dial(
        1.0, "Scales drops, duplicates, lateness and clock skew; 0 for none.", "", 0.0, 5.0
    )

    rho: float = _dial(
        1.0, "How fast memory fades: hidden variance falls as length ** -rho.", "", 0.0, 4.0
    )
    horizon: int = _dial(
        256, "Farthest event that still matters; a power of two.", "events", 2, MAX_HORIZON
    )
    memory_logit_sd: float = _dial(0.8, "All of planted memory; 0 for none.", "logit", 0.0, 3.0)
    taste_logit_sd: float = _dial(0.7, "Slow taste for a content.", "logit", 0.0, 3.0)
    ad_logit_sd: float = _dial(0.3, "An ad's own effect, beyond its content.", "logit", 0.0, 3.0)
    intent_logit: float = _dial(1.5, "Of an ad for a present intent.", "logit", 0.0, 5.0)
    position_logit: float = _dial(0.25, "Lost each doubling of position.", "logit", 0.0, 3.0)
    fatigue_logit: float = _dial(0.15, "Lost with events of the day.", "logit", 0.0, 3.0)
    hour_logit: float = _dial(0.15, "Swing of the hour of day.", "logit", 0.0, 3.0)
    noise_logit_sd: float = _dial(0.1, "That nothing observed explains.", "logit", 0.0, 3.0)
    base_click_frac: float = _dial(0.1, "Clicks of impressions, about.", "frac", 0.001, 0.5)
    base_conversion_frac: float = _dial(0.2, "Conversions of clicks, about.", "frac", 0.001, 0.9)

    requests_per_event: float = _dial(0.15, "Requests for each organic event.", "frac", 0.0, 1.0)
    num_shown: int = _dial(4, "Impressions of a request.", "", 1, MAX_SHOWN)
    num_candidates: int = _dial(8, "Ads that a request chooses from.", "", 2, 64)
    policy_temperature: float = _dial(
        0.5, "Of the policy's choice; towards 0 it takes the best.", "", 0.05, 10.0
    )
    policy_noise_sd: float = _dial(0.5, "Of the policy's scores.", "logit", 0.0, 5.0)
    explore_frac: float = _dial(0.1, "Places given away evenly.", "frac", 0.0, 1.0)
    is_second_price: bool = dataclasses.field(
        default=True, metadata={"text": "Winners pay what they had to beat.", "unit": ""}
    )
    reserve_micros: int = _dial(100_000, "Least price.", "micros", 0, 10**9)

    delay_hours: float = _dial(18.0, "Mean delay of conversions, about.", "hours", 0.01, 2000.0)
    attribution_days: float = _dial(7.0, "Conversions later than this do not count.", "days", 0, 90)
    refund_frac: float = _dial(0.01, "Conversions taken back.", "frac", 0.0, 1.0)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, meta = getattr(self, field.name), field.metadata
            if "low" in meta and not meta["low"] <= value <= meta["high"]:
                raise DataError(
                    f"{field.name}: expected {meta['low']:g} to {meta['high']:g} "
                    f"{meta['unit']}".rstrip()
                    + f", got {value!r}"
                )
        if self.horizon & (self.horizon - 1):
            raise DataError(f"horizon: expected a power of two, got {self.horizon}")
        if 24 % self.ticks_per_day:
            raise DataError(f"ticks_per_day: expected a divisor of 24, got {self.ticks_per_day}")
        if self.num_shown > self.num_candidates:
            raise DataError(
                f"num_shown: expected at most num_candidates ({self.num_candidates}), "
                f"got {self.num_shown}"
            )
        if self.num_days * self.events_per_day > MAX_EVENTS_PER_USER / 64:
            raise DataError(
                f"num_days x events_per_day: expected at most {MAX_EVENTS_PER_USER // 64}, got "
                f"{self.num_days * self.events_per_day:g}"
            )

    @property
    def num_topics(self) -> int:
        """Leaves of the topic tree."""
        return self.num_departments * self.topics_per_department

    @property
    def num_bands(self) -> int:
        """Kinds of occasions whose last event matters; the horizon is 2 to this."""
        return self.horizon.bit_length() - 1

    @property
    def num_ticks(self) -> int:
        """Ticks of the whole log."""
        return self.num_days * self.ticks_per_day

    @property
    def tick_ms(self) -> int:
        """Length of a tick."""
        return MS_PER_DAY // self.ticks_per_day

    @property
    def end_ms(self) -> int:
        """First moment after the log."""
        return self.start_ms + self.num_days * MS_PER_DAY

    @property
    def num_blocks(self) -> int:
        """Blocks of users."""
        return -(-self.num_users // self.users_per_block)
