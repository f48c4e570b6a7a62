from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.errors import DataError
from features.ids import to_keys
from features.reading.tables import read_columns, read_table
from features.schema import EntitySpec

BIG = 1234567890123456789
INT, TEXT, FLOAT = pa.int64(), pa.string(), pa.float64()


def csv(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "log.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(tmp_path: Path, **columns: Any) -> Path:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def column(path: Path, name: str, kind: pa.DataType | None) -> list[Any]:
    values: list[Any] = read_table(path.parent, EntitySpec(path=path.name), {name: kind})[
        name
    ].to_pylist()
    return values


def test_big_integers_stay_exact_beside_a_blank_in_csv_and_parquet(tmp_path: Path) -> None:
    expected = [BIG, None, BIG + 1]
    path = csv(tmp_path, f"user_id,x\n{BIG},1\n,2\n{BIG + 1},3\n")

    assert column(path, "user_id", INT) == expected
    assert column(parquet(tmp_path, user_id=pa.array(expected)), "user_id", INT) == expected
    with pytest.raises(DataError, match=r"1 ids are missing; first rows \[1\]"):
        to_keys(
            read_table(path.parent, EntitySpec(path=path.name), {"user_id": INT})["user_id"],
            "int64",
        )


def test_string_ids_keep_their_zeros_and_points(tmp_path: Path) -> None:
    assert column(csv(tmp_path, "id\n007\n7\n7.0\n"), "id", TEXT) == ["007", "7", "7.0"]


def test_only_an_empty_field_is_null_in_a_csv(tmp_path: Path) -> None:
    path = csv(tmp_path, 'id,x\nNA,1\nnull,2\nnan,3\n,4\n"",5\n')

    assert column(path, "id", TEXT) == ["NA", "null", "nan", None, ""]


def test_a_stray_text_among_integers_is_named_by_its_row_however_long_the_file(
    tmp_path: Path,
) -> None:
    rows = "\n".join(map(str, range(200_000)))
    path = csv(tmp_path, f"item_id\n{rows}\nbad\n{rows}\n")

    with pytest.raises(DataError, match=r"log\.csv, column 'item_id': 1 .*rows \[200000\].*'bad'"):
        read_table(path.parent, EntitySpec(path=path.name), {"item_id": INT})
    texts = read_table(path.parent, EntitySpec(path=path.name), {"item_id": TEXT})["item_id"]
    assert len(set(to_keys(texts, "string").tolist())) == 200_001


def test_a_stray_text_in_a_parquet_column_is_named_by_its_row(tmp_path: Path) -> None:
    path = parquet(tmp_path, id=["1", "2", "bad", "3"])

    with pytest.raises(DataError, match=r"log\.parquet, column 'id': 1 .* int64.*\[2\].*'bad'"):
        read_table(path.parent, EntitySpec(path=path.name), {"id": INT})


def test_a_mark_for_missing_numbers_gets_a_hint(tmp_path: Path) -> None:
    path = csv(tmp_path, "price\n1.5\nNA\n")

    with pytest.raises(DataError, match=r"not double.*row 1 holds 'NA'; .*leave the field emp"):
        read_table(path.parent, EntitySpec(path=path.name), {"price": FLOAT})


def test_a_fraction_is_no_integer(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not int64.*row 1 holds '7\.5'"):
        column(csv(tmp_path, "id\n7\n7.5\n"), "id", INT)


def test_floating_point_ids_and_categories_are_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, id=[1.0, 2.0])

    with pytest.raises(DataError, match=r"'id'.*double, which mangles"):
        read_table(path.parent, EntitySpec(path=path.name), {"id": INT})
    with pytest.raises(DataError, match="have no exact text"):
        read_table(path.parent, EntitySpec(path=path.name), {"id": TEXT})


def test_a_timestamp_is_no_number(tmp_path: Path) -> None:
    path = parquet(tmp_path, at=pa.array([1_700_000_000], pa.timestamp("s")))

    with pytest.raises(DataError, match=r"'at': expected int64, got timestamp"):
        read_table(path.parent, EntitySpec(path=path.name), {"at": INT})
    assert pa.types.is_timestamp(
        read_table(path.parent, EntitySpec(path=path.name), {"at": None})["at"].type
    )


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    path = csv(tmp_path, b"\xef\xbb\xbfuser_id,click\n5,1\n")

    assert column(path, "user_id", INT) == [5]


def test_bytes_that_are_not_utf8_are_named_with_their_place(tmp_path: Path) -> None:
    path = csv(tmp_path, b'x,item\n"1,2",Tee\n2,Caf\xe9\n3,Caf\xe8\n')

    with pytest.raises(DataError) as caught:
        read_table(path.parent, EntitySpec(path=path.name), {"item": TEXT})

    told = str(caught.value)
    for part in (
        "log.csv, line 3",
        "byte offset 22",
        "column 'item'",
        "0xE9",
        "'2,Café'",
        "not utf-8",
        "`encoding:`",
    ):
        assert part in told


def test_quoted_fields_may_hold_commas_and_line_ends(tmp_path: Path) -> None:
    path = csv(tmp_path, 'a,b\n"x,y",1\n"two\nlines",2\n')

    assert column(path, "a", TEXT) == ["x,y", "two\nlines"]
    assert column(path, "b", INT) == [1, 2]


def test_one_column_may_be_an_id_a_category_and_a_number(tmp_path: Path) -> None:
    wanted = {"id": ("n", INT), "word": ("n", TEXT), "number": ("n", FLOAT), "again": ("n", INT)}
    expected = {"id": [7, 8], "word": ["7", "8"], "number": [7.0, 8.0], "again": [7, 8]}

    for path in (csv(tmp_path, "n\n7\n8\n"), parquet(tmp_path, n=[7, 8])):
        assert read_columns(path.parent, EntitySpec(path=path.name), wanted).to_pydict() == expected


def test_dictionaries_are_read_as_their_values(tmp_path: Path) -> None:
    path = parquet(tmp_path, word=pa.array(["a", "b", "a"]).dictionary_encode())

    for kind in (TEXT, None):
        table = read_table(path.parent, EntitySpec(path=path.name), {"word": kind})
        assert table["word"].type == TEXT
        assert table["word"].to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_columns_are_named_beside_what_is_there(tmp_path: Path, kind: str) -> None:
    path = csv(tmp_path, "a,b\n1,2\n") if kind == "csv" else parquet(tmp_path, a=[1], b=[2])

    with pytest.raises(DataError, match=r"columns \['c'\] are missing; it has \['a', 'b'\]"):
        read_table(path.parent, EntitySpec(path=path.name), {"a": INT, "c": INT})


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "log.parquet")

    for path in (csv(tmp_path, "a,a\n1,2\n"), tmp_path / "log.parquet"):
        with pytest.raises(DataError, match=r"columns \['a'\] are there more than once"):
            read_table(path.parent, EntitySpec(path=path.name), {"a": INT})


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.txt"])
def test_a_file_that_is_missing_or_no_table_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"{name}"):
        read_table(tmp_path, EntitySpec(path=name), {"a": INT})
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"{name}"):
        read_table(tmp_path, EntitySpec(path=name), {"a": INT})


def test_rows_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv: .*[Ee]xpected 2 columns, got 3"):
        column(csv(tmp_path, "a,b\n1,2\n1,2,3\n"), "a", INT)
