"""What init() takes: an argument, else the environment's variable."""

import math
import numbers
import os
from typing import Any, Dict, Optional, Tuple

from . import _lib
from .process_sets import whole


# What holds where neither an argument nor a variable says otherwise.
DEFAULTS = {"sync": "bsp", "compress": "none", "bucket_mb": 25, "gpu": "auto"}


def parse_sync(sync: Optional[str], staleness: Optional[int]) -> Tuple[Optional[str], Optional[int]]:
    """("ssp:3", None) -> ("ssp", 3). Errors: another word, two bounds that differ."""
    if sync is None:
        return None, staleness
    word, _, bound = str(sync).partition(":")
    policies = _lib.policies()
    if word not in policies or (bound and not policies[word].bounded):
        forms = ", ".join(policy.form for policy in policies.values())
        raise ValueError(f"sync={sync!r}: it is one of {forms}")
    if not bound:
        return word, staleness
    if not bound.isdigit():
        raise ValueError(f'sync={sync!r}: the K of "{word}:K" is a number of steps')
    if staleness is not None and staleness != int(bound):
        raise ValueError(f"sync={sync!r} and staleness={staleness} differ: give one of them")
    return word, int(bound)


def takes_steps_together(sync: Optional[str]) -> bool:
    """Whether nobody is ahead of the others; None is the default."""
    return sync is None or _lib.policies()[sync].barrier


def defaults(**given: Any) -> Dict[str, Any]:
    """Settings of models that init() was given, else the environment's."""
    values: Dict[str, Any] = {
        key: value if value is not None else os.environ.get("PSRING_" + key.upper()) or None
        for key, value in given.items()
    }
    for key, kind, what in (("staleness", _steps, "a whole number from 0"), ("bucket_mb", float, "a number")):
        if values[key] is not None:
            try:
                values[key] = kind(values[key])
            except (TypeError, ValueError):
                raise ValueError(f"{key} (or PSRING_{key.upper()}) is {values[key]!r}: not {what}") from None
    for key, check in (("bucket_mb", bucket_mb), ("compress", compress)):
        if values[key] is not None:
            check(values[key])
    values["sync"], values["staleness"] = parse_sync(values["sync"], values["staleness"])
    if values["gpu"] not in (None, "auto", "nccl", "host", "off"):
        raise ValueError(f'gpu={values["gpu"]!r}: it is "auto", "nccl", "host" or "off"')
    if values["update"] not in (None, "local", "fused"):
        raise ValueError(f'update={values["update"]!r}: it is "local" or "fused"')
    return values


def compress(how: Any) -> str:
    """Checks compress=, and returns it. What the library makes of the F of "topk:F" it says itself."""
    kinds = ("none", "fp16", "bf16", "int8", "onebit", "topk")
    if not isinstance(how, str) or how.partition(":")[0] not in kinds:
        raise ValueError(f'compress={how!r}: it is "none", "fp16", "bf16", "int8", "onebit" or "topk:F"')
    return how


def bucket_mb(mb: Any) -> float:
    """Checks bucket_mb=, and returns it."""
    if not (isinstance(mb, numbers.Real) and 1e-5 <= float(mb) <= 1024):
        raise ValueError(f"bucket_mb={mb!r}: it is a number from 0.00001 to 1024")
    return float(mb)


def _steps(number: Any) -> int:
    steps = int(number) if isinstance(number, str) else whole(number)
    if steps < 0:
        raise ValueError
    return steps


def plain(options: Dict[str, Any]) -> Dict[str, Any]:
    """The options that are not None as the library takes them, texts (of paths, too), numbers, yes or no. Errors name
    the one that is none of these."""
    told: Dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, (str, bool)):
            told[name] = value
        elif isinstance(value, numbers.Integral):
            told[name] = int(value)
        elif isinstance(value, numbers.Real) and math.isfinite(value):
            told[name] = float(value)
        else:
            raise TypeError(f"init({name}={value!r}): it is a text, a number, or True or False")
    return told


def _whole(variable: str) -> Optional[int]:
    """The environment's number, or None."""
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{variable}={text}: not a whole number")
    return int(text)


def servers_of(servers: Optional[int], options: Dict[str, Any]) -> Dict[str, Any]:
    """How many servers there are and whether they live here: as the script says, else the environment."""
    own = os.environ.get("PSRING_OWN_SERVERS")
    if own not in (None, "", "0", "1"):
        raise ValueError(f"PSRING_OWN_SERVERS={own}: not 0 or 1")
    by_script = servers is not None or "servers_per_node" in options
    return {
        "servers": servers if by_script else _whole("PSRING_SERVERS"),
        "servers_per_node": None if by_script else _whole("PSRING_SERVERS_PER_NODE"),
        "own_servers": own != "0" if own else None,
    }


def seconds(variable: str) -> Optional[float]:
    text = os.environ.get(variable)
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{variable}={text}: not a number of seconds") from None
