"""One worker's part where an engine (Spark, Ray) has started the process and calls a function in it."""

import math
import os
from collections import abc
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _channels, _failure, _lib, _lifecycle, _rendezvous
from .process_sets import whole


# What `psring run` or a job of its own has told a driver, which the processes of its engine inherit.
OF_A_DRIVER = (
    "PSRING_COORDINATOR", "PSRING_COORDINATOR_HOSTED", "PSRING_JOINED", "PSRING_KEY_FD", "PSRING_LOCAL_SIZE", "PSRING_RESTARTS",
)  # fmt: skip


def settings(mode: Optional[str], servers: Optional[int], servers_per_node: Optional[int]) -> Dict[str, str]:
    """The topology that a driver wishes, as variables of its workers."""
    if mode not in (None, "ring", "ps"):
        raise ValueError(f'mode={mode!r}: it is "ring" or "ps"')
    if mode != "ps" and (servers is not None or servers_per_node is not None):
        raise ValueError(f'only mode="ps" has servers; the mode is {mode!r}')
    wishes = {"MODE": mode, "SERVERS": servers, "SERVERS_PER_NODE": servers_per_node}
    return {"PSRING_" + name: str(value) for name, value in wishes.items() if value is not None}


def count(name: str, number: Any, most: float = math.inf) -> int:
    """Of workers, as the argument of that name says. ValueError for what is none."""
    try:
        chosen = whole(number)
    except (TypeError, ValueError):
        chosen = 0
    if not 0 < chosen <= most:
        raise ValueError(f"{name}={number!r}: it is a whole number from 1" + (f" to {most}" if most < math.inf else ""))
    return chosen


def arguments(args: Any, kwargs: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """A function's arguments as they travel. TypeError where they are one argument alone."""
    if not isinstance(args, abc.Sequence) or isinstance(args, (str, bytes)):
        raise TypeError(f"args={args!r:.200}: it is a tuple of the function's arguments; write args=(x,) for one")
    if not isinstance(kwargs or {}, abc.Mapping):
        raise TypeError(f"kwargs={kwargs!r:.200}: it is a dict of the function's arguments by name")
    return tuple(args), dict(kwargs or {})


def texts(env: Optional[Dict[str, str]]) -> Dict[str, str]:
    """More variables of workers. TypeError for one that is no text."""
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env={{{name!r}: {value!r}}}: names and values are texts; write {str(name)!r}: {str(value)!r}")
    return dict(env or {})


def place(rank: int, hosts: Sequence[str]) -> Dict[str, str]:
    """The variables of worker `rank`, where worker i is on hosts[i]."""
    nodes: List[str] = list(dict.fromkeys(hosts))
    return {
        "PSRING_RANK": str(rank), "PSRING_SIZE": str(len(hosts)),
        "PSRING_LOCAL_RANK": str(list(hosts[:rank]).count(hosts[rank])),
        "PSRING_NODE": str(nodes.index(hosts[rank])), "PSRING_NODES": str(len(nodes)),
    }  # fmt: skip


def call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Dict[str, Any],
    variables: Dict[str, str],
    channel: _rendezvous.Rendezvous,
) -> Any:
    """What `function` returns, which may call init(). Its exception ends the job for all, and is raised.

    The process's environment is its own again afterwards.
    """
    before = dict(os.environ)
    for name in OF_A_DRIVER:
        os.environ.pop(name, None)
    os.environ.update(variables)
    _channels.use(channel)
    try:
        result = function(*args, **kwargs)
        _lifecycle.shutdown()
        return result
    except BaseException as error:
        _failure.let_culprit_end_first(error)
        _lifecycle.abandon(_failure.described(error))
        raise
    finally:
        _channels.use(None)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def kind_of(result: Any) -> str:
    """What unpickled() calls a result."""
    return f"{type(result).__module__}.{type(result).__qualname__}"


def unpickled(pickle: Any, data: bytes, kind: str, rank: int, size: int) -> Any:
    """A worker's result, in the driver. PsringError where only the worker can make what it has pickled."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise _lib.PsringError(
            f"worker {rank} of {size} returned a {kind}, which this process cannot unpickle: {_failure.described(error)}. "
            "Return what it can, such as numbers, texts and lists or dicts of them, or let it import what the worker has imported"
        ) from error
