"""SIGTERM as a wish that all workers learn of at the same step."""

import os
import signal
import threading
from typing import Any, Optional

from . import _job, _lib, collectives


class Preemption:
    """From its making on, SIGTERM to any worker or server ends the training of all after the step.

        preemption = psring.Preemption()
        for batch in loader:
            step(batch)
            if preemption.requested():
                save(model)
                psring.shutdown()
                sys.exit(75)  # not over: Kubernetes would take 0 for completed

    Kubernetes sends SIGTERM to a pod that is taken away, and kills what still runs 30 s later
    (terminationGracePeriodSeconds). Slurm sends it before a job's limit of time with
    sbatch --signal=TERM@120, before a preemption with GraceTime, and by scancel --signal=TERM; a plain
    scancel leaves no time.

    Args:
        every: ask the others only at every so many calls. Each time is a small collective, so
            all workers go as fast as the slowest in between, in async, too.
    """

    def __init__(self, every: int = 1):
        if every < 1:
            raise ValueError(f"every={every}: it is at least 1")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("psring.Preemption() is made in the main thread: Python takes signals there")
        self._every, self._calls, self._here, self._pid = every, 0, False, os.getpid()
        self._told: Optional[_job.Job] = None  # whose servers know that SIGTERM is heeded
        # None: a handler that is not Python's, which cannot be set again.
        self._previous = signal.signal(signal.SIGTERM, self._on_signal) or signal.SIG_DFL
        if _job.is_initialized():
            self._tell_servers()

    def _on_signal(self, number: int, frame: Any) -> None:
        if os.getpid() == self._pid:
            self._here = True
        else:  # a child of fork, which nobody asks whether to stop
            signal.signal(number, self._previous)
            os.kill(os.getpid(), number)

    def _tell_servers(self) -> None:
        job = _job.current()
        if self._told is not job:
            _lib.check(_lib.library().psring_heed_stop(1))
            self._told = job

    def requested(self) -> bool:
        """Whether any process has had SIGTERM; the same on all workers, which all make the same calls."""
        self._tell_servers()
        self._calls += 1
        if self._calls % self._every != 0:
            return False
        asked = self._here or _lib.library().psring_stop_asked() == 1
        return bool(collectives.sum(1.0 if asked else 0.0) > 0)

    def close(self) -> None:
        """SIGTERM does again what it did before; where that was not a handler of Python's, it ends the process."""
        signal.signal(signal.SIGTERM, self._previous)
        if _job.is_initialized() and self._told is _job.current():
            _lib.check(_lib.library().psring_heed_stop(0))
