"""Modules of the tests of mpi4py that need no messages between ranks."""

#: Modules whose results do not depend on the number of ranks.
LOCAL = frozenset(
    {
        "test_address", "test_buffer", "test_cffi", "test_ctypes", "test_datatype", "test_doc", "test_environ",
        "test_errorcode", "test_handle", "test_info", "test_mpiabi", "test_mpiapi", "test_mpimem", "test_msgspec",
        "test_objmodel", "test_op", "test_package", "test_status", "test_subclass", "test_toplevel",
        "test_util_dtlib",
    }
)  # fmt: skip
#: Other modules whose tests leave no messages after a failure.
WITHOUT_MESSAGES = frozenset({"test_attributes", "test_exceptions"})
