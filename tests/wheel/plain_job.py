"""Collectives of a worker whose Python has nothing but psring."""

import array
import json
import os
import sys

import psring

psring.init()
numbers = array.array("f", [psring.rank() + 1.0] * 1000)
psring.allreduce_(numbers, op=psring.Sum)
said = {
    "rank": psring.rank(), "size": psring.size(), "mode": psring.mode(), "sum": numbers.tolist(),
    "objects": psring.allgather_object({"rank": psring.rank()}),
    "root": psring.broadcast_object(f"of rank {psring.rank()}"),
    "library": psring._lib._path(),
}  # fmt: skip
with open(os.path.join(sys.argv[1], str(psring.rank())), "w") as file:
    json.dump(said, file)
