"""YAML documents that people write: a key that is given twice is an error, not a silent choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class _UniqueKeyLoader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """Give the content of a YAML file in plain Python types.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not UTF-8.
        yaml.YAMLError: it is not YAML, or gives a key twice.
    """
    loader = _UniqueKeyLoader(path.read_text(encoding="utf-8-sig"))
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
