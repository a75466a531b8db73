"""Constants and markers for calls."""

from __future__ import annotations

# Ranks and tags
ANY_SOURCE = -1
ANY_TAG = -1
PROC_NULL = -2
ROOT = -3
UNDEFINED = -32766
#: The largest tag.
LARGEST_TAG = 2**31 - 1

# Results
SUCCESS = 0
IDENT, CONGRUENT, SIMILAR, UNEQUAL = range(4)

# Classes of errors, for programs that store them; errors of this package have no numbers.
(
    ERR_BUFFER,
    ERR_COUNT,
    ERR_TYPE,
    ERR_TAG,
    ERR_COMM,
    ERR_RANK,
    ERR_ROOT,
    ERR_GROUP,
    ERR_OP,
    ERR_TOPOLOGY,
    ERR_DIMS,
    ERR_ARG,
    ERR_UNKNOWN,
    ERR_TRUNCATE,
    ERR_OTHER,
    ERR_INTERN,
    ERR_IN_STATUS,
    ERR_PENDING,
    ERR_REQUEST,
    ERR_KEYVAL,
    ERR_INFO,
    ERR_WIN,
    ERR_FILE,
    ERR_NO_MEM,
    ERR_PROC_FAILED,
    ERR_UNSUPPORTED_OPERATION,
    ERR_LASTCODE,
) = range(1, 28)

# Communicators
COMM_TYPE_SHARED, COMM_TYPE_HW_GUIDED, COMM_TYPE_HW_UNGUIDED, COMM_TYPE_RESOURCE_GUIDED = range(1, 5)
CART, GRAPH, DIST_GRAPH = range(1, 4)
UNWEIGHTED: list[int] = []
WEIGHTS_EMPTY: list[int] = []

# Attributes of communicators
KEYVAL_INVALID = 0x24000000
TAG_UB, IO, WTIME_IS_GLOBAL, UNIVERSE_SIZE, LASTUSEDCODE, APPNUM = (
    0x64400001,
    0x64400005,
    0x64400007,
    0x64400009,
    0x6440000B,
    0x6440000D,
)

# Threads
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)

# Derived types
ORDER_C, ORDER_FORTRAN = 56, 57
ORDER_F = ORDER_FORTRAN
DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_NONE, DISTRIBUTE_DFLT_DARG = 121, 122, 123, -49767
TYPECLASS_REAL, TYPECLASS_INTEGER, TYPECLASS_COMPLEX, TYPECLASS_LOGICAL = range(1, 5)
(
    COMBINER_NAMED,
    COMBINER_DUP,
    COMBINER_CONTIGUOUS,
    COMBINER_VECTOR,
    COMBINER_HVECTOR,
    COMBINER_INDEXED,
    COMBINER_HINDEXED,
    COMBINER_INDEXED_BLOCK,
    COMBINER_HINDEXED_BLOCK,
    COMBINER_STRUCT,
    COMBINER_SUBARRAY,
    COMBINER_DARRAY,
    COMBINER_RESIZED,
    COMBINER_VALUE_INDEX,
    COMBINER_F90_INTEGER,
    COMBINER_F90_REAL,
    COMBINER_F90_COMPLEX,
) = range(1, 18)

# Windows
LOCK_EXCLUSIVE, LOCK_SHARED = 234, 235
MODE_NOCHECK, MODE_NOSTORE, MODE_NOPUT, MODE_NOPRECEDE, MODE_NOSUCCEED = 1024, 2048, 4096, 8192, 16384
WIN_BASE, WIN_SIZE, WIN_DISP_UNIT, WIN_CREATE_FLAVOR, WIN_MODEL = range(0x66000001, 0x66000006)
WIN_FLAVOR = WIN_CREATE_FLAVOR
WIN_FLAVOR_CREATE, WIN_FLAVOR_ALLOCATE, WIN_FLAVOR_DYNAMIC, WIN_FLAVOR_SHARED = range(1, 5)
WIN_SEPARATE, WIN_UNIFIED = 1, 2

# Files: arguments of calls that this package refuses
MODE_RDONLY, MODE_RDWR, MODE_WRONLY, MODE_CREATE, MODE_EXCL = 2, 8, 4, 1, 64
MODE_DELETE_ON_CLOSE, MODE_UNIQUE_OPEN, MODE_SEQUENTIAL, MODE_APPEND = 16, 32, 256, 128
SEEK_SET, SEEK_CUR, SEEK_END = 600, 602, 604
DISPLACEMENT_CURRENT = DISP_CUR = -54278278

# Limits
BSEND_OVERHEAD = 96
VERSION, SUBVERSION = 4, 0
MAX_PROCESSOR_NAME = MAX_OBJECT_NAME = MAX_ERROR_STRING = MAX_LIBRARY_VERSION_STRING = 255
MAX_INFO_KEY, MAX_INFO_VAL = 255, 1024


class _Marker:
    """A marker that replaces a buffer argument. It is equal to its copies in other processes."""

    _name: str

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name


class InPlaceType(_Marker):
    """The type of `IN_PLACE`."""

    _name = "IN_PLACE"


class BottomType(_Marker):
    """The type of `BOTTOM`."""

    _name = "BOTTOM"


class BufferAutomaticType(_Marker):
    """The type of `BUFFER_AUTOMATIC`."""

    _name = "BUFFER_AUTOMATIC"


#: Replaces a buffer argument: the input lies in the result buffer.
IN_PLACE = InPlaceType()
#: Replaces the memory of a buffer without elements.
BOTTOM = BottomType()
#: Replaces the buffer of `Attach_buffer`: messages need no buffer of the program.
BUFFER_AUTOMATIC = BufferAutomaticType()
