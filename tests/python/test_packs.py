"""Small arrays that travel together."""

import numpy as np

from ranks import run

import psring
from psring import collectives as memory
from psring._packs import Comparison, Packs


def kind(array):
    return (str(array.dtype), array.shape)


def test_small_arrays_of_a_dtype_travel_together_and_come_back_as_they_were():
    arrays = [np.zeros((0, 3)), np.float32([1, 2]), np.arange(12.0).reshape(3, 4), np.float32(7).reshape(()), np.ones(5)]
    packs = Packs([kind(array) for array in arrays])
    assert packs.members == [[0, 2, 4], [1, 3]]
    packed = packs.pack(arrays, np)
    assert [one.dtype for one in packed] == [np.float64, np.float32]
    for array, again in zip(arrays, packs.unpack(packed, np)):
        assert again.dtype == array.dtype and np.array_equal(again, array) and again.shape == array.shape


def test_large_arrays_and_those_of_no_known_kind_travel_alone():
    large, small = ("float32", (300, 300)), ("float32", (100, 100))
    packs = Packs([small, large, None, small])
    assert packs.members == [[0, 3], [1], [2]]
    # A pack has an end: no copy grows with the number of arrays.
    assert [len(pack) for pack in Packs([small] * 250).members] == [104, 104, 42]


def compare():
    """By case, the error of this rank."""
    psring.init()
    me, told = psring.rank(), {}
    cases = {
        "equal": [("float32", (2, 3)), ("float32", (4,))],
        "shapes": [("float32", (2, 3) if me else (3, 2)), ("float32", (4,))],
        "order": [("float32", (6,)), ("float32", (4,))][:: 1 if me else -1],
        "dtypes": [("float16" if me == 2 else "float32", (2,))] * 2,
    }
    for name, kinds in cases.items():
        comparison = Comparison(Packs(kinds))
        numbers = np.array(comparison.numbers)
        at, dtype = numbers.ctypes.data, memory.number_of_dtype(numbers.dtype)
        memory.start_allreduce(name, at, at, numbers.size, dtype, memory.Sum, keep=numbers).finish()
        try:
            comparison.check(numbers, name, memory.global_process_set)
            told[name] = ""
        except psring.PsringError as error:
            told[name] = str(error)
    return told


def test_ranks_that_pack_other_arrays_are_told_which():
    ranks = run(compare, size=3)
    assert all(rank == ranks[0] for rank in ranks)
    told = ranks[0]
    assert told["equal"] == ""
    assert "array 0, float32[3, 2] on rank 0, array 0, float32[2, 3] on rank 1" in told["shapes"]
    assert "array 0, float32[4] on rank 0, array 0, float32[6] on rank 1" in told["order"]
    assert "array 0, float32[2] on rank 0, array 0, float16[2] on rank 2" in told["dtypes"]
