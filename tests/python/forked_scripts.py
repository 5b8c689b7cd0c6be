"""Runs scripts in forks of a process that has imported torch already: that takes longer than most of them.

The first Script starts that process; each is what subprocess.Popen would be. As the main program this file is the process
that forks: a request says what the fork runs, and brings the files for its output, its errors and its exit code.
"""

import concurrent.futures
import contextlib
import gc
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import time


class Script:
    """A process of a script: args[0], which finds those arguments and that environment. What has been imported for it has
    seen the environment of the first one."""

    _requests = None  # to the process that forks, which the first script starts

    def __init__(self, args, env, folder):
        if Script._requests is None:
            Script._requests = _start_forking(env)
        pipes = [os.pipe() for _ in range(3)]
        request = pickle.dumps((args, env, folder))
        socket.send_fds(Script._requests, [request], [writes for _, writes in pipes])
        self.args, self.pid, self.returncode = args, int(Script._requests.recv(100)), None
        for _, writes in pipes:
            os.close(writes)
        self.stdout, self.stderr, self._ended = (open(reads) for reads, _ in pipes)
        self._said = None

    def poll(self):
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.returncode = int(self._ended.read())
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None and not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def communicate(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        if self._said is None:
            readers = concurrent.futures.ThreadPoolExecutor(2)
            self._said = [readers.submit(file.read) for file in (self.stdout, self.stderr)]
            readers.shutdown(wait=False)
        if concurrent.futures.wait(self._said, timeout).not_done:
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(None if end is None else max(0, end - time.monotonic()))
        return tuple(said.result() for said in self._said)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _start_forking(env):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {name: value for name, value in env.items() if name != "PSRING_TEST"}  # it is not of the first test
    subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), str(theirs.fileno())], env=env, pass_fds=[theirs.fileno()],
        stdout=subprocess.DEVNULL,  # as a pipe, it is written to in blocks
        # Where the tests run in the background, a shell has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    theirs.close()
    return ours


def next_script(requests):
    """Forks for each request, and returns in the fork, with what it runs. Ends with who makes the requests."""
    ends, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    codes = {}  # where the exit code of a child goes
    while True:
        ready = select.select([requests, ends], [], [])[0]
        if ends in ready:
            os.read(ends, 1000)
            for pid in list(codes):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with contextlib.suppress(BrokenPipeError), open(codes.pop(pid), "w") as code:
                        code.write(str(os.waitstatus_to_exitcode(status)))
        if requests in ready:
            request, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
            if not request:
                sys.exit()
            out, err, code = files
            pid = os.fork()
            if pid == 0:
                break
            codes[pid] = code
            os.close(out), os.close(err)
            requests.send(str(pid).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.dup2(out, 1), os.dup2(err, 2)
    for other in (out, err, code, ends, wakes, *codes.values()):
        os.close(other)
    requests.close()
    return pickle.loads(request)


if __name__ == "__main__":
    import numpy
    import ranks  # noqa: F401
    import torch._dynamo

    import psring.torch  # noqa: F401

    with contextlib.suppress(ImportError):  # torch 1.13 has none
        torch._dynamo.config  # not when the first script uses it
    gc.freeze()  # nobody has to look for cycles in what has been imported
    sys.argv, environment, folder = next_script(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    torch.seed(), numpy.random.seed()  # to other numbers than the ranks beside it have
    runpy.run_path(sys.argv[0], run_name="__main__")
