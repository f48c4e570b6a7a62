"""The log is drawn from what the oracle says, and the oracle from the closed forms."""

import numpy as np
import pytest

from features.metrics import normalized_entropy
from foundation.datasets.world import bands
from foundation.datasets.world.conversions import normal_tail, survival
from foundation.datasets.world.latent import (
    CONVERSION_RELATEDNESS,
    affinity_correlation,
    surface_matrices,
    surface_relatedness,
)
from foundation.datasets.world.oracle import describe
from foundation.datasets.world.organic import visible_quality
from foundation.datasets.world.ticks import World, shard_blocks
from tests.foundation.datasets.world.worlds import Rows, impressions_and_oracle, small

BLOCK = 2048


@pytest.fixture(scope="module")
def world() -> World:
    return World(small(num_users=4 * BLOCK, users_per_block=BLOCK, num_days=14, num_ads=4000))


@pytest.fixture(scope="module")
def truth(world: World) -> tuple[Rows, Rows]:
    return impressions_and_oracle(world)


def z_of(labels: np.ndarray, p: np.ndarray) -> float:
    p = p.astype(np.float64)
    return float((labels.sum() - p.sum()) / np.sqrt((p * (1 - p)).sum()))


def test_labels_are_as_frequent_as_their_probabilities_say(truth: tuple[Rows, Rows]) -> None:
    seen, oracle = truth
    for label, p in (("click", "p_click"), ("convert", "p_convert")):
        assert abs(z_of(seen[label], oracle[p])) < 4


def test_labels_are_calibrated_in_every_tenth_of_their_probabilities(
    truth: tuple[Rows, Rows],
) -> None:
    seen, oracle = truth
    for label, p in (("click", "p_click"), ("convert", "p_convert")):
        order = np.argsort(oracle[p])
        for part in np.array_split(order, 10):
            assert abs(z_of(seen[label][part], oracle[p][part])) < 4


@pytest.mark.slow
def test_ten_million_labels_are_as_frequent_as_their_probabilities_say() -> None:
    config = small(num_users=40 * BLOCK, users_per_block=BLOCK, num_days=16, num_ads=4000)
    num_rows, surplus, variance = 0, 0.0, 0.0
    for piece in World(config).pieces():
        p = piece.oracle["p_click"].astype(np.float64)
        num_rows += len(p)
        surplus += piece.tables["impressions"]["click"].sum() - p.sum()
        variance += (p * (1 - p)).sum()
    assert num_rows > 9_000_000
    assert abs(surplus / np.sqrt(variance)) < 4


def test_the_oracle_is_as_good_on_every_shard(world: World) -> None:
    values = []
    for shard in range(4):
        seen, oracle = impressions_and_oracle(world, shard_blocks(world.config, shard, 4))
        values.append(normalized_entropy(oracle["p_click"], seen["click"]))
    assert np.ptp(values) < 0.01
    assert 0.78 < np.mean(values) < 0.88


@pytest.mark.parametrize(("rho", "horizon"), [(0.0, 256), (0.5, 2048), (1.0, 256), (2.0, 8192)])
def test_seeing_a_history_is_worth_what_the_closed_form_says(rho: float, horizon: int) -> None:
    config = small(num_users=BLOCK, users_per_block=BLOCK, rho=rho, horizon=horizon, num_days=8)
    _, oracle = impressions_and_oracle(World(config))
    parts = bands.contributions(config, oracle["band_signs"])
    ages = bands.lags(config, oracle["event_number"])
    np.testing.assert_allclose(parts.sum(axis=1), oracle["logit_memory"], atol=1e-5)
    before = 0.0
    for num_visible in 2 ** np.arange(config.num_bands + 1):
        measured = float((parts * (ages <= num_visible)).sum(axis=1).var())
        expected = bands.explained_variance(config, int(num_visible))
        assert measured == pytest.approx(expected, rel=0.03)
        assert expected > before
        before = expected
    assert expected == pytest.approx(config.memory_logit_sd**2)


def test_a_weak_memory_saves_half_its_variance_times_p_times_1_minus_p() -> None:
    """To second order, hiding variance V of the logit costs V p (1 - p) / 2 of log-loss."""
    dials = {"num_users": BLOCK, "users_per_block": BLOCK, "num_days": 14}
    config = small(memory_logit_sd=0.3, noise_logit_sd=0.0, **dials)
    _, oracle = impressions_and_oracle(World(config))
    p = oracle["p_click"].astype(np.float64)
    rest = np.log(p / (1 - p)) - oracle["logit_memory"]
    parts = bands.contributions(config, oracle["band_signs"])
    ages = bands.lags(config, oracle["event_number"])
    for num_visible in (1, 4, 16):
        seen = parts * (ages <= num_visible)
        hidden_variance = config.memory_logit_sd**2 - bands.explained_variance(config, num_visible)
        # What is hidden is symmetric: its mean over p is sigmoid at the visible logit, to the
        # second order, plus half its variance times the second derivative.
        q = 1 / (1 + np.exp(-(rest + seen.sum(axis=1))))
        q = q + 0.5 * hidden_variance * q * (1 - q) * (1 - 2 * q)
        cost = np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
        expected = 0.5 * hidden_variance * np.mean(p * (1 - p))
        assert cost == pytest.approx(expected, rel=0.05)


def test_bands_are_fair_and_independent_of_one_another_and_of_the_rest(
    truth: tuple[Rows, Rows], world: World
) -> None:
    _, oracle = truth
    signs = bands.contributions(world.config, oracle["band_signs"]) / bands.band_weights(
        world.config
    )
    p = oracle["p_click"]
    rest = np.log(p / (1 - p)) - oracle["logit_memory"]
    # Rows of a request share their events, so 1 / sqrt(requests) is the yardstick.
    limit = 5 / np.sqrt(len(rest) / world.config.num_shown)
    found = np.corrcoef(np.column_stack([signs, rest]).T)
    assert np.abs(found - np.eye(len(found))).max() < limit
    assert np.abs(signs.mean(axis=0)).max() < limit


def test_the_length_law_has_the_exponent_rho() -> None:
    config = small(rho=0.5, horizon=8192)
    gains = [
        bands.explained_variance(config, 2 * n) - bands.explained_variance(config, n)
        for n in (4, 8, 16, 32)
    ]
    slopes = np.diff(np.log2(gains))
    np.testing.assert_allclose(slopes, -0.5, atol=0.02)


def test_a_lag_is_that_of_the_last_occasion_of_its_kind() -> None:
    config = small(horizon=64)
    numbers = np.arange(1000, 1200)
    kinds = bands.occasions(config, numbers)
    for last in range(1150, 1200):
        found = bands.lags(config, np.array([last]))[0]
        for kind in range(config.num_bands):
            newest = max(n for n, k in zip(numbers, kinds, strict=True) if k == kind and n <= last)
            assert last - newest + 1 == found[kind]


def test_delays_survive_as_planted(truth: tuple[Rows, Rows]) -> None:
    _, oracle = truth
    is_sold = oracle["delay_true_ms"] >= 0
    delays, means = oracle["delay_true_ms"][is_sold] + 0.5, oracle["delay_mean_ms"][is_sold]
    places = np.sort(survival(delays, means.astype(np.float64)))
    steps = (np.arange(len(places)) + 0.5) / len(places)
    assert len(places) > 20_000
    assert np.abs(places - steps).max() < 0.01


def test_the_normal_tail_is_that_of_the_books() -> None:
    np.testing.assert_allclose(
        normal_tail(np.array([-1.0, 0.0, 1.0, 1.959964, 3.0])),
        [0.8413447, 0.5, 0.1586553, 0.025, 0.0013499],
        atol=2e-7,
    )


def test_refunds_are_as_frequent_as_planted() -> None:
    config = small(num_users=BLOCK, users_per_block=BLOCK, num_days=40, refund_frac=0.05)
    sales = refunds = 0
    for piece in World(config).pieces():
        is_refund = piece.tables["conversion"]["is_refund"]
        if piece.tick < 10:  # early enough for every refund to be in the log
            sales, refunds = sales + (is_refund == 0).sum(), refunds + is_refund.sum()
    assert refunds / sales == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / sales))


def test_places_are_filled_with_the_logged_propensity(truth: tuple[Rows, Rows]) -> None:
    """The mean of 1 / propensity of what was chosen is the number of candidates left."""
    seen, oracle = truth
    for position in range(4):
        inverse = 1 / oracle["propensity"][seen["position"] == position].astype(np.float64)
        error = inverse.std() / np.sqrt(len(inverse))
        # Candidates that repeat are taken out, so there are a few fewer than 8.
        assert 8 - position - 1.2 < inverse.mean() < 8 - position + 4 * error


def test_surfaces_are_as_related_as_the_dials_say() -> None:
    config = small(num_surfaces=5, min_relatedness=0.4, conflict_frac=0.75)
    matrices, of_conversions = surface_matrices(config)
    to_first = [affinity_correlation(matrices[0], matrix) for matrix in matrices]
    np.testing.assert_allclose(to_first[:-1], np.sqrt(surface_relatedness(config)), atol=1e-5)
    assert to_first[-1] == pytest.approx(1 - 2 * 0.75, abs=1e-5)
    assert affinity_correlation(matrices[0], of_conversions) == pytest.approx(
        np.sqrt(CONVERSION_RELATEDNESS), abs=1e-5
    )


def test_tastes_on_related_and_conflicting_surfaces_correlate_as_described(world: World) -> None:
    users = world.users(0)
    contents = np.random.default_rng(0).standard_normal((4000, world.config.num_dims))
    rows = np.random.default_rng(1).integers(0, len(users), 4000)
    affinities = np.einsum("snk,nk->sn", users.surface_tastes[:, rows], contents)
    np.testing.assert_allclose(
        np.corrcoef(affinities), describe(world.config)["surface_correlation"], atol=0.06
    )


def test_sources_record_styles_as_well_as_their_quality_says(world: World) -> None:
    """A reader of recorded styles can explain the mean of q^2 of the memory, and no more."""
    shares, right = [], []
    for name in ("view", "search", "cart", "purchase", "like", "video"):
        events = world.piece(0, 0).tables[name]
        rows = events["user_id"] - world.users(0).first
        hashes = bands.hash_events(world.users(0).keys[rows], events["event_id"] & (2**24 - 1))
        shares.append(len(rows))
        right.append((events["style"] == bands.styles(hashes)).mean())
    # A false style is right by chance once in 16.
    qualities = (np.array(right) - 1 / 16) / (15 / 16)
    known = [source["quality"] for source in describe(world.config)["sources"]]
    np.testing.assert_allclose(qualities, known, atol=0.03)
    found = np.sum(shares * qualities**2) / np.sum(shares)
    assert found == pytest.approx(visible_quality(world.config), abs=0.02)
