"""One worker's part where an engine (Spark, Ray) has started the process and calls a function in it."""

import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import _channels, _failure, _lifecycle, _rendezvous


def settings(mode: Optional[str], servers: Optional[int], servers_per_node: Optional[int]) -> Dict[str, str]:
    """The topology that a driver wishes, as variables of its workers."""
    if mode not in (None, "ring", "ps"):
        raise ValueError(f'mode={mode!r}: it is "ring" or "ps"')
    if mode != "ps" and (servers is not None or servers_per_node is not None):
        raise ValueError(f'only mode="ps" has servers; the mode is {mode!r}')
    wishes = {"MODE": mode, "SERVERS": servers, "SERVERS_PER_NODE": servers_per_node}
    return {"PSRING_" + name: str(value) for name, value in wishes.items() if value is not None}


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
    os.environ.pop("PSRING_COORDINATOR", None)
    os.environ.update(variables)
    _channels.use(channel)
    try:
        result = function(*args, **kwargs)
        _lifecycle.shutdown()
        return result
    except BaseException as error:
        _failure.let_culprit_end_first(error)
        _lifecycle.abandon(f"{type(error).__name__}: {error}")
        raise
    finally:
        _channels.use(None)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
