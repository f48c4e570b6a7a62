"""What the dials promise of the log: prices, faults, intents, tastes, cycles."""

import numpy as np
import pytest

from foundation.datasets.world.config import MS_PER_DAY, WorldConfig
from foundation.datasets.world.organic import ORGANIC_SOURCES
from foundation.datasets.world.ticks import World
from tests.foundation.datasets.world.worlds import impressions_and_oracle, rows_of, small

LARGE = {"num_users": 2000, "users_per_block": 2000}


def bids_of(world: World, item_ids: np.ndarray) -> np.ndarray:
    return np.exp(world.catalogue.log_bid[item_ids - 1], dtype=np.float64).astype(np.int64)


def test_a_second_price_is_between_the_reserve_and_the_bid() -> None:
    world = World(small(reserve_micros=200_000))
    seen = rows_of(world, "impressions")
    bids = bids_of(world, seen["item_id"])
    assert (seen["price_micros"] >= 200_000).all()
    assert (seen["price_micros"] <= np.maximum(bids, 200_000)).all()
    assert (seen["price_micros"] < bids).mean() > 0.3


def test_a_first_price_is_the_bid() -> None:
    world = World(small(is_second_price=False, reserve_micros=0))
    seen = rows_of(world, "impressions")
    np.testing.assert_array_equal(seen["price_micros"], bids_of(world, seen["item_id"]))


@pytest.mark.parametrize("name", ["view", "video", "purchase"])
def test_rows_are_dropped_doubled_and_late_as_often_as_planted(name: str) -> None:
    spec = next(source for source in ORGANIC_SOURCES if source.name == name)
    clean, faulty = (
        rows_of(World(small(fault_scale=scale, **LARGE)), name) for scale in (0.0, 1.0)
    )
    num_true = len(clean["event_id"])
    assert len(np.unique(clean["event_id"])) == num_true
    ids, counts = np.unique(faulty["event_id"], return_counts=True)
    assert np.isin(ids, clean["event_id"]).all()
    error = 4 / np.sqrt(num_true)
    assert 1 - len(ids) / num_true == pytest.approx(spec.drop_frac, abs=error)
    assert (counts == 2).sum() / num_true == pytest.approx(spec.duplicate_frac, abs=error)
    waits_ms = faulty["arrived_ms"] - faulty["at_ms"]
    # Skew moves both ways; lateness beyond a minute is what the planted tail leaves of it.
    expected = spec.late_frac * np.exp(-60_000 / spec.late_mean_ms)
    skewed_ms = 60_000 + 5 * spec.skew_ms
    found = (waits_ms > skewed_ms).mean()
    assert found == pytest.approx(expected, abs=error + 0.1 * spec.late_frac)


def test_a_policy_that_only_explores_fills_every_place_evenly() -> None:
    seen, oracle = impressions_and_oracle(World(small(explore_frac=1.0, num_ads=100_000)))
    for position in range(4):
        of_place = oracle["propensity"][seen["position"] == position]
        assert np.median(of_place) == pytest.approx(1 / (8 - position))


def test_a_cold_policy_takes_the_best_and_a_hot_one_anything() -> None:
    means = []
    for temperature in (0.05, 10.0):
        _, oracle = impressions_and_oracle(
            World(small(policy_temperature=temperature, explore_frac=0.0))
        )
        means.append(float(oracle["propensity"].mean()))
    assert means[0] > 0.8
    assert means[1] < 0.25


def test_ads_for_a_present_intent_are_clicked_more() -> None:
    with_intents, without = (
        impressions_and_oracle(World(small(intent_logit=logit, intent_hours=90.0, **LARGE)))[1]
        for logit in (5.0, 0.0)
    )
    gains = with_intents["p_click"] - without["p_click"]
    assert (gains > 0.3).mean() > 0.002
    # Nothing else changed.
    assert (np.abs(gains) < 1e-6).mean() > 0.9


def test_what_users_do_reveals_the_taste_that_ads_appeal_to() -> None:
    world = World(small(fault_scale=0.0, num_intents=0, **LARGE))
    likes = rows_of(world, "like")
    users = world.users(0)
    done = world.topics.vectors[likes["topic"]]
    tastes = users.surface_tastes[0, likes["user_id"]]
    others = users.surface_tastes[0, np.roll(likes["user_id"], 1000)]
    of_user, of_other = (np.einsum("nk,nk->n", t, done).mean() for t in (tastes, others))
    assert of_user > of_other + 0.5


def test_clicks_fall_with_position() -> None:
    seen, _ = impressions_and_oracle(World(small(position_logit=1.0, **LARGE)))
    rates = [seen["click"][seen["position"] == place].mean() for place in range(4)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 2 * rates[3]


def test_days_have_hours_and_weeks_have_ends() -> None:
    config = small(
        daily_cycle_frac=0.9, weekly_cycle_frac=0.9, shock_day_frac=0.0, num_days=14, **LARGE
    )
    at_ms = rows_of(World(config), "search")["at_ms"]
    hours = np.bincount(at_ms // 3_600_000 % 24, minlength=24)
    assert hours[14:19].mean() > 5 * hours[2:7].mean()
    weekdays = np.bincount((at_ms // MS_PER_DAY + 3) % 7, minlength=7)
    assert weekdays[5:].mean() / weekdays[:5].mean() == pytest.approx(1.9, abs=0.1)


def test_on_a_shock_day_more_happens() -> None:
    world = World(small(num_days=60, shock_day_frac=0.2, weekly_cycle_frac=0.0))
    assert 5 < world.clock.is_shock[:60].sum() < 20
    sizes = np.array([len(world.piece(day, 0).tables["view"]["at_ms"]) for day in range(60)])
    is_shock = world.clock.is_shock[:60]
    assert sizes[is_shock].mean() / sizes[~is_shock].mean() == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    "dials",
    [
        {"num_intents": 0, "memory_logit_sd": 0.0, "noise_logit_sd": 0.0},
        {"num_ads": 3, "num_candidates": 64, "num_shown": 16},
        {"requests_per_event": 0.0},
        {"events_per_day": 0.01},
        {"num_users": 1, "users_per_block": 1},
        {"ad_churn_frac": 0.0, "refund_frac": 1.0, "attribution_days": 0.0},
        {"horizon": 2, "num_dims": 2, "num_departments": 2, "topics_per_department": 1},
        {"num_surfaces": 2, "conflict_frac": 1.0, "ticks_per_day": 24},
    ],
)
def test_a_world_at_the_end_of_its_dials_can_be_made(dials: dict[str, float]) -> None:
    config: WorldConfig = small(**dials)
    seen, oracle = impressions_and_oracle(World(config))
    assert np.isfinite(oracle["p_click"]).all()
    assert ((oracle["propensity"] > 0) & (oracle["propensity"] <= 1)).all()
    assert set(np.unique(seen["click"])) <= {0, 1}
    if config.refund_frac == 1.0:
        assert not seen["convert"].any()
