"""What ranks take from the channel on which rank 0 tells where its coordinator listens."""

import os
import time

import pytest

import psring
from psring import _channels, _lifecycle, _rendezvous
from ranks import free_port

KEY = "psring-key-1:" + 32 * "5a"


class Joined(Exception):
    """In place of joining: the coordinator, and the key that was handed down."""


@pytest.fixture
def joining(monkeypatch):
    def start_join(request, key=""):
        raise Joined(request["coordinator"], key)

    monkeypatch.setattr(_lifecycle, "_start_join", start_join)
    for name in [name for name in os.environ if name.startswith("PSRING_") and name != "PSRING_LIBRARY"]:
        monkeypatch.delenv(name)
    yield monkeypatch
    _channels.use(None)


class Told(_rendezvous.Rendezvous):
    rank, name = 1, "the channel of a test"

    def __init__(self, text, carries_key):
        self._text, self.carries_key = text, carries_key

    def ask(self, seconds):
        return self._text


@pytest.mark.parametrize("text, carries_key, place", [
    ("at 10.0.0.1:7000", False, ("10.0.0.1:7000", "")),
    ("at [fe80::1]:7000", False, ("[fe80::1]:7000", "")),
    (f"at node-3.cluster:7000 {KEY}", True, ("node-3.cluster:7000", KEY)),
])  # fmt: skip
def test_ranks_join_where_rank_0_says(joining, text, carries_key, place):
    _channels.use(Told(text, carries_key))
    with pytest.raises(Joined) as joined:
        psring.init()
    assert joined.value.args == place


@pytest.mark.parametrize("text, carries_key, says", [
    (f"at evil:7000 {KEY}", False, "the channel of a test, which strangers may reach, brought a key"),
    ("ValueError: no\x1b[2J such\nthing \udc80", True, r"start the job: ValueError: no\\x1b\[2J such\nthing \\udc80$"),
    ("at evil", True, "the channel of a test brought 'at evil' in place of worker 0's address"),
    ("at evil:7000 ", True, "in place of worker 0's address"),
    ("at evil:70000 " + KEY + "5a", True, "in place of worker 0's address"),
    ("at evil:7000 psring-key-1:\ud800", True, "in place of worker 0's address"),
    (f"at e\0vil:7000 {KEY}", True, "in place of worker 0's address"),
    ("at evil:7000 " + 10000 * "x", True, "in place of worker 0's address"),
])  # fmt: skip
def test_ranks_do_not_join_where_a_channel_brings_something_else(joining, text, carries_key, says):
    _channels.use(Told(text, carries_key))
    with pytest.raises(psring.PsringError, match=says) as refused:
        psring.init()
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text, says", [
    (f"at evil:7000 {KEY}", "torchrun's store, which strangers may reach, brought a key"),
    (b"at evil:7000 \xff\xfe", r"torchrun's store brought .*\\\\xff.* in place of"),
])  # fmt: skip
def test_a_stranger_cannot_hand_down_a_key_through_torchruns_store(joining, text, says):
    distributed = pytest.importorskip("torch.distributed")
    port = free_port()
    store = distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    place = {
        "TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    for name, value in place.items():
        joining.setenv(name, value)
    store.set(f"psring/{_channels.TorchrunStore._jobs + 1}/answer/1", text)
    with pytest.raises(psring.PsringError, match=says):
        psring.init()


def test_a_rank_that_comes_late_learns_through_torchruns_store_why_rank_0_has_failed(monkeypatch):
    distributed = pytest.importorskip("torch.distributed")
    port = free_port()
    store = distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(2):
        monkeypatch.setattr(_channels.TorchrunStore, "_jobs", 0)  # each in a process of its own
        ranks.append(_channels.TorchrunStore(rank, "127.0.0.1", "127.0.0.1", port))
    ranks[0].tell("ValueError: no")
    time.sleep(0.3)
    assert ranks[1].ask(10) == "ValueError: no"
    ranks[0].close()
    with pytest.raises(TimeoutError):
        ranks[1].ask(0.3)
    del store


def test_an_engines_channel_comes_before_a_groups_store(monkeypatch):
    """It may carry the job's key."""
    engines, groups = Told("", False), Told("", False)
    monkeypatch.setattr(_channels, "_given", None)
    with _channels.using(groups):
        assert _channels.find({}) is groups
    _channels.use(engines)
    with _channels.using(groups):
        assert _channels.find({}) is engines
    assert _channels.find({}) is engines


def test_a_group_that_waits_in_vain_names_rank_0(monkeypatch):
    distributed = pytest.importorskip("torch.distributed")
    store = distributed.TCPStore("localhost", free_port(), is_master=True, wait_for_workers=False)
    channel = _channels.GroupStore(distributed.PrefixStore("a", distributed.PrefixStore("b", store)), 1)
    assert channel.host == "localhost" and _channels.GroupStore(distributed.HashStore(), 1).host
    monkeypatch.setattr(_channels.socket, "gethostname", lambda: "nobody-knows-it.invalid")
    assert _channels.GroupStore(distributed.HashStore(), 1).host == "127.0.0.1"
    with pytest.raises(TimeoutError, match="worker 0 has not come to init_process_group"):
        channel.ask(0.3)
    channel.tell("ValueError: no")
    assert channel.ask(10) == "ValueError: no"


def test_the_others_learn_of_a_failure_that_names_an_odd_file(joining):
    channel, told = Told("", False), []
    channel.rank, channel.tell = 0, told.append
    joining.setattr(_lifecycle, "_start_join", lambda *_: open("/no/such\udc80"))
    _channels.use(channel)
    with pytest.raises(FileNotFoundError):
        psring.init()
    assert told and told[0].startswith("FileNotFoundError: ") and told[0].encode()


def test_only_this_user_may_read_the_key_that_is_handed_down():
    with _rendezvous.handed_down(KEY):
        memory = int(os.environ["PSRING_KEY_FD"])
        assert os.fstat(memory).st_mode & 0o777 == 0o400
        with open(f"/proc/self/fd/{memory}") as file:
            assert file.read() == KEY


def test_a_name_that_no_resolver_takes_is_left_to_the_library(monkeypatch):
    name = "h" * 64  # Linux takes so many characters, and IDNA 63
    assert _rendezvous.address_for_others(name) == name
    monkeypatch.setattr(_channels.socket, "gethostname", lambda: name)
    assert _channels._own_name() == "127.0.0.1"
