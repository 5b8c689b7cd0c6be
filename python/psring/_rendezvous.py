"""How rank 0 tells the others where the coordinator listens, where a launcher has a channel.

Rank 0 leaves the port to the system and tells it once it listens, so no port is agreed upon
before, and none can be taken by somebody else meanwhile. Where only the engine and the workers
read a channel, rank 0 makes a key for the job and tells that, too. _channels.py has the channels.
"""

import contextlib
import fcntl
import ipaddress
import os
import re
import socket
import threading
from concurrent import futures
from typing import Callable, Dict, Iterator, Tuple, TypeVar

from . import _lib

# What rank 0 tells where it has begun; any other text says why it could not.
_TOLD = re.compile(r"at ((?:\[[\w:.%-]+\]|[\w.-]+):\d{1,5})(?: (psring-key-1:[0-9a-f]{64}))?", re.ASCII)


class Rendezvous:
    """A channel among all workers. `host`: where rank 0's coordinator listens."""

    rank = 0
    name = "the launcher's channel"
    host = "127.0.0.1"
    # Whether strangers cannot read the channel.
    carries_key = False
    # Rank and size, where the environment does not say them.
    place: Dict[str, int] = {}

    def tell(self, text: str) -> None:
        """Rank 0, once for each init()."""
        raise NotImplementedError

    def close(self) -> None:
        """Rank 0, when all others have joined, or cannot any more."""

    def ask(self, seconds: float) -> str:
        """What rank 0 has told, by all others. TimeoutError after so long."""
        raise NotImplementedError


_T = TypeVar("_T")


def in_thread(call: Callable[[], _T]) -> "futures.Future[_T]":
    """For a launcher's call that has no deadline: it waits in a thread, which ends with the process."""
    outcome: "futures.Future[_T]" = futures.Future()

    def wait() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # of the launcher's own kinds
            outcome.set_exception(error)

    threading.Thread(target=wait, name="psring rendezvous", daemon=True).start()
    return outcome


def address_for_others(host: str) -> str:
    """`host`; where that is the name of a loopback address here, as Debian makes a host's own name in
    /etc/hosts, this host's address on the way to others."""
    try:
        ipaddress.ip_address(host)
        return host
    except ValueError:
        pass
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
        preferred = {address for address in addresses if ":" not in address} or addresses
        if "localhost" in host or not all(ipaddress.ip_address(address).is_loopback for address in preferred):
            return host
    except (OSError, UnicodeError):  # of a label of more than 63 characters, say
        return host  # the library says what is wrong with it
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asks:
            asks.connect((far, 9))  # sends nothing, to an address of nobody (RFC 5737, RFC 3849)
            return str(asks.getsockname()[0])
    return host


def new_key(channel: Rendezvous) -> str:
    """What rank 0 tells beside the address; "": the job's processes have a key, or want none."""
    by_user = os.environ.get("PSRING_KEY_FILE") or os.environ.get("PSRING_INSECURE") == "1"
    return "" if by_user or not channel.carries_key else "psring-key-1:" + os.urandom(32).hex()


def read(told: str, channel: Rendezvous) -> Tuple[str, str]:
    """The address of rank 0's coordinator, and the job's key ("": none), from what ask() returned."""
    if not told.startswith("at "):
        raise _lib.PsringError(f"worker 0 could not start the job: {_printable(told)}")
    found = _TOLD.fullmatch(told)
    if found is None:
        raise _lib.PsringError(
            f"{channel.name} brought {told[:200]!r} in place of worker 0's address: other processes use that channel, "
            "or worker 0 has another version of psring"
        )
    address, key = found.group(1), found.group(2) or ""
    if key and not channel.carries_key:
        raise _lib.PsringError(
            f"{channel.name}, which strangers may reach, brought a key, and psring sends none there: somebody "
            "other than worker 0 wrote it. Keep strangers away from the launcher's port, or set PSRING_RANK, "
            "PSRING_SIZE and PSRING_COORDINATOR=HOST:PORT for all processes"
        )
    return address, key


def _printable(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def handed_down(key: str) -> Iterator[None]:
    """The library finds the key in memory without a name, as if `psring run` had handed it down."""
    if not key:
        yield
        return
    try:
        memory = os.memfd_create("psring-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:  # vm.memfd_noexec=2 wants MFD_NOEXEC_SEAL said
        memory = os.memfd_create("psring-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | 8)
    try:
        os.fchmod(memory, 0o400)  # else /proc shows it with mode 0777
        os.write(memory, key.encode())
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
        os.environ["PSRING_KEY_FD"] = str(memory)
        yield
    finally:
        os.environ.pop("PSRING_KEY_FD", None)
        os.close(memory)
