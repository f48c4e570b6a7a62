"""Pieces of the world: the same always, alone or together, and in order."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from foundation.datasets.world.clock import Clock, numbers_before
from foundation.datasets.world.config import WorldConfig
from foundation.datasets.world.randomness import user_keys
from foundation.datasets.world.ticks import World, shard_blocks
from foundation.datasets.world.timeline import draw_timeline
from tests.foundation.datasets.world.worlds import impressions_and_oracle, rows_of, small

ROOT = Path(__file__).parents[4]


def test_a_piece_is_the_same_however_it_is_come_by() -> None:
    alone = World(small()).piece(3, 1).digest()
    world = World(small())
    digests = {(piece.tick, piece.block): piece.digest() for piece in world.pieces()}
    assert digests[3, 1] == alone == world.piece(3, 1).digest()
    assert len(set(digests.values())) == len(digests)


def test_another_seed_gives_another_world() -> None:
    assert World(small(seed=8)).piece(0, 0).digest() != World(small()).piece(0, 0).digest()


def test_another_process_makes_the_same_world() -> None:
    code = (
        "from foundation.datasets.world.ticks import World\n"
        "from tests.foundation.datasets.world.worlds import small\n"
        "print(World(small()).piece(2, 1).digest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == World(small()).piece(2, 1).digest()


def test_a_longer_world_begins_with_the_shorter_one() -> None:
    short, long = World(small()).piece(4, 0), World(small(num_days=9)).piece(4, 0)
    for name, columns in short.tables.items():
        if name == "conversion":
            continue  # a longer log sees more of them
        for column in columns.keys() - {"convert"}:
            np.testing.assert_array_equal(columns[column], long.tables[name][column])


def test_more_users_leave_those_of_whole_blocks_as_they_were() -> None:
    few, many = World(small()).piece(1, 0), World(small(num_users=300)).piece(1, 0)
    assert few.digest() == many.digest()


def test_shards_hold_every_user_once() -> None:
    config = small(num_users=500)
    blocks = [shard_blocks(config, i, 5) for i in range(5)]
    assert [b for shard in blocks for b in shard] == list(range(config.num_blocks))
    world = World(config)
    ids = np.concatenate([rows_of(world, "impressions", shard)["example_id"] for shard in blocks])
    np.testing.assert_array_equal(
        np.sort(ids), np.sort(rows_of(world, "impressions")["example_id"])
    )


@pytest.mark.parametrize(("shard", "num"), [(2, 2), (-1, 2), (0, 99), (0, 0)])
def test_a_shard_that_does_not_exist_is_refused(shard: int, num: int) -> None:
    with pytest.raises(DataError, match="shard"):
        shard_blocks(small(), shard, num)


@given(seed=st.integers(0, 2**63 - 1), events_per_day=st.floats(0.5, 100.0))
@settings(max_examples=15, deadline=None)
def test_ticks_share_out_each_users_events_without_gap_or_overlap(
    seed: int, events_per_day: float
) -> None:
    config = small(seed=seed, events_per_day=events_per_day, num_users=8, ticks_per_day=4)
    users, clock = World(config).users(0), Clock(config)
    first, last = (
        numbers_before(users.keys, users.rate * clock.activity(at_ms) + users.phase)
        for at_ms in (config.start_ms, config.end_ms)
    )
    numbers: dict[int, list[int]] = {row: [] for row in range(len(users))}
    for tick in range(config.num_ticks):
        line = draw_timeline(config, clock, users, tick=tick, block=0)
        from_ms = config.start_ms + tick * config.tick_ms
        assert ((line.at_ms >= from_ms - 1) & (line.at_ms <= from_ms + config.tick_ms)).all()
        for row, number in zip(line.rows.tolist(), line.numbers.tolist(), strict=True):
            numbers[row].append(number)
    for row, found in numbers.items():
        assert found == list(range(first[row], last[row]))


def test_a_request_comes_after_its_event_and_before_the_next() -> None:
    config = small(fault_scale=0.0, requests_per_event=1.0)
    world = World(config)
    for piece in world.pieces():
        seen = piece.tables["impressions"]
        events = {
            int(event_id): int(at_ms)
            for name in ("view", "search", "cart", "purchase", "like", "video")
            for event_id, at_ms in zip(
                piece.tables[name]["event_id"], piece.tables[name]["at_ms"], strict=True
            )
        }
        for request, at_ms in zip(seen["request_id"].tolist(), seen["at_ms"].tolist(), strict=True):
            assert events[request] <= at_ms
            if request + 1 in events:
                assert at_ms <= events[request + 1]


def test_no_request_shows_an_ad_twice_or_one_that_is_dead() -> None:
    world = World(small(ad_churn_frac=0.4, num_ads=40))
    for piece in world.pieces():
        seen = piece.tables["impressions"]
        pairs = np.stack([seen["request_id"], seen["item_id"]])
        assert np.unique(pairs, axis=1).shape == pairs.shape
        assert np.isin(seen["item_id"] - 1, world.catalogue.alive(piece.tick)).all()


def test_the_share_of_new_ads_each_day_is_the_churn() -> None:
    world = World(small(num_ads=20_000, ad_churn_frac=0.05, num_days=6))
    for day in range(5):
        changed = world.catalogue.alive(day) != world.catalogue.alive(day + 1)
        assert changed.mean() == pytest.approx(0.05, abs=0.005)
        born = world.catalogue.born_on_day()[world.catalogue.alive(day + 1)]
        assert (born[changed] == day + 1).all()
        assert (born[~changed] <= day).all()


def test_users_are_as_active_as_the_dials_say() -> None:
    world = World(small(num_users=2000, users_per_block=2000, fault_scale=0.0, num_days=14))
    events = sum(
        len(piece.tables[name]["user_id"])
        for piece in world.pieces()
        for name in ("view", "search", "cart", "purchase", "like", "video")
    )
    seen, _ = impressions_and_oracle(world)
    assert events / (2000 * 14) == pytest.approx(12.0, rel=0.1)
    requests = len(np.unique(seen["request_id"]))
    assert requests / events == pytest.approx(0.15, rel=0.02)


@pytest.mark.parametrize(
    ("dials", "word"),
    [
        ({"horizon": 100}, "horizon"),
        ({"rho": -1.0}, "rho"),
        ({"num_shown": 9, "num_candidates": 8}, "num_shown"),
        ({"ticks_per_day": 5}, "ticks_per_day"),
        ({"num_days": 3000, "events_per_day": 500.0}, "num_days x events_per_day"),
    ],
)
def test_a_dial_out_of_range_is_refused_by_name(dials: dict[str, float], word: str) -> None:
    with pytest.raises(DataError, match=word):
        WorldConfig(**dials)  # type: ignore[arg-type]


def test_every_dial_says_what_it_is_and_in_what_unit() -> None:
    for field in dataclasses.fields(WorldConfig):
        assert field.metadata["text"]
        assert "unit" in field.metadata


def test_keys_of_users_do_not_depend_on_their_block() -> None:
    together = user_keys(3, np.arange(100))
    np.testing.assert_array_equal(together[40:60], user_keys(3, np.arange(40, 60)))
