"""What the elastic of psring.torch, jax, keras and tensorflow have in common: values that outlive a job's processes, in a
file that rank 0 writes. It knows no framework.

Horovod's workers keep a commit in memory, and those that are left go on from it. psring starts all workers again
(psring run --max-restarts=N), as many as before, and rank 0 reads its commit from a file.
"""

import functools
import os
import pickle
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar

from . import _failure, _job
from .collectives import broadcast_bytes, broadcast_json

_Result = TypeVar("_Result")

_FOLDER = "PSRING_STATE_DIR"
_FORMAT = "psring elastic state 1"
_ANEW = "Without that file the job begins anew"


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return ""


_made: Dict[str, int] = {}  # states of this process, by their files' ending; each has a file of its own

# A relative PSRING_STATE_DIR is meant from here, also where a script goes to a folder that is new in each start.
_began_in = _working_folder()


def _check_folder(folder: str) -> None:
    """Rather than at the first commit(), when the steps before are lost."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OSError(f"{_FOLDER}: cannot make {folder}: {error}. Give psring run another --state-dir") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{_FOLDER}: cannot write to {folder}. Give psring run another --state-dir")


def _opened_as_no_link(path: str, flags: int) -> int:
    """In a folder such as /tmp, another user can have put a link there, to a file of this user's."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _check_owner(file: IO[bytes]) -> None:
    """Before anything is read, as a pickle can run code. Errors: PermissionError."""
    owner = os.fstat(file.fileno()).st_uid
    if owner in (os.geteuid(), 0):
        return
    # Some file systems of other hosts tell one owner for all files.
    with tempfile.TemporaryFile(dir=os.path.dirname(file.name)) as own:
        if os.fstat(own.fileno()).st_uid == owner:
            return
    raise PermissionError(
        f"it belongs to user {owner}, and what it holds can run code. If you trust that user: chown {os.geteuid()} {file.name}"
    )


def _replace(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """Errors: OSError, and those of write()."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = path + ".new"
    try:
        with open(new, "wb", opener=_opened_as_no_link) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        if os.path.isfile(new):
            os.remove(new)
        raise


def from_rank_0(value: Any) -> Any:
    """Rank 0's value, on all ranks; it gets its own back. Classes of the script are those of the rank's own script:
    cloudpickle (broadcast_object) would make others of them."""
    mine = pickle.dumps(value, protocol=4) if _job.rank() == 0 else None
    data = broadcast_bytes(mine)
    return value if mine is not None else pickle.loads(data)


# A variable as it is written: its name, and its value, an array.
Saved = Tuple[str, Any]


def assign(variables: List[Any], names: List[str], saved: List[Saved]) -> None:
    """Errors: ValueError where the variables, of these names, are not like those that were saved."""
    here = [(name, list(variable.shape)) for name, variable in zip(names, variables)]
    for i in range(max(len(here), len(saved))):
        there = (saved[i][0], list(saved[i][1].shape)) if i < len(saved) else None
        if there is None or i >= len(here) or there[1] != here[i][1]:
            told = [f"{of[0]}{of[1]}" if of else "nothing" for of in (there, here[i] if i < len(here) else None)]
            raise ValueError(f"variable {i} is {told[0]} there, and {told[1]} here")
    for variable, (_, array) in zip(variables, saved):
        variable.assign(array)


class State:
    """Values that all ranks have alike and that outlive the job's processes, as attributes of these names.

    A subclass says how its framework's values are kept, in the methods under "What a framework has of its own". A
    commit consists of "states", of objects that stay the objects that they are, and of "values", which are replaced.
    Rank 0 keeps the last commit in the folder PSRING_STATE_DIR. Its file is a pickle.

    A script's class may override save(), restore(), sync() and on_reset(), as Horovod's documentation shows, and calls
    those of its base. After a start of the job, its restore() comes in a new process.
    """

    def __init__(self, ending: str, values: Dict[str, Any]):
        """`ending`: of the file's name, as the framework has it."""
        number = _made.get(ending, 0)
        _made[ending] = number + 1
        self._file = f"state-{number}.{ending}" if number else f"state.{ending}"
        self._callbacks: List[Callable[[], None]] = []
        self._warned = False
        self._is_kept: Optional[bool] = None  # whether rank 0 has a folder
        self._has_begun = False  # by a function of run()
        self._may_replace = False  # rank 0: the file has nothing that this process is still to go on from
        for name, value in values.items():
            if name.startswith("_") or hasattr(type(self), name):
                kind = type(self).__name__
                raise ValueError(f"{kind}({name}=...): {name} has a meaning of its own here. Choose another name")
            setattr(self, name, value)
        self._names = list(values)

    if TYPE_CHECKING:  # the values

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """They are called where the job goes on from a commit of another number of workers, after the values
        are that commit's: there a script sets what depends on the number, such as the learning rate."""
        self._callbacks.extend(callbacks)

    def commit(self) -> None:
        """The values are from now on what the job goes on from. All ranks call it, between steps. A commit of an
        earlier start stays until a function of run(), or restore(), has gone on from it.

        Rank 0 blocks until its file is on the disk. Errors: OSError of rank 0 where it cannot be written; the commit
        before stays.
        """
        self.save()
        self.check_host_updates()

    def save(self) -> None:
        """As commit()."""
        path = self._path()
        if self._is_kept is None:
            self._is_kept = broadcast_json(path is not None)
        if not self._is_kept:
            self._say_why_not()
            return
        states = self._states()
        if _job.rank() != 0 or path is None:
            return
        if not self._may_replace and os.path.exists(path):
            self._warn(f"leaves {path} as it is, as neither a function of elastic.run nor restore() has gone on from that yet")
            return
        self._may_replace = True
        saved = {"format": _FORMAT, "size": _job.size(), "states": states, "values": self._values()}
        try:
            _replace(path, lambda file: self._write(saved, file))
        except (OSError, RuntimeError) as error:  # the latter of torch's writer, of a full disk, say
            raise OSError(f"commit() cannot write {path}: {error}") from error
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"commit() of {', '.join(self._names)}: a value cannot be pickled: {_failure.described(error)}") from error

    def restore(self) -> None:
        """Back to the last commit. All ranks call it, between steps. Errors: there is none that fits."""
        if not self._go_on():
            raise RuntimeError(f"restore(): nothing has been committed{'' if self._path() else f', as {_FOLDER} is not set'}")

    def sync(self) -> None:
        """All ranks take rank 0's values. All ranks call it, before the first step."""
        states = self._states()
        mine = _job.rank() == 0
        self._take(states if mine else {}, self._values() if mine else {}, of_commit=False)

    def check_host_updates(self) -> None:
        """Horovod's, where hosts come and go while a job runs. psring's workers stay the same."""

    def on_reset(self) -> None:
        for callback in self._callbacks:
            callback()

    # ---- What a framework has of its own ---------------------------------------

    # Of a value with a state, in an error.
    _with_state = "with a state"

    def _has_state(self, value: Any) -> bool:
        """Whether the value stays the object that it is, and takes a commit's state."""
        return False

    def _states(self) -> Dict[str, Any]:
        """What is written of values with a state, by name. All ranks call it; rank 0's result counts."""
        return {}

    def _values(self) -> Dict[str, Any]:
        """What is written of the other values, by name. Rank 0 calls it."""
        return {name: getattr(self, name) for name in self._names if not self._has_state(getattr(self, name))}

    def _take(self, states: Dict[str, Any], values: Dict[str, Any], of_commit: bool) -> None:
        """All ranks' values become rank 0's arguments, those of a commit or those that rank 0 has now. All ranks call
        it; the others' arguments are empty."""
        raise NotImplementedError

    def _write(self, saved: Dict[str, Any], file: IO[bytes]) -> None:
        pickle.dump(saved, file, protocol=4)

    def _load(self, file: IO[bytes]) -> Dict[str, Any]:
        return pickle.load(file)  # type: ignore[no-any-return]

    def _differs(self, name: str, why: Any, of_commit: bool = True) -> RuntimeError:
        """For _take(), where what it is given does not fit this rank's value."""
        if of_commit:
            return RuntimeError(f"{name} is not as it was in the last commit, {self._file}: {why}. {_ANEW}")
        return RuntimeError(f"rank {_job.rank()}: {name} is not as it is on rank 0: {why}")

    # ---- The file --------------------------------------------------------------

    def _path(self) -> Optional[str]:
        folder = os.environ.get(_FOLDER)
        return os.path.join(_began_in, folder, self._file) if folder else None

    def _warn(self, what: str) -> None:
        if not self._warned:
            print(f"psring: commit() {what}", file=sys.stderr, flush=True)
        self._warned = True

    def _say_why_not(self) -> None:
        why = f"nobody would start this job again: give psring run --max-restarts=N, or set {_FOLDER} to a folder"
        if _FOLDER in os.environ:
            why = f"{_FOLDER} is set to nothing"
        if _job.rank() == 0:
            self._warn(f"keeps nothing, as {why}")

    def _begin(self, kind: Type["State"]) -> None:
        """For a function of run(), where this is the first one. `kind`: the framework's class.

        A script's own class may have restore() and sync() of its own. As Horovod does, this calls the latter after the
        former, too: it may share what is in no commit.
        """
        path = self._path() if _job.rank() == 0 else None
        if path is not None:
            _check_folder(os.path.dirname(path))
        is_committed = broadcast_json(path is not None and os.path.exists(path))
        if is_committed:
            self.restore()
        if not is_committed or type(self).sync is not kind.sync:
            self.sync()
        self._may_replace = True  # also where a restore() of the script's own has not read it

    def _go_on(self) -> bool:
        """From the last commit, on all ranks; False: there is none."""
        saved = self._read() if _job.rank() == 0 else None
        self._may_replace = True
        size = broadcast_json(saved["size"] if saved else 0)
        if size == 0:
            return False
        self._take(saved["states"] if saved else {}, saved["values"] if saved else {}, of_commit=True)
        if size != _job.size():
            self.on_reset()
        return True

    def _read(self) -> Optional[Dict[str, Any]]:
        path = self._path()
        if path is None:
            return None
        _check_folder(os.path.dirname(path))
        if not os.path.exists(path):
            return None
        try:
            with open(path, "rb") as file:
                _check_owner(file)
                saved = self._load(file)
            if saved["format"] != _FORMAT:
                raise ValueError(f"its format is {saved['format']!r}, not {_FORMAT!r}")
        except Exception as error:  # whatever a pickle raises
            raise RuntimeError(
                f"{path} is no commit that can be read ({_failure.described(error)}). {_ANEW}"
            ) from error
        committed = {**dict.fromkeys(saved["states"], True), **dict.fromkeys(saved["values"], False)}
        mine = {name: self._has_state(getattr(self, name)) for name in self._names}
        if committed != mine:
            raise RuntimeError(
                f"{path} has been committed by a {type(self).__name__} of {self._told(committed)}, and this one is of "
                f"{self._told(mine)}. {_ANEW}"
            )
        return saved

    def _told(self, kinds: Dict[str, bool]) -> str:
        """Names, and whether their values have a state."""
        return ", ".join(name + f" ({self._with_state})" * kinds[name] for name in sorted(kinds))


def begins(func: Callable[..., _Result], kind: Type[State]) -> Callable[..., _Result]:
    """func(state, ...), as a framework's run() makes it of states of that class."""

    @functools.wraps(func)
    def begin(state: State, *args: Any, **kwargs: Any) -> _Result:
        if not isinstance(state, kind):
            raise TypeError(f"{func.__name__}() takes a {kind.__name__} first, not {type(state).__name__}")
        # In a second call, what this process has trained since its last commit is newer than that.
        if not state._has_begun:
            state._begin(kind)
        state._has_begun = True
        return func(state, *args, **kwargs)

    return begin
