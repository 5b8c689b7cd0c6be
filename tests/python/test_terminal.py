"""What a user sees of a running job on a terminal, in a file, and when asking by SIGUSR1."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from ranks import PROGRAM, PYTHONPATH

HAS_WORKER = os.path.exists(os.path.join(os.path.dirname(PROGRAM), "..", "worker", "worker"))

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM),
    reason="PSRING_LIBRARY is not set, or the programs are not built: ./psring build",
)

SCRIPT = """
import os, sys, time, torch, psring.torch as psring
psring.init()
model = torch.nn.Linear(20, 20)
optimizer = psring.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model=model)
step = 0
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 20)).square().mean().backward()
    time.sleep(0.02)
    optimizer.step()
    step += 1
    if step % 25 == 0:
        psring.log(loss=0.25)
        print("a line of", step, flush=True)
    stop = torch.tensor([float(os.path.exists(sys.argv[1]))])
    if step % 5 == 0 and psring.allreduce(stop) > 0:
        break
"""


class Shown:
    """A command, and what it has written: to a terminal of 60 columns, or to a pipe."""

    def __init__(self, *command, terminal=True, **variables):
        env = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
        env.update(PYTHONPATH=PYTHONPATH, PSRING_LIBRARY=os.environ["PSRING_LIBRARY"], TERM="xterm", **variables)
        if terminal:
            self.fd, follower = pty.openpty()
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        else:
            self.fd, follower = os.pipe()
        self.process = subprocess.Popen(command, stdout=follower, stderr=follower, env=env, start_new_session=True)
        os.close(follower)
        self.text = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        try:
            while data := os.read(self.fd, 1 << 16):
                self.text += data.decode(errors="replace")
        except OSError:  # a terminal whose last writer has gone
            pass

    def wait_for(self, pattern, seconds=120):
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < deadline and self.process.poll() is None, self.text
            time.sleep(0.1)
        return found

    def end(self, number=None):
        if number and self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        self.reader.join()
        os.close(self.fd)
        return code

    def screen(self):
        """The lines that are left, of a terminal that knows what a block needs."""
        lines = [""]
        for part in re.split(r"(\x1b\[\d+A\r\x1b\[J|\r?\n)", re.sub(r"\x1b\[\d+m", "", self.text)):
            if erased := re.match(r"\x1b\[(\d+)A", part):
                del lines[len(lines) - 1 - int(erased.group(1)) :]
                lines.append("")
            elif part in ("\n", "\r\n"):
                lines.append("")
            else:
                lines[-1] += part
        return lines


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    stop = tmp_path / "stop"
    yield [sys.executable, str(path), str(stop)], stop
    stop.touch()


def test_a_terminal_shows_how_far_a_script_is_below_its_lines(script):
    command, stop = script
    shown = Shown(PROGRAM, "run", "-n", "2", "--", *command)
    shown.wait_for(r"step [\d,]+  loss 0\.2500  [\d.]+ steps/s\r?\nring, 2 workers")
    shown.wait_for(r"a line of 100")
    stop.touch()
    assert shown.end() == 0, shown.text
    screen = shown.screen()
    assert all(re.match(r"\[worker [01]\] ", line) for line in screen if line), screen
    assert sum(line.endswith("a line of 100") for line in screen) == 2, screen
    assert "\x1b[32m[worker" in shown.text
    drawn = re.findall(r"\x1b\[J([^\x1b]+)", shown.text)
    assert max(len(line) for block in drawn for line in block.splitlines() if line.startswith("step")) < 60


def test_a_file_has_lines_alone_and_after_sigusr1_the_stacks_of_scripts(script):
    command, stop = script
    shown = Shown(PROGRAM, "run", "-n", "2", "--", *command, terminal=False)
    shown.wait_for(r"a line of 25")
    shown.process.send_signal(signal.SIGUSR1)
    for rank in (0, 1):
        shown.wait_for(rf"\[worker {rank}\] Current thread 0x\w+ \(most recent call first\):")
        shown.wait_for(rf'\[worker {rank}\]   File ".*script.py", line \d+ in <module>')
    shown.wait_for(r"a line of 50")
    stop.touch()
    assert shown.end() == 0, shown.text
    assert "\x1b" not in shown.text and "\r" not in shown.text


def test_sigusr1_leaves_programs_that_would_die_of_it_alone(tmp_path):
    waits = 'echo up; for i in $(seq 600); do [ -e "$0" ] || sleep 0.1; done'
    shown = Shown(PROGRAM, "run", "-n", "1", "--", "sh", "-c", waits, str(tmp_path / "end"), terminal=False)
    shown.wait_for(r"\[worker 0\] up")
    shown.process.send_signal(signal.SIGUSR1)
    shown.wait_for(r"\[job\] worker 0 has ended, or does nothing with SIGUSR1")
    (tmp_path / "end").touch()
    assert shown.end() == 0, shown.text


@pytest.mark.skipif(not HAS_WORKER, reason="no worker is built")
def test_the_trainers_bar_and_stacks_without_colours():
    shown = Shown(
        PROGRAM, "launch", "--mode=ps", "--workers=2", "--", "--data=digits", "--epochs=1000", "--slow=worker:1:x3",
        "--device=cpu", NO_COLOR="1")  # fmt: skip
    shown.wait_for(r"\[[#.]+\] step [\d,]+ of 6\d,\d+  loss \d\.\d+")
    shown.wait_for(r"ps-bsp, 2 workers, 1 server; the slowest: worker 1 \(")
    shown.process.send_signal(signal.SIGUSR1)
    shown.wait_for(r"\[worker 0\].* psring worker: SIGUSR1: what the threads of pid \d+ do:")
    shown.wait_for(r"psring::Trainer::Train\(\)")
    shown.wait_for(r"psring::ShardServer::Run")
    assert shown.end(signal.SIGINT) == 130
    assert not re.search(r"\x1b\[\d*m", shown.text), shown.text
