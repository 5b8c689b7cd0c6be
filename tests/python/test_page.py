"""The live page of a real job: in a browser, by HTTP, and in Prometheus."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import chromium
from ranks import PROGRAM, PYTHONPATH, ROOT, WORKER, free_port

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSRING_LIBRARY") or not os.path.exists(PROGRAM),
    reason="PSRING_LIBRARY is not set, or the programs are not built: ./psring build",
)

# A worker that trains until the file "stop" is there. The last one is slow.
SCRIPT = """
import os, sys, time, torch, psring.torch as psring
psring.init()
torch.manual_seed(0)
model = torch.nn.Linear(20, 2000)
optimizer = psring.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters())
psring.broadcast_parameters(model.state_dict(), root_rank=0)
folder, step = sys.argv[1], 0
while True:
    inputs = torch.randn(64, 20)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    time.sleep(0.1 if psring.rank() == psring.size() - 1 else 0.01)
    optimizer.step()
    step += 1
    if step % 10 == 0:
        psring.log(loss=loss)
    if step == 10:
        print("step 10", flush=True)
    if step % 50 == 0 and psring.rank() == 0:
        psring.log(accuracy=1 - 1 / (1 + step / 50), test_loss=loss)
    stop = torch.tensor([float(os.path.exists(os.path.join(folder, "stop")))])
    hang = os.path.join(folder, "hang")
    if psring.rank() == 1 and step % 5 == 1 and os.path.exists(hang):
        os.rename(hang, hang + "s")
        while os.path.exists(hang + "s"):
            time.sleep(0.1)
    if step % 5 == 0 and psring.allreduce(stop) > 0:
        break
"""


class Job:
    """Three workers under `psring run --page`."""

    def __init__(self, folder, *flags, page=True, command=None):
        self.folder = folder
        script = folder / "script.py"
        script.write_text(SCRIPT)
        page_flag = ["--page"] if page else []
        command = command or [PROGRAM, "run", "-n", "3", *page_flag, *flags, "--", sys.executable, str(script), str(folder)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PSRING_")}
        env.update(PYTHONPATH=PYTHONPATH, PSRING_LIBRARY=os.environ["PSRING_LIBRARY"])
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.printed = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        if not page:
            return
        self.url = self.await_printed(r"the job's page: (\S+)")
        self.base, self.token = re.match(r"(http://.*)/\?token=(\w+)$", self.url).groups()

    def read(self):
        for line in self.process.stdout:
            self.printed += line

    def await_printed(self, pattern, seconds=60):
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.printed)):
            assert time.monotonic() < deadline and self.process.poll() is None, self.printed
            time.sleep(0.1)
        return found.group(1)

    def get(self, path, **headers):
        request = urllib.request.Request(self.base + path, headers={"Authorization": "Bearer " + self.token, **headers})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()

    def state(self):
        return json.loads(self.get("/state"))

    def await_state(self, holds, seconds=180):
        deadline = time.monotonic() + seconds
        while not holds(state := self.state()):
            assert time.monotonic() < deadline, state
            time.sleep(0.3)
        return state

    def end(self):
        (self.folder / "stop").touch()
        self.process.wait(timeout=60)
        self.reader.join()
        assert self.process.returncode == 0, self.printed

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        self.reader.join()

    def events(self, then):
        """Of the page, to its end; then() is called when they begin."""
        request = urllib.request.Request(self.base + "/events", headers={"Authorization": "Bearer " + self.token})
        with urllib.request.urlopen(request, timeout=60) as answer:
            then()
            lines = answer.read().decode().splitlines()
        told = [json.loads(line[len("data: "):]) for line in lines if line.startswith("data: {")]
        return [state for state in told if state]


@pytest.fixture(scope="module")
def jobs():
    started = []
    yield started
    for job in started:
        job.kill()


@pytest.fixture
def job(jobs, tmp_path_factory):
    """The one of the tests before, or another where they have ended it."""
    if not jobs or jobs[-1].process.poll() is not None:
        jobs.append(Job(tmp_path_factory.mktemp("job"), "--mode=ps"))
    return jobs[-1]


def test_the_state_tells_what_the_job_does(job):
    trained = job.await_state(lambda s: s["now"] and s["now"]["step"] > 60 and len(s["curves"]["points"]) > 5)
    assert trained["state"] == "running" and trained["mode"] == "ps" and trained["sync"] == "bsp"
    assert [(p["role"], p["rank"]) for p in trained["processes"]] == [
        ("ps", 0), ("worker", 0), ("worker", 1), ("worker", 2)]  # fmt: skip
    assert all(p["pid"] > 0 and p["resident_bytes"] > 1 << 20 for p in trained["processes"])
    # The slow one computes, and the others wait for it: seen at one instant,
    # since a busy machine makes each of them slow now and then.
    job.await_state(
        lambda s: s["straggler"]["who"].startswith("worker 2 ")
        and s["processes"][3]["compute_s"] > 2 * s["processes"][1]["compute_s"]
        and s["processes"][1]["exposed_s"] > 0.03
        and s["now"]["waiting_s"] > 0.02
        and s["now"]["loss"] is not None
    )
    evaluated = job.await_state(lambda s: s["curves"]["evaluations"])
    assert 0.4 < evaluated["curves"]["evaluations"][0]["accuracy"] < 1
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(job.base + "/state", timeout=20)
    assert refused.value.code == 401


def test_the_dashboard_asks_for_metrics_that_there_are(job):
    job.await_state(lambda s: s["curves"]["evaluations"])
    metrics = set(re.findall(r"^(psring_\w+)", job.get("/metrics"), re.M))
    with open(os.path.join(ROOT, "examples", "grafana.json")) as file:
        asked = set(re.findall(r"psring_\w+", file.read()))
    assert asked and asked <= metrics, asked - metrics


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool (Debian: apt-get install prometheus)")
def test_promtool_finds_nothing_wrong_with_the_metrics(job):
    job.await_state(lambda s: s["curves"]["evaluations"])
    metrics = job.get("/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, ""), metrics


def test_a_long_wait_is_told_with_the_name_of_who_holds_it_up(job):
    job.await_state(lambda s: s["now"] and s["now"]["step"] > 5)
    earlier = job.printed.count("has waited for")
    (job.folder / "hang").touch()
    try:
        waits = job.await_state(lambda s: any(p["waits_for"] for p in s["processes"]))
        [hung] = [p for p in waits["processes"] if p["role"] == "worker" and p["rank"] == 1]
        assert hung["step"] % 5 == 1, hung  # with the one that it has just made
        for process in waits["processes"]:
            assert not process["waits_for"] or "worker 1 (" in process["waits_for"], process
        # Worker 0 may have begun to wait later than the one that is told of.
        deadline = time.monotonic() + 30
        while True:
            gauge = re.search(r'psring_waiting_seconds{role="worker",rank="0"} (\S+)', job.get("/metrics"))
            if float(gauge.group(1)) >= 5:
                break
            assert time.monotonic() < deadline, gauge.group()
            time.sleep(0.2)
        job.await_printed(r"worker 0.* has waited for (\d+) s at .* for worker 1 \(host .*, pid \d+\), which is running")
        assert [m for m in job.state()["marks"] if m["fault"] and "worker 1 (" in m["text"]]
    finally:
        (job.folder / "hangs").unlink()
    job.await_state(lambda s: not any(p["waits_for"] for p in s["processes"]))
    assert job.printed.count("has waited for") - earlier <= 3, job.printed
    job.end()  # its straggler is another now


def top(*args):
    return subprocess.run([PROGRAM, "top", "--once", *args], capture_output=True, text=True, timeout=60)


def test_top_asks_the_page_of_a_job_whose_key_nobody_has(job):
    job.await_state(lambda s: s["now"] and s["now"]["step"] > 20 and s["straggler"]["who"].startswith("worker 2 "))
    shown = top(job.url)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("ps-bsp, 3 workers, 1 server: step ")
    rows = [line for line in shown.stdout.splitlines() if re.match(r"(ps|worker) \d ", line)]
    assert len(rows) == 4 and "the straggler: worker 2 (" in shown.stdout, shown.stdout
    refused = top(job.base + "/?token=" + "0" * 32)
    assert refused.returncode == 1 and "403" in refused.stderr
    job.end()
    assert top(job.url).returncode == 1


def axis_of(tab, title):
    """The lowest and the highest value of the y axis of the chart."""
    return tab.run(f"""(() => {{
      const titled = (chart) => chart.canvas.closest('figure').querySelector('h4').textContent === {json.dumps(title)};
      const {{min, max}} = Object.values(Chart.instances).find(titled).scales.y;
      return [min, max];
    }})()""")


@pytest.mark.skipif(not chromium.PROGRAM, reason="no chromium (Debian: apt-get install chromium)")
def test_a_browser_draws_the_job_and_saves_it(job, tmp_path):
    tab = chromium.Tab(job.url)
    try:
        drawn = "[...document.querySelectorAll('#charts figure')].filter((f) => !f.hidden)"
        titles = ["Training loss", "Test accuracy", "Where a step's time goes", "Speed in steps", "Memory"]
        tab.wait_for(f"{json.dumps(titles)}.every((t) => {drawn}.some((f) => f.querySelector('h4').textContent === t))")
        tab.wait_for("document.querySelector('#straggler').textContent.includes('worker 2')")
        # There is a line in each, not only axes.
        coloured = """(canvas) => {
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let n = 0;
          for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) ++n;
          return n;
        }"""
        tab.wait_for(f"{drawn}.map((f) => f.querySelector('canvas')).map({coloured}).every((n) => n > 20)")
        rows = tab.run("[...document.querySelectorAll('#processes tbody tr')].map((r) => r.innerText)")
        assert len(rows) == 4 and "ps 0" in rows[0] and "worker 2" in rows[3], rows
        for name, width, dark in (("desktop", 1200, False), ("phone", 390, False), ("dark", 1200, True)):
            tab.look(width, 900, dark)
            time.sleep(1.5)
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} scrolls sideways"
            if os.environ.get("PSRING_PICTURES"):
                tab.picture(os.path.join(os.environ["PSRING_PICTURES"], name + ".png"))
        tab.look(1200, 900)
        saved = tab.run("psringSave()")
        job.end()
        tab.wait_for("document.querySelector('#status').textContent.startsWith('has ended')")
        assert tab.errors == []
    finally:
        tab.close()
    assert job.token not in saved
    file = tmp_path / "saved.html"
    file.write_text(saved)
    tab = chromium.Tab(file.as_uri())
    try:
        tab.wait_for(f"{drawn}.length >= 5")
        assert tab.run("document.querySelectorAll('#processes tbody tr').length") == 4
        assert tab.run("document.querySelector('#status').textContent").startswith("as it was saved")
        assert axis_of(tab, "Where a step's time goes")[0] == 0
        low, high = axis_of(tab, "Test accuracy")
        assert 0 <= low < high <= 1.1
        assert tab.errors == []
    finally:
        tab.close()
    # As a job's page that has evaluated once.
    state = re.search(r'id="saved">(.*?)</script>', saved, re.S).group(1)
    once = json.loads(state)
    once["curves"]["evaluations"] = [{"seconds": 1, "step": 5, "accuracy": 0.5, "test_loss": None}]
    file.write_text(saved.replace(state, json.dumps(once).replace("<", "\\u003c")))
    tab = chromium.Tab(file.as_uri())
    try:
        tab.wait_for(f"{drawn}.length >= 5")
        assert axis_of(tab, "Test accuracy") == [0, 1]
        assert tab.errors == []
    finally:
        tab.close()


DIVERGES = """
import os, sys, time, psring
psring.init()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
for step in range(30):
    psring.log(loss=1.0 if step < 10 else float("nan"), step=step)
    time.sleep(0.1)
psring.log(test_loss=float("inf"), step=30)
psring.log(accuracy=0.75, step=31)
"""


def test_the_end_shows_a_loss_that_is_not_finite_and_the_last_evaluation(tmp_path):
    script = tmp_path / "diverges.py"
    script.write_text(DIVERGES)
    begin = tmp_path / "begin"
    job = Job(tmp_path, command=[PROGRAM, "run", "-n", "2", "--page", "--", sys.executable, str(script), str(begin)])
    try:
        *_, last = job.events(then=begin.touch)
        assert last["state"] == "over" and last["now"]["not_finite"] == ["loss"] and last["now"]["loss"] is None
        # Of either worker first.
        assert sorted(m["text"] for m in last["marks"] if m["fault"] and "loss of worker" in m["text"]) == [
            f"the loss of worker {w['rank']} (host {w['host']}, pid {w['pid']}) is not finite" for w in last["processes"]
            if w["role"] == "worker"]  # fmt: skip
        assert last["processes"][0]["last_word"] == "evaluation 2: test accuracy 0.7500"
        assert last["processes"][0]["loss"] is None
    finally:
        job.kill()


def test_top_shows_its_token_to_no_other_user():
    with socket.create_server(("127.0.0.1", 0)) as page:
        page.settimeout(60)
        base, token = f"http://127.0.0.1:{page.getsockname()[1]}", "0123456789abcdef" * 2
        shows = subprocess.Popen([PROGRAM, "top", f"{base}/?token={token}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asked, _ = page.accept()
        with asked, open(f"/proc/{shows.pid}/cmdline") as file:  # while it waits for the answer
            words = file.read()
            assert token.encode() in asked.recv(1000)
    assert base in words and token not in words, words
    assert shows.wait(timeout=60) == 1


@pytest.mark.parametrize("secret", ["key", "none"])
def test_top_asks_the_coordinator_of_a_job_without_a_page(tmp_path, secret):
    address = f"127.0.0.1:{free_port()}"
    key, other = tmp_path / "key", tmp_path / "other"
    for file in (key, other):
        subprocess.run([PROGRAM, "keygen", f"--key-file={file}"], check=True, capture_output=True)
    security = [f"--key-file={key}"] if secret == "key" else ["--insecure"]
    job = Job(tmp_path, f"--coordinator={address}", *security, page=False)
    try:
        job.await_printed(r"(step) 10")
        shown = top(address, *security)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("ring, 3 workers: step "), shown.stdout
        assert len(re.findall(r"^worker \d ", shown.stdout, re.M)) >= 3
        wrong = top(address, "--insecure" if secret == "key" else f"--key-file={other}")
        assert wrong.returncode == 1 and wrong.stderr.count("\n") == 1, wrong.stderr
        job.end()
    finally:
        job.kill()


@pytest.mark.skipif(not os.path.exists(WORKER), reason="no worker is built")
@pytest.mark.parametrize("mode", ["ring", "ps"])
def test_the_built_in_trainer_tells_its_figures(tmp_path, mode):
    job = Job(tmp_path, command=[
        PROGRAM, "launch", "--page", f"--mode={mode}", "--workers=2", "--",
        "--data=digits", "--epochs=1000", "--slow=worker:1:x3", "--device=cpu"])  # fmt: skip
    try:
        state = job.await_state(
            lambda s: len(s["curves"]["evaluations"]) > 1
            and s["curves"]["evaluations"][-1]["accuracy"] > 0.2
            and s["straggler"]["who"].startswith("worker 1 ")
            and s["now"]["samples_per_second"]  # not before two looks
        )
        assert state["now"]["samples_per_second"] > 0 and state["now"]["slowed_s"] > 0
        assert state["total_steps"] > 1000
        workers = [p for p in state["processes"] if p["role"] == "worker"]
        assert workers[0]["last_word"].startswith("epoch ")
        assert workers[0]["exposed_s"] > 0
    finally:
        job.kill()


@pytest.mark.skipif(not os.path.exists(WORKER), reason="no worker is built")
def test_a_comparison_shows_all_its_ways(tmp_path):
    job = Job(tmp_path, command=[
        PROGRAM, "compare", "--page", "--modes=ring,ps-bsp", "--workers=2", f"--out={tmp_path / 'study'}",
        "--data=digits:train=2048,test=128", "--epochs=40"])  # fmt: skip
    tab = chromium.Tab(job.url) if chromium.PROGRAM else None
    try:
        # A state before its job has formed has neither.
        second = job.await_state(
            lambda s: s.get("series", {}).get("title", "").startswith("run 2 of 2: ps-bsp")
            and s["now"] and s["now"]["step"] > 10)  # fmt: skip
        [before] = second["series"]["earlier"]
        assert before["name"].startswith("ring, 2 workers")
        assert len(before["accuracies"]) == len(before["test_losses"]) == 40 and before["losses"]
        if tab:
            tab.wait_for("document.querySelector('#title').textContent.startsWith('run 2 of 2: ps-bsp')")
            lines = "Object.values(Chart.instances).map((c) => c.data.datasets.map((d) => d.label))"
            tab.wait_for(f"{lines}.filter((l) => l[0] === 'now' && l[1].startsWith('ring, 2 workers')).length === 3")
            if os.environ.get("PSRING_PICTURES"):
                tab.picture(os.path.join(os.environ["PSRING_PICTURES"], "compare.png"))
            assert tab.errors == []
        assert job.process.wait(timeout=180) == 0, job.printed
    finally:
        if tab:
            tab.close()
        job.kill()


PROMETHEUS = """
scrape_configs:
  - job_name: psring
    scrape_interval: 1s
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus (Debian: apt-get install prometheus)")
def test_prometheus_scrapes_a_running_job(tmp_path):
    token = tmp_path / "token"
    job = Job(tmp_path, f"--page-token-file={token}")
    server = None
    try:
        (tmp_path / "prometheus.yml").write_text(PROMETHEUS.format(token=token, target=job.base[len("http://"):]))
        server = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
             "--web.listen-address=127.0.0.1:0"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)  # fmt: skip
        for line in server.stderr:
            if found := re.search(r'msg="Listening on" address=(127\.0\.0\.1:\d+)', line):
                break

        def ask(query):
            url = f"http://{found.group(1)}/api/v1/query?query={urllib.parse.quote(query)}"
            try:
                with urllib.request.urlopen(url, timeout=20) as answer:
                    return json.load(answer)["data"]["result"]
            except urllib.error.HTTPError:  # it is not ready yet
                return []

        deadline = time.monotonic() + 60
        while len(steps := ask("rate(psring_steps_total[15s]) > 1")) < 3:
            assert time.monotonic() < deadline, (ask("up"), steps)
            time.sleep(0.5)
        assert {r["metric"]["rank"] for r in steps} == {"0", "1", "2"}
        assert ask("sum(psring_up)")[0]["value"][1] == "3"
        job.end()
    finally:
        job.kill()
        if server:
            server.terminate()
            server.communicate(timeout=60)
