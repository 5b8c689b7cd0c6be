"""More than halves the time of a test's processes. The first optimizer of a process imports torch's compiler
(torch._dynamo), only to tell it which functions to leave alone, and torch.distributed to empty a cache of it: here the
compiler is imported where anything else is asked of it. And at its end a process looks several times through all that
torch has made for cycles without a user: here it does not, and what is in a cycle goes with the process.

Python runs this file first in each process that has its folder on PYTHONPATH.
"""

import atexit
import gc
import importlib
import sys
import types


class _ImportedWhenUsed(types.ModuleType):
    trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)  # which torch.distributed calls

    def disable(self, fn=None, *_, **__):
        return fn or (lambda function: function)

    def graph_break(self, *_, **__):
        pass

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":  # the import system and inspect ask for these
            raise AttributeError(name)
        if sys.modules[self.__name__] is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


sys.modules["torch._dynamo"] = _ImportedWhenUsed("torch._dynamo")
atexit.register(gc.freeze)  # the first to be registered is the last to be called
