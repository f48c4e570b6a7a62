"""Looking into bundles."""

from __future__ import annotations

from pathlib import Path

from ranking.bundle import load_bundle
from ranking.runtime.engines.choose import EngineOptions, choose_engine


def verify(folder: Path) -> str:
    """Check a bundle as a ranker would before it serves it.

    Raises:
        BundleError, EngineError: what is wrong with it.
    """
    bundle = load_bundle(folder)
    choice = choose_engine(bundle, EngineOptions().openers())
    manifest = bundle.manifest
    return (
        f"{manifest.bundle_id}: whole, its parts belong together, and {choice.engine.name} gives "
        f"its golden answers (row {manifest.row}, vertical {manifest.vertical})"
    )
