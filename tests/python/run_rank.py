"""One rank: puts the fake library in place, then runs a script or a function."""

import importlib
import os
import pickle
import runpy
import sys

from psring import _lib

if not os.environ.get("PSRING_LIBRARY"):
    from fake_psring import FakeLibrary

    _lib.use(FakeLibrary())

script = sys.argv[1]
if script == "-function":
    module, name, directory = sys.argv[2:]
    result = getattr(importlib.import_module(module), name)()
    with open(os.path.join(directory, os.environ["PSRING_RANK"]), "wb") as file:
        pickle.dump(result, file)
else:
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")
