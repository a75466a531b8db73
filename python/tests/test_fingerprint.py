"""Fingerprints of programs: equal for equal functions with equal data, in every process, and otherwise different."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.wire.fingerprint import fingerprint


def emit(part, value, scale=1):
    return [part], [value * scale]


@dataclass(slots=True)
class Emit:
    """A callable object with a method."""

    scale: object

    def __call__(self, part, value):
        return emit(part, value, self.scale)

    def again(self, part, value):
        return self(part, value)


def closing_over(scale, offset=0):
    return lambda part, value: [part * scale + each for each in value if each in {1, 2, 3}]


def with_default(scale):
    def function(part, value, *, scale=scale):
        return emit(part, value, scale)

    return function


def recursive(scale):
    def function(part, value):
        return function(part - scale, value) if part else [value]

    return function


FACTORIES = {
    "closure": closing_over,
    "default": with_default,
    "recursive": recursive,
    "partial": lambda scale: functools.partial(emit, scale=scale),
    "partial of an object": lambda scale: functools.partial(Emit(scale), 1),
    "object": Emit,
    "method": lambda scale: Emit(scale).again,
}


def test_the_fingerprint_matches_the_functions_and_their_data():
    prints = {}
    for name, make in FACTORIES.items():
        for scale in (1, 2):
            prints[name, scale] = fingerprint({"map": make(scale), "combine": "sum"})
            assert prints[name, scale] == fingerprint({"combine": "sum", "map": make(scale)})
    for name, program in {
        "combine": {"map": closing_over(1), "combine": "max"},
        "code": {"map": lambda part, value: [part - each for each in value], "combine": "sum"},
        "add": {"map": np.add, "combine": "sum"},
        "subtract": {"map": np.subtract, "combine": "sum"},
        "builtin": {"map": len, "combine": "sum"},
        "class": {"map": list, "combine": "sum"},
    }.items():
        prints[name, 0] = fingerprint(program)
    assert len(set(prints.values())) == len(prints)


def test_the_fingerprint_depends_on_the_values_of_data():
    values = [
        *(0, 1, True, 1.0, "1", b"1", None, [1], (1,), {1}, [[1], 1], [[1, 1]], {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        *(np.int64(1), np.array([1]), np.array([[1]]), np.array([1.0]), np.array([]), np.array(["a", None], object)),
        *(Path("a"), Emit(1), Emit([2]), "\udcff"),
    ]
    prints = [fingerprint({"map": functools.partial(emit, scale=value)}) for value in values]
    assert len(set(prints)) == len(values)
    loop = [1]
    loop.append(loop)
    values.append(loop)
    again = [fingerprint({"map": functools.partial(emit, scale=copy.deepcopy(value))}) for value in values]
    assert again[:-1] == prints


def test_the_fingerprint_ignores_objects_that_are_not_data():
    def function(part, value):
        seen.add(value)

    before = fingerprint({"map": function})
    seen = object()
    assert fingerprint({"map": function}) == before
    seen = {1}
    assert fingerprint({"map": function}) != before


def test_the_fingerprint_is_the_same_in_every_process():
    program = (
        "import functools; from ripieno.wire.fingerprint import fingerprint\n"
        "make = lambda scale: lambda part, value: (scale, part in {'a', 'b', 'c'})\n"
        "print(fingerprint({'map': functools.partial(make({'a', 'b', 'c'}), x=dict.fromkeys({'d', 'e', 'f'}))}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_same_function_with_other_data_does_not_resume(world, tmp_path):
    def run(scale):
        function = functools.partial(emit, value=3, scale=scale)
        with rp.MapReduce(lambda part, _: function(part), job=world(1), checkpoint=tmp_path) as job:
            job.cache([0])
            for _ in job.iterations(1):
                job.step()
            return job.result.values.tolist()

    assert run(1) == run(1) == [3]
    with pytest.raises(rp.CheckpointError, match=r"is of another program: map.* had other data: delete"):
        run(2)
