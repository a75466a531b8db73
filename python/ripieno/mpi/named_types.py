"""The named datatypes: types of C, types of a given width, and names of Fortran types."""

from __future__ import annotations

import numpy as np

from ripieno.mpi.datatypes import Datatype, named

DATATYPE_NULL = named(None, "MPI_DATATYPE_NULL")

BYTE = named("u1", "MPI_BYTE")
PACKED = named("u1", "MPI_PACKED")
AINT = named("i8", "MPI_AINT")
OFFSET = named("i8", "MPI_OFFSET")
COUNT = named("i8", "MPI_COUNT")

CHAR = named("S1", "MPI_CHAR")
WCHAR = named("U1", "MPI_WCHAR")
SIGNED_CHAR = named("b", "MPI_SIGNED_CHAR")
SHORT = SIGNED_SHORT = named("h", "MPI_SHORT")
INT = SIGNED_INT = named("i", "MPI_INT")
LONG = SIGNED_LONG = named("l", "MPI_LONG")
LONG_LONG = SIGNED_LONG_LONG = named("q", "MPI_LONG_LONG")
UNSIGNED_CHAR = named("B", "MPI_UNSIGNED_CHAR")
UNSIGNED_SHORT = named("H", "MPI_UNSIGNED_SHORT")
UNSIGNED = UNSIGNED_INT = named("I", "MPI_UNSIGNED")
UNSIGNED_LONG = named("L", "MPI_UNSIGNED_LONG")
UNSIGNED_LONG_LONG = named("Q", "MPI_UNSIGNED_LONG_LONG")
FLOAT = named("f", "MPI_FLOAT")
DOUBLE = named("d", "MPI_DOUBLE")
LONG_DOUBLE = named("g", "MPI_LONG_DOUBLE")
C_BOOL = CXX_BOOL = BOOL = named("?", "MPI_C_BOOL")
C_COMPLEX = C_FLOAT_COMPLEX = CXX_FLOAT_COMPLEX = named("F", "MPI_C_FLOAT_COMPLEX")
C_DOUBLE_COMPLEX = CXX_DOUBLE_COMPLEX = named("D", "MPI_C_DOUBLE_COMPLEX")
C_LONG_DOUBLE_COMPLEX = CXX_LONG_DOUBLE_COMPLEX = named("G", "MPI_C_LONG_DOUBLE_COMPLEX")

INT8_T = SINT8_T = named("i1", "MPI_INT8_T")
INT16_T = SINT16_T = named("i2", "MPI_INT16_T")
INT32_T = SINT32_T = named("i4", "MPI_INT32_T")
INT64_T = SINT64_T = named("i8", "MPI_INT64_T")
UINT8_T = named("u1", "MPI_UINT8_T")
UINT16_T = named("u2", "MPI_UINT16_T")
UINT32_T = named("u4", "MPI_UINT32_T")
UINT64_T = named("u8", "MPI_UINT64_T")
FLOAT16_T = named("f2", "MPI_FLOAT16_T")
FLOAT32_T = named("f4", "MPI_FLOAT32_T")
FLOAT64_T = named("f8", "MPI_FLOAT64_T")

CHARACTER = named("S1", "MPI_CHARACTER")
LOGICAL = F_BOOL = named("i4", "MPI_LOGICAL")
INTEGER = F_INT = named("i4", "MPI_INTEGER")
REAL = F_FLOAT = named("f4", "MPI_REAL")
DOUBLE_PRECISION = F_DOUBLE = named("f8", "MPI_DOUBLE_PRECISION")
COMPLEX = F_COMPLEX = F_FLOAT_COMPLEX = named("c8", "MPI_COMPLEX")
DOUBLE_COMPLEX = F_DOUBLE_COMPLEX = named("c16", "MPI_DOUBLE_COMPLEX")
LOGICAL1 = named("i1", "MPI_LOGICAL1")
LOGICAL2 = named("i2", "MPI_LOGICAL2")
LOGICAL4 = named("i4", "MPI_LOGICAL4")
LOGICAL8 = named("i8", "MPI_LOGICAL8")
INTEGER1 = named("i1", "MPI_INTEGER1")
INTEGER2 = named("i2", "MPI_INTEGER2")
INTEGER4 = named("i4", "MPI_INTEGER4")
INTEGER8 = named("i8", "MPI_INTEGER8")
REAL2 = named("f2", "MPI_REAL2")
REAL4 = named("f4", "MPI_REAL4")
REAL8 = named("f8", "MPI_REAL8")
COMPLEX8 = named("c8", "MPI_COMPLEX8")
COMPLEX16 = named("c16", "MPI_COMPLEX16")

# NumPy has no such types.
LOGICAL16 = INTEGER16 = REAL16 = COMPLEX4 = COMPLEX32 = BFLOAT16_T = DATATYPE_NULL


def _located(code: str, name: str) -> Datatype:
    """Return the type of a value with its location, in the memory layout of C."""
    return named(np.dtype([("value", code), ("place", "i4")], align=True), name)


SHORT_INT = _located("h", "MPI_SHORT_INT")
TWOINT = INT_INT = _located("i", "MPI_2INT")
LONG_INT = _located("l", "MPI_LONG_INT")
FLOAT_INT = _located("f", "MPI_FLOAT_INT")
DOUBLE_INT = _located("d", "MPI_DOUBLE_INT")
LONG_DOUBLE_INT = _located("g", "MPI_LONG_DOUBLE_INT")
