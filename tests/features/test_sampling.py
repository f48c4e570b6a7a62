"""Fewer negatives: which, and with which weight."""

import numpy as np
import pytest

from features.log import Impressions
from features.metrics import normalized_entropy
from features.sampling import keep_frac_by_code, sample_negatives, uniform
from ranking.calibration import correct_for_sampling

MILLION = 1_000_000


def made_up(num_rows: int, *, seed: int = 0) -> tuple[Impressions, np.ndarray]:
    """Impressions whose probability of a click is known, about 3 %."""
    rng = np.random.default_rng(seed)
    p = (1 / (1 + np.exp(3.8 - rng.normal(0, 0.8, num_rows)))).astype(np.float32)
    clicks = (rng.random(num_rows) < p).astype(np.float32)
    ids = np.arange(num_rows)
    return (
        Impressions(
            example_ids=ids,
            request_ids=ids,
            user_keys=ids % 1000,
            item_keys=ids % 77,
            at_ms=ids,
            codes={"surface": 3 + ids % 2},
            numeric={},
            labels={"click": clicks, "order": np.zeros(num_rows, dtype=np.float32)},
            weights=np.full(num_rows, 2.0, dtype=np.float32),
        ),
        p,
    )


def test_positives_stay_and_negatives_stand_for_those_left_out() -> None:
    shown, _ = made_up(200_000)

    kept = sample_negatives(shown, 0.1, seed=1)

    is_positive = kept.labels["click"] == 1
    assert is_positive.sum() == shown.labels["click"].sum()
    assert (kept.weights[is_positive] == 2).all()
    assert (kept.weights[~is_positive] == 20).all()
    assert kept.weights.sum() == pytest.approx(shown.weights.sum(), rel=0.03)
    assert (np.diff(kept.at_ms) > 0).all()


def test_what_is_kept_depends_on_the_id_and_the_seed_not_on_the_rows_around() -> None:
    shown, _ = made_up(10_000)
    whole = sample_negatives(shown, 0.3, seed=5).example_ids
    halves = [
        sample_negatives(shown.take(part), 0.3, seed=5).example_ids
        for part in (slice(0, 4_000), slice(4_000, 10_000))
    ]

    assert np.concatenate(halves).tolist() == whole.tolist()
    assert sample_negatives(shown, 0.3, seed=6).example_ids.tolist() != whole.tolist()
    more = set(sample_negatives(shown, 0.6, seed=5).example_ids.tolist())
    assert set(whole.tolist()) < more


def test_each_surface_has_its_own_share() -> None:
    shown, _ = made_up(100_000)
    shares = keep_frac_by_code(shown.codes["surface"], {4: 0.01})

    kept = sample_negatives(shown, shares, seed=0)

    is_third = kept.codes["surface"] == 3
    assert is_third.sum() == (shown.codes["surface"] == 3).sum()
    assert set(kept.weights[is_third].tolist()) == {2.0}
    np.testing.assert_allclose(np.unique(kept.weights[~is_third]), [2, 200], rtol=1e-6)


def test_a_million_rows_sampled_at_a_hundredth_are_calibrated_and_keep_their_entropy() -> None:
    shown, p = made_up(2 * MILLION)
    kept = sample_negatives(shown, 0.01, seed=3)
    p_kept = p[kept.example_ids]
    labels, weights = kept.labels["click"], kept.weights / 2

    # Of the sample, a model that knows the truth says p / (p + (1 - p) * w).
    p_sampled = p_kept / (p_kept + (1 - p_kept) * 0.01)
    assert p_sampled.sum() / labels.sum() == pytest.approx(1, abs=0.01)
    corrected = correct_for_sampling(p_sampled, negative_keep_frac=0.01)
    np.testing.assert_allclose(corrected, p_kept, rtol=1e-4)
    assert (corrected * weights).sum() / labels.sum() == pytest.approx(1, abs=0.01)

    whole = normalized_entropy(p, shown.labels["click"])
    sampled = normalized_entropy(p_kept, labels, weights)
    assert whole is not None
    assert sampled is not None
    losses = -np.where(labels == 1, np.log(p_kept), np.log1p(-p_kept)) * weights
    se = np.sqrt(len(labels)) * losses.std() / (losses.sum() / whole)
    assert abs(sampled - whole) < 3 * se


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="keep_frac: expected shares above 0 and at most 1"):
        sample_negatives(made_up(10)[0], share, seed=0)


def test_numbers_of_ids_are_even_and_unlike_their_neighbours() -> None:
    numbers = uniform(np.arange(-50_000, 50_000), seed=0)

    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert abs(counts - 5_000).max() < 350
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers, uniform(np.arange(-50_000, 50_000), seed=1))[0, 1]) < 0.02
