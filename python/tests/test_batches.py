"""`Batches` without Spark: views of Arrow's memory, copies, and rejected input."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from ripieno.errors import InputError
from ripieno.launch.engine.batches import Batches


def batches(*columns_by_batch: dict[str, pa.Array]) -> Batches:
    found = [pa.RecordBatch.from_pydict(columns) for columns in columns_by_batch]
    return Batches(found, found[0].schema)


def address(array: pa.Array) -> int:
    """Return the address of a column's values without nulls in Arrow's memory."""
    return array.buffers()[-1].address + array.offset * array.type.byte_width


def vectors(rows: list[dict]) -> pa.Array:
    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    return pa.array([{"size": None, "indices": None, **row} for row in rows], kind)


NUMBERS = pa.array(np.arange(12.0))
ONE_COLUMN = {
    "numbers": (NUMBERS, NUMBERS, (12,)),
    "a slice of numbers": (NUMBERS.slice(3, 5), NUMBERS.slice(3, 5), (5,)),
    "lists of a fixed size": (pa.FixedSizeListArray.from_arrays(NUMBERS, 3), NUMBERS, (4, 3)),
    "lists of one length": (pa.ListArray.from_arrays([0, 4, 8, 12], NUMBERS), NUMBERS, (3, 4)),
    "a slice of lists": (pa.ListArray.from_arrays([0, 4, 8, 12], NUMBERS).slice(1), NUMBERS.slice(4), (2, 4)),
    "a slice of lists of a fixed size": (
        pa.FixedSizeListArray.from_arrays(NUMBERS, 3).slice(2),
        NUMBERS.slice(6),
        (2, 3),
    ),
}


@pytest.mark.parametrize("case", ONE_COLUMN)
def test_a_column_of_one_batch_is_a_view_of_its_memory(case):
    column, values, shape = ONE_COLUMN[case]

    array = batches({"x": column}).to_numpy()

    assert array.ctypes.data == address(values) and not array.flags.writeable
    assert array.shape == shape and np.array_equal(array.ravel(), values.to_numpy())


def test_dense_vectors_are_a_view_of_their_memory():
    column = vectors([{"type": 1, "values": [1.0, 2.0]}, {"type": 1, "values": [3.0, 4.0]}])

    array = batches({"features": column}).to_numpy("features")

    assert array.ctypes.data == address(column.field("values").flatten())
    assert np.array_equal(array, [[1, 2], [3, 4]])


def test_sparse_vectors_become_dense():
    column = vectors(
        [
            {"type": 0, "size": 7, "indices": [], "values": []},
            {"type": 0, "size": 3, "indices": [0, 2], "values": [1.0, -0.0]},
            {"type": 1, "values": [4.0, 5.0, 6.0]},
            {"type": 0, "size": 3, "indices": [], "values": []},
            {"type": 0, "size": 3, "indices": [1], "values": [8.0]},
        ]
    ).slice(1)
    dense = np.array([[1, 0, -0.0], [4, 5, 6], [0, 0, 0], [0, 8, 0]])

    assert batches({"x": column}).to_numpy().tobytes() == dense.tobytes()
    assert np.array_equal(batches({"x": column.slice(1, 1)}, {"x": column}).to_numpy(), [[4, 5, 6], *dense])


def test_columns_are_joined_horizontally_and_batches_vertically():
    rows = batches(
        {"id": pa.array([1, 2], pa.int32()), "x": pa.array([[1.0, 2.0], [3.0, 4.0]]), "ok": pa.array([True, False])},
        {"id": pa.array([3], pa.int32()), "x": pa.array([[5.0, 6.0]]), "ok": pa.array([True])},
    )

    assert np.array_equal(rows.to_numpy(), [[1, 1, 2, 1], [2, 3, 4, 0], [3, 5, 6, 1]])
    assert np.array_equal(rows.to_numpy(["x", "id"]), [[1, 2, 1], [3, 4, 2], [5, 6, 3]])
    assert np.array_equal(rows.to_numpy("x"), [[1, 2], [3, 4], [5, 6]]) and rows.to_numpy("x").flags.c_contiguous
    assert np.array_equal(rows.to_numpy("id"), [1, 2, 3]) and rows.to_numpy("id").dtype == np.int32
    assert np.array_equal(rows.to_numpy("ok"), [True, False, True]) and rows.to_numpy("ok").dtype == bool
    assert rows.row_count == 3 and len(rows) == 2 and rows.to_table().num_rows == 3


def test_a_rank_without_rows_has_a_schema_and_empty_arrays():
    schema = pa.schema({"id": pa.int32(), "x": pa.list_(pa.float32()), "y": pa.list_(pa.float32(), 5)})
    rows = Batches([pa.RecordBatch.from_pylist([], schema)], schema)

    assert len(rows) == rows.row_count == 0 and rows.schema == schema and rows.to_table().schema == schema
    shapes = {name: (rows.to_numpy(name).shape, rows.to_numpy(name).dtype) for name in schema.names}
    assert shapes == {"id": ((0,), np.int32), "x": ((0, 0), np.float32), "y": ((0, 5), np.float32)}


def test_empty_lists_are_rows_of_width_zero():
    assert batches({"x": pa.array([[], []], pa.list_(pa.float64()))}).to_numpy().shape == (2, 0)


WRONG = {
    "a null": ([pa.array([1.0, 2.0]), pa.array([3.0, None])], "row 3 of this rank: a null"),
    "a null list": ([pa.array([[1.0], None])], "row 1 of this rank: a null"),
    "a null in a list": ([pa.array([[1.0, 2.0], [3.0, None]])], "row 1 of this rank: a null"),
    "a ragged list": ([pa.array([[1.0, 2.0]]), pa.array([[3.0, 4.0], [5.0]])], "row 2 .*: 1 values where .* have 2"),
    "a text": ([pa.array(["a"])], "is string: expected numbers"),
    "a sparse vector of another size": (
        [vectors([{"type": 1, "values": [1.0]}, {"type": 0, "size": 9, "indices": [0], "values": [1.0]}])],
        "row 1 of this rank: 9 values where the rows before have 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_without_an_array_form_is_reported_with_its_column_and_row(case):
    columns, message = WRONG[case]

    with pytest.raises(InputError, match=f"column 'x'.*{message}"):
        batches(*({"x": column} for column in columns)).to_numpy()


def test_a_missing_column_is_reported_with_the_existing_columns():
    with pytest.raises(InputError, match="column 'z': expected one of x, y"):
        batches({"x": NUMBERS, "y": NUMBERS}).to_numpy(["x", "z"])
    with pytest.raises(InputError, match="names of one column or more"):
        batches({"x": NUMBERS}).to_numpy([])
