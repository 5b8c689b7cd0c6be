"""The page of a job that an engine has started, asked as Prometheus asks it."""

import os
import random
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from hosts import wait_for

GET = """
import sys, urllib.request
url, token_file = sys.argv[1:]
headers = {"Authorization": "Bearer " + open(token_file).read().strip()}
print(urllib.request.urlopen(urllib.request.Request(url + "/metrics", headers=headers), timeout=10).read().decode())
"""


def variables(folder, address="0.0.0.0:9470"):
    """What a user gives all ranks, as the engine chooses the host of rank 0."""
    return {"PSRING_PAGE": address, "PSRING_PAGE_TOKEN_FILE": os.path.join(folder, "page-token")}


def free_address():
    """Its port is below those that the system gives to connections: none takes it before the page does."""
    while True:
        address = ("127.0.0.1", random.randrange(20000, 32000))
        with socket.socket() as free:
            try:
                free.bind(address)
            except OSError:
                continue
        return "%s:%d" % address


def run_here(*argv, check=True):
    return subprocess.run(argv, check=check, capture_output=True, text=True, timeout=60)


def address_in(file):
    """The page's address in what the job has printed, and its token."""
    pattern = r"psring: the job's page: (http://\S+)/\?token=(\S+)"
    wait_for(lambda: file.exists() and re.search(pattern, file.read_text()), "the page's address")
    assert len(re.findall(pattern, file.read_text())) == 1, "more than one process has a page"
    return re.search(pattern, file.read_text()).groups()


def assert_shows_workers_here(start, folder, address, size):
    """`start` runs a job of this host that trains up to step 5 and waits there for folder/go. Returns what it does."""
    with ThreadPoolExecutor() as pool:
        running = pool.submit(start)
        try:
            hosts = hosts_of_workers(run_here, f"http://{address}", folder, size)
        finally:
            (folder / "go").touch()
        results = running.result(timeout=60)
    assert hosts == [socket.gethostname()] * size
    return results


def hosts_of_workers(run, url, folder, size):
    """The hosts by rank that /metrics names, when it shows `size` workers that are up; run() runs a command
    where somebody looks at the job."""
    argv = [sys.executable, "-c", GET, url, os.path.join(folder, "page-token")]
    found = {}

    def are_shown():
        metrics = run(*argv, check=False).stdout
        up = re.findall(r'^psring_up\{role="worker",rank="(\d+)"\} 1$', metrics, re.M)
        found.update(re.findall(r'^psring_process_info\{role="worker",rank="(\d+)",host="([^"]+)"', metrics, re.M))
        return sorted(map(int, up)) == list(range(size))

    wait_for(are_shown, f"{size} workers in {url}/metrics")
    return [found[str(rank)] for rank in range(size)]
