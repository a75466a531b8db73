"""Views of tensors as arrays, and the names of PyTorch's operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ripieno._types import OpName
from ripieno.errors import InputError

_OPS: dict[Any, OpName | Literal["avg"]] = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
    dist.ReduceOp.BXOR: "xor",
}
# A sum of booleans is true if any operand is true.
_OPS_OF_BOOLEANS: dict[str, OpName] = {"sum": "or", "max": "or", "prod": "and", "min": "and"}


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a contiguous tensor's memory as an array of its shape, with complex numbers as pairs along one more axis.

    Raises
    ------
    InputError
        If NumPy has no type for its elements.
    """
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype == torch.bfloat16:
        words: NDArray[Any] = tensor.view(torch.int16).numpy()
        return words.view(_bfloat16())
    try:
        array: NDArray[Any] = tensor.numpy()
    except TypeError as error:
        raise InputError(f"a tensor of {tensor.dtype}: {error}") from error
    return array


def flat_array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a contiguous tensor's memory as one axis of bytes or numbers, for calls without reductions."""
    return array_of(tensor).reshape(-1)


def flat_length(tensor: torch.Tensor) -> int:
    """Return the number of elements of the array of `flat_array_of`."""
    return int(tensor.numel()) * (2 if tensor.is_complex() else 1)


def op_of(op: Any, dtype: torch.dtype) -> OpName | Literal["avg"]:
    """Return the name of an operation for a dtype; "avg" is a sum, divided at the end.

    Raises
    ------
    InputError
        If no operation combines such elements.
    """
    # A ReduceOp equals its kind, but has a different hash.
    name = next((name for kind, name in _OPS.items() if op == kind), None)
    if name is None:
        raise InputError(f"{op}: expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR")
    if dtype == torch.bool and name in _OPS_OF_BOOLEANS:
        name = _OPS_OF_BOOLEANS[name]
    if dtype.is_complex and name not in ("sum", "avg"):
        raise InputError(f"{op} of {dtype}: complex numbers can be summed and averaged only")
    if name == "avg" and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"ReduceOp.AVG of {dtype}: expected floating point numbers; sum them and divide the result")
    return name


class ContiguousTensors:
    """Contiguous forms of tensors for a call: the tensors themselves, or copies, which `put_back` copies to them."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._originals = list(tensors)
        self.tensors = [tensor.detach().contiguous() for tensor in tensors]
        self.arrays: list[NDArray[Any]] = [flat_array_of(tensor) for tensor in self.tensors]

    def put_back(self) -> None:
        for original, tensor in zip(self._originals, self.tensors, strict=True):
            if original.data_ptr() != tensor.data_ptr():
                original.copy_(tensor)


def copy_parts(flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Copy the rows of a tensor into other tensors, reshaped to their shapes."""
    for part, received in zip(parts, flat, strict=True):
        part.copy_(received.view(part.shape))


def tensor_like(array: NDArray[Any], tensor: torch.Tensor) -> torch.Tensor:
    """Return an array from `array_of` as a tensor with the dtype of `tensor`."""
    if tensor.is_complex():
        return torch.view_as_complex(torch.from_numpy(array))
    if tensor.dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as error:
        raise InputError("tensors of bfloat16 need ml_dtypes: pip install 'ripieno[torch]'") from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
