"""All embedding tables, one per vocabulary: features that share a vocabulary share a table."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.modules.embedding_configs import DataType


def _initialise(weight: Tensor) -> Tensor:
    return nn.init.normal_(weight, std=0.02)


class Embeddings(nn.Module):
    """Looks up every code of a KeyedJaggedTensor.

    Args:
        tables: KeyedJaggedTensor key to (vocabulary, number of codes).
        width: D.
    """

    def __init__(self, tables: Mapping[str, tuple[str, int]], *, width: int) -> None:
        super().__init__()
        keys_by_vocabulary: dict[str, list[str]] = {}
        for key, (vocabulary, _) in tables.items():
            keys_by_vocabulary.setdefault(vocabulary, []).append(key)
        sizes = dict(tables.values())
        self.collection = EmbeddingCollection(
            device=torch.device("cpu"),
            tables=[
                EmbeddingConfig(
                    name=vocabulary,
                    embedding_dim=width,
                    num_embeddings=sizes[vocabulary],
                    feature_names=keys,
                    data_type=DataType.FP32,
                    init_fn=_initialise,
                )
                for vocabulary, keys in keys_by_vocabulary.items()
            ],
        )

    def forward(self, parts: Sequence[KeyedJaggedTensor]) -> dict[str, Tensor]:
        """Give the vectors of every key, its rows end to end, (number of codes, D).

        The parts differ in their numbers of rows (rows of the batch, requests), which a look-up
        does not need to know: every key goes in as one row.
        """
        columns = {key: column for part in parts for key, column in part.to_dict().items()}
        values = [column.values() for column in columns.values()]
        together = KeyedJaggedTensor(
            keys=list(columns),
            values=torch.cat(values),
            lengths=torch.tensor([len(codes) for codes in values]),
        )
        return {key: found.values() for key, found in self.collection(together).items()}
