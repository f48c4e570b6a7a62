"""Keeps a bundle's folder and what serves in agreement, without a moment between two models.

A bundle is verified, its engine chosen and warmed and its golden requests replayed before it takes
the place of the one that serves, in one assignment. A bundle that fails leaves the old one where it
is and says why. `refresh` is for a background thread: it costs one small read while nothing has
changed, loads what is new, and tries again what failed.

Errors of a load are kept in `problem`, never raised: BundleError, EngineError, and whatever else a
damaged file makes its readers say (OSError, ValueError).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from features.errors import GemcutterError
from ranking.bundle import Bundle, load_bundle, load_manifest
from ranking.manifest import BundleError
from ranking.runtime.errors import EngineError, NotReady
from ranking.runtime.pipeline import Ranker

RankerMaker = Callable[[Bundle], Ranker]

_log = logging.getLogger(__name__)


class RankerSlot:
    """The ranker of one folder, once there is one.

    Args:
        folder: of the bundle; need not exist yet.
        make: gives a ranker that is ready, for a verified bundle.
    """

    def __init__(self, folder: Path, make: RankerMaker) -> None:
        self._folder = folder
        self._make = make
        self._lock = threading.Lock()  # one load at a time
        self._ranker: Ranker | None = None
        self.problem: str | None = "not loaded yet"
        self.num_loads = 0
        self.num_failures = 0

    @property
    def folder(self) -> Path:
        """Where the bundle is."""
        return self._folder

    @property
    def ranker(self) -> Ranker | None:
        """What serves now; None before the first load that succeeds."""
        return self._ranker

    def require(self) -> Ranker:
        """Give what serves now.

        Raises:
            NotReady: nothing does yet, and why.
        """
        if self._ranker is None:
            raise NotReady("no model is loaded")
        return self._ranker

    def refresh(self) -> bool:
        """Load the folder's bundle if it is not the one that serves; tells whether it changed."""
        with self._lock:
            try:
                found = load_manifest(self._folder).bundle_id
                if self._ranker and self._ranker.bundle.manifest.bundle_id == found:
                    self.problem = None
                    return False
                ranker = self._make(load_bundle(self._folder))
                self._require_same_vertical(ranker)
            except (GemcutterError, OSError, ValueError) as error:
                self._keep(error)
                return False
            self._ranker, self.problem = ranker, None
            self.num_loads += 1
        _log.info(
            "bundle loaded",
            extra={
                "folder": str(self._folder),
                "bundle_id": found,
                "engine": ranker.choice.engine.name,
            },
        )
        return True

    def _require_same_vertical(self, ranker: Ranker) -> None:
        if self._ranker is None:
            return
        serving, found = (r.bundle.manifest.vertical for r in (self._ranker, ranker))
        if serving != found:
            raise BundleError(f"{self._folder}: expected vertical {serving!r}, got {found!r}")

    def _keep(self, error: Exception) -> None:
        problem = str(error)
        self.num_failures += 1
        if problem != self.problem:  # a retry that fails the same way is only counted
            serving = self._ranker.bundle.manifest.bundle_id if self._ranker else None
            _log.error("bundle refused", extra={"reason": problem, "still_serving": serving})
        self.problem = problem


def probe(ranker: Ranker) -> str | None:
    """Compute one known request; give what is wrong, or None."""
    manifest = ranker.bundle.manifest
    try:
        logits = ranker.choice.engine.run(ranker.probe_inputs)
    except EngineError as error:
        return str(error)
    if not np.isfinite(logits).all():
        return f"bundle {manifest.bundle_id}: the probe's scores are not finite"
    return None
