"""Putting the parts together: a model and a batch builder for a data set."""

from features.dataset import LogDataset
from features.histories import HistoryIndex
from features.log import Impressions
from foundation.batches import BatchBuilder, Examples, HistoryLimits, vocabulary_by_feature
from foundation.matches import num_match_features
from foundation.model.config import ModelConfig
from foundation.model.foundation import FoundationModel
from foundation.model.interface import Interface


def match_features(dataset: LogDataset) -> tuple[str, ...]:
    """The item features by which candidates are compared with events, over all verticals."""
    names = (name for vertical in dataset.schema.verticals for name in vertical.match_features)
    return tuple(dict.fromkeys(names))


def make_interface(dataset: LogDataset, config: ModelConfig) -> Interface:
    """Give what a model must know of this data set."""
    schema = dataset.schema
    num_keys = 1 + len(match_features(dataset))
    num_counts = num_match_features(num_keys, config.half_lives_days)
    items = [f.name for f in schema.features_of("item") if f.kind == "categorical"]
    users = [f.name for f in schema.features_of("user") if f.kind == "categorical"]
    context = [f.name for f in schema.features_of("context") if f.kind == "categorical"]
    sources = {}
    for source in schema.sources:
        names = [column.name for column in source.columns if column.kind == "categorical"]
        names += items if source.item_column is not None else []
        keys = tuple(f"{source.name}.{name}" for name in names)
        sources[source.name] = (keys, sum(c.kind == "numeric" for c in source.columns))
    return Interface(
        tables=vocabulary_by_feature(schema, dataset.encoder),
        set_features=(*items, *users, *context),
        num_item_features=len(items),
        num_set_numeric=sum(feature.kind == "numeric" for feature in schema.features),
        sources=sources,
        num_match_keys=num_keys,
        num_counts=num_counts * sum(source.item_column is not None for source in schema.sources),
        objectives=tuple(objective.name for objective in schema.objectives),
    )


def build_model(dataset: LogDataset, config: ModelConfig) -> FoundationModel:
    """Give a new model for this data set; seed PyTorch before."""
    return FoundationModel(make_interface(dataset, config), config)


def make_builder(
    dataset: LogDataset, config: ModelConfig, histories: HistoryIndex | None = None
) -> BatchBuilder:
    """Give a batch builder; `histories` default to all events of the data set."""
    return BatchBuilder(
        dataset.schema,
        items=dataset.items,
        users=dataset.users,
        histories=dataset.histories() if histories is None else histories,
        match_features=match_features(dataset),
        limits=HistoryLimits(
            max_length=config.max_events,
            count_length=config.count_events,
            half_lives_days=config.half_lives_days,
        ),
        tables=vocabulary_by_feature(dataset.schema, dataset.encoder),
    )


def to_examples(impressions: Impressions) -> Examples:
    """Give the impressions as examples, without their labels."""
    return Examples(
        user_keys=impressions.user_keys,
        item_keys=impressions.item_keys,
        at_ms=impressions.at_ms,
        codes=impressions.codes,
        numeric=impressions.numeric,
    )
