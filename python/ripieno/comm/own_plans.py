"""Provide the call that runs plans of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from ripieno.wire.arrays import (
    check_combinable,
    fill,
    in_place,
    is_plain,
    native_copy,
    native_elements,
    reducible,
    required,
)
from ripieno.wire.calls import NativeCalls

if TYPE_CHECKING:
    from ripieno.plan import CheckedPlans


class OwnPlans(CallBase):
    """Calls of a communicator that run plans of the program."""

    def run(self, plans: CheckedPlans, value: Any, *, out: NDArray[Any] | None = None) -> Any:
        """Run this rank's plan of a set that `ripieno.plan.check` has proved.

        Parameters
        ----------
        plans : CheckedPlans
            The same set on every rank; otherwise `CollectiveMismatch` lists the differences.
        value : array or number
            The initial content of the buffer "main": `CheckedPlans.count` elements of `CheckedPlans.itemsize` bytes, of
            the same dtype on every rank.
        out : ndarray, optional
            Receives the result. If the plans have a buffer "output", it is that buffer, and its content is the initial
            one; otherwise it may be `value` itself.

        Returns
        -------
        array or None
            The buffer "output" if the plans have one, else "main" in the shape of `value`; `out` if given. Elements
            that the checked collective does not promise are undefined. None on a rank that the collective promises
            nothing, such as a rank other than the root in a reduce.
        """
        # Imported here, because few programs use plans, and every process imports this module.
        from ripieno.plan import CheckedPlans

        if not isinstance(plans, CheckedPlans):
            raise InputError(
                f"run: plans={plans!r}: expected the result of ripieno.plan.check(plans); plans that were not checked "
                "never run"
            )
        if plans.world_size != self.world_size:
            raise InputError(f"run: plans of {plans.world_size} ranks: expected {self.world_size}, one per rank")
        array = required(value, "run") if plans.op is None else reducible(value, plans.op, "run")
        if (array.size, array.itemsize) != (plans.count, plans.itemsize):
            raise InputError(
                f"run: value of {array.size} elements of {array.itemsize} bytes: expected {plans.count} of "
                f"{plans.itemsize} bytes, as in the plans"
            )
        if out is not None:
            out = in_place(out) if plans.op is None else check_combinable(out, plans.op, "run")
        return self._do(self._planned(plans, array, out))

    def _planned(self, plans: CheckedPlans, array: NDArray[Any], out: NDArray[Any] | None) -> NativeCalls[Any]:
        native, output = plans._native, None
        if plans.output_count:
            result = np.zeros(plans.output_count, array.dtype) if out is None else out
            # Elements of the result must not overwrite elements that are still to be read.
            is_separate = out is None or not np.may_share_memory(array, out)
            is_read = is_separate and native.only_reads(self.rank) and is_plain(array)
            main = array if is_read else native_copy(array)
            if (result.size, result.dtype) != (plans.output_count, array.dtype):
                raise InputError(
                    f"out: {result.size} elements of {result.dtype}: expected {plans.output_count} of {array.dtype}"
                )
            output = native_elements(result)[0]
        else:
            result = main = native_copy(array) if out is None else fill(out, array)
        signature = f"{plans.signature}, {array.dtype}"
        has_result = native.has_result(self.rank)
        call = ("run_plan", native_elements(main)[0], native, output, signature)
        return NativeCalls([call], lambda: result if has_result else None)
