"""Halves the time of a test's processes: the first optimizer of a process imports torch's compiler (torch._dynamo),
only to tell it which functions to leave alone. Here the compiler is imported where anything else is asked of it.

Python runs this file first in each process that has its folder on PYTHONPATH.
"""

import importlib
import sys
import types


class _ImportedWhenUsed(types.ModuleType):
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
