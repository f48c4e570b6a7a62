"""What serves while folders appear, change and break."""

import shutil
from pathlib import Path

import pytest

from features.dataset import LogDataset
from ranking.bundle import Bundle
from ranking.runtime.engines import EngineOptions, choose_engine
from ranking.runtime.errors import NotReady
from ranking.runtime.loader import RankerSlot, probe
from ranking.runtime.pipeline import Ranker
from tests.ranking.runtime.fakes import FakeEngine, make_ranker
from tests.ranking.tiny_bundle import write_tiny_bundle


def real(bundle: Bundle) -> Ranker:
    choose_engine(bundle, EngineOptions(has_amx=False).openers())
    return make_ranker(bundle)


def test_nothing_serves_before_there_is_a_bundle(tmp_path: Path) -> None:
    slot = RankerSlot(tmp_path / "none", real)
    assert slot.refresh() is False
    assert slot.problem is not None
    assert "manifest.json" in slot.problem
    with pytest.raises(NotReady):
        slot.require()


def test_a_bundle_that_appears_later_is_served(bundle: Bundle, tmp_path: Path) -> None:
    slot = RankerSlot(tmp_path / "later", real)
    slot.refresh()
    shutil.copytree(bundle.folder, tmp_path / "later")
    assert slot.refresh() is True
    assert slot.problem is None
    assert slot.require().bundle.manifest.bundle_id == bundle.manifest.bundle_id
    assert slot.refresh() is False  # nothing changed


def test_a_truncated_model_is_refused_by_name_and_recovers(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(bundle.folder, folder)
    whole = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    slot = RankerSlot(folder, real)
    slot.refresh()
    assert slot.ranker is None
    assert "model.onnx" in str(slot.problem)
    (folder / "model.onnx").write_bytes(whole)
    assert slot.refresh() is True


def test_a_bad_bundle_leaves_the_old_one_serving_and_says_why(
    dataset: LogDataset, tmp_path: Path
) -> None:
    old = write_tiny_bundle(tmp_path / "old", dataset, version="fm-old")
    bad = write_tiny_bundle(tmp_path / "bad", dataset, nan_items=[101], version="fm-bad")
    good = write_tiny_bundle(tmp_path / "good", dataset, version="fm-good")
    link = tmp_path / "current"
    link.symlink_to(old.folder)
    slot = RankerSlot(link, real)
    slot.refresh()
    for target, serving in ((bad, old), (good, good)):
        link.unlink()
        link.symlink_to(target.folder)
        slot.refresh()
        assert slot.require().bundle.manifest.bundle_id == serving.manifest.bundle_id
        assert (slot.problem is None) == (target is good)
    assert (slot.num_loads, slot.num_failures) == (2, 1)


def test_the_probe_finds_scores_that_are_no_numbers(bundle: Bundle) -> None:
    assert probe(make_ranker(bundle)) is None
    problem = probe(make_ranker(bundle, engine=FakeEngine([float("nan")])))
    assert problem is not None
    assert "not finite" in problem
