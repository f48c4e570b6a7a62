"""Changes to the files of a log folder: its tables, its documents, the format that it is in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import yaml

FORMATS = ("csv", "csv.gz", "tsv", "parquet", "arrow", "feather")

Document = dict[str, Any]
Columns = dict[str, Any]


def edit_table(folder: Path, name: str, change: Callable[[Columns], object]) -> Columns:
    """Change the columns of a Parquet table, and give them."""
    path = folder / f"{name}.parquet"
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path)
    return columns


def edit_yaml(folder: Path, name: str, change: Callable[[Document], object]) -> None:
    """Change a document."""
    document = yaml.safe_load((folder / name).read_text())
    change(document)
    (folder / name).write_text(yaml.safe_dump(document))


def edit_schema(folder: Path, change: Callable[[Document], object]) -> None:
    """Change schema.yaml."""
    edit_yaml(folder, "schema.yaml", change)


def specs(document: Document) -> dict[str, Document]:
    """The mapping in the document that holds the path of each table."""
    found = {name: document[name] for name in ("impressions", "users", "items")}
    return found | {source["name"]: source for source in document["sources"]}


def write_as(table: pa.Table, path: Path, kind: str) -> None:
    match kind:
        case "parquet":
            pq.write_table(table, path, row_group_size=17)
        case "arrow":
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=13)
        case "feather":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=13)
        case _:
            options = pyarrow.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
            opened = pa.output_stream(path, compression="gzip" if kind.endswith("gz") else None)
            with opened as sink:
                pyarrow.csv.write_csv(table, sink, options)


def rewrite(folder: Path, kind: str, *, num_files: int, path: str) -> None:
    """Write every table anew as so many files, and say so in the schema."""

    def change(document: Document) -> None:
        for name, spec in specs(document).items():
            table = pq.read_table(folder / f"{name}.parquet")
            (folder / f"{name}.parquet").unlink()
            (folder / name).mkdir()
            size = -(-len(table) // num_files)
            for place in range(num_files):
                part = table.slice(place * size, size)
                write_as(part, folder / name / f"part-{place}.{kind}", kind)
            spec["path"] = path.format(name=name, kind=kind)
            spec["delimiter"] = "\t" if kind == "tsv" else ","

    edit_schema(folder, change)
