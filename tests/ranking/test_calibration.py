import numpy as np
import pytest

from ranking.calibration import Platt, calibrate, correct_for_sampling, sigmoid
from ranking.training.calibration import fit_platt


def draw(slope: float, intercept: float, n: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=n).astype(np.float32)
    p = 1 / (1 + np.exp(-(slope * logits + intercept)))
    return logits, (rng.random(n) < p).astype(np.float32)


def test_fit_finds_the_slope_and_intercept_that_made_the_labels() -> None:
    logits, labels = draw(0.6, -1.5)

    found = fit_platt(logits, labels, np.ones_like(labels))

    assert found.slope == pytest.approx(0.6, abs=0.05)
    assert found.intercept == pytest.approx(-1.5, abs=0.05)


def test_a_fitted_calibration_predicts_as_many_positives_as_there_are() -> None:
    logits, labels = draw(1.4, -3.0)

    fitted = fit_platt(logits, labels, np.ones_like(labels))

    p = calibrate(logits[:, None], ["click"], {"click": fitted})
    assert p.sum() / labels.sum() == pytest.approx(1, abs=1e-3)


def test_weights_count_as_repeated_rows() -> None:
    logits, labels = draw(0.8, -0.5, n=500)
    weights = 1 + (np.arange(500) % 3 == 0).astype(np.float32)

    weighted = fit_platt(logits, labels, weights)
    times = weights.astype(int)
    repeated = fit_platt(
        np.repeat(logits, times), np.repeat(labels, times), np.ones(times.sum(), dtype=np.float32)
    )

    assert weighted.slope == pytest.approx(repeated.slope, abs=5e-3)
    assert weighted.intercept == pytest.approx(repeated.intercept, abs=5e-3)


def test_a_model_that_is_the_wrong_way_round_keeps_its_order_and_the_base_rate() -> None:
    logits, labels = draw(-1.0, 0.0)

    fitted = fit_platt(logits, labels, np.ones_like(labels))

    assert fitted.slope > 0
    p = calibrate(logits[:, None], ["click"], {"click": fitted})
    assert p.sum() / labels.sum() == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_keep_the_models_probabilities(label: int) -> None:
    ones = np.ones(5, dtype=np.float32)

    assert fit_platt(ones, ones * label, ones) == Platt()


def test_each_objective_gets_its_own_calibration() -> None:
    logits = np.array([[0.0, 0.0]], dtype=np.float32)
    found = calibrate(logits, ["a", "b"], {"b": Platt(intercept=1.0), "a": Platt(intercept=-1.0)})

    np.testing.assert_allclose(found, [[1 / (1 + np.e), np.e / (1 + np.e)]], rtol=1e-6)


def test_sampling_correction_gives_the_rate_before_negatives_were_thinned() -> None:
    # 10 positives and 990 negatives, of which a tenth was kept.
    p = correct_for_sampling(np.array([10 / (10 + 99)]), negative_keep_frac=0.1)

    np.testing.assert_allclose(p, [10 / 1000])


def test_no_sampling_leaves_probabilities_alone() -> None:
    p = np.array([0.2, 0.9])

    np.testing.assert_array_equal(correct_for_sampling(p, negative_keep_frac=None), p)
    np.testing.assert_allclose(correct_for_sampling(p, negative_keep_frac=1.0), p)


@pytest.mark.parametrize("frac", [0.0, -1.0, 1.5])
def test_a_fraction_that_is_none_is_refused(frac: float) -> None:
    with pytest.raises(ValueError, match="negative_keep_frac"):
        correct_for_sampling(np.array([0.5]), negative_keep_frac=frac)


@pytest.mark.parametrize("slope", [0.0, -1.0, float("nan")])
def test_a_slope_that_turns_the_order_around_is_refused(slope: float) -> None:
    with pytest.raises(ValueError, match="slope above 0"):
        Platt(slope=slope)


def test_sigmoid_of_extreme_logits_does_not_overflow() -> None:
    np.testing.assert_array_equal(sigmoid(np.array([-1e4, 0.0, 1e4])), [0, 0.5, 1])
