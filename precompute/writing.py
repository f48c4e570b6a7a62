"""Scored events into the store: memories of users, pairs, vectors of items."""

from __future__ import annotations

from dataclasses import dataclass

from features.vectorstore import VectorStore
from precompute.incarnation import require_incarnation
from precompute.scoring import Scored


@dataclass(frozen=True)
class VectorStoreSink:
    """Writes engagements as LoopFM memories and requests as SOLARIS pairs and item vectors.

    Attributes:
        incarnation: of the store that the committed positions are of; None where nobody keeps any.
    """

    vector_store: VectorStore
    incarnation: str | None = None

    def require_same_store(self) -> None:
        """Check that the store was not emptied or replaced.

        Raises:
            StoreReplaced: it was.
            StoreError: the store failed.
        """
        if self.incarnation is not None:
            require_incarnation(self.vector_store.store, self.incarnation)

    def write(self, scored: Scored) -> None:
        """Write all vectors; writing them again changes nothing.

        Raises:
            StoreError: some may not have been written.
        """
        done, asked = scored.engagements, scored.requests
        if len(done):
            self.vector_store.add_memory(
                done.user_keys, done.at_ms, item_keys=done.item_keys, z=done.z
            )
        if len(asked):
            self.vector_store.add_pairs(
                asked.user_keys, asked.item_keys, at_ms=asked.at_ms, z=asked.z
            )
            self.vector_store.add_item_vectors(
                asked.item_keys, asked.at_ms, user_keys=asked.user_keys, z=asked.z
            )
