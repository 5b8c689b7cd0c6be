"""Several hosts on one machine: each has a network, a name, processes and mounts of its own."""

import os
import shutil
import subprocess
import time


def why_not():
    """What is missing for them; "" where nothing is."""
    if os.geteuid() != 0:
        return "hosts made of namespaces need root"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("unshare", "util-linux")):
        if not shutil.which(program):
            return f"no {program} (Debian: apt-get install {package})"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "the system allows no namespaces"


class Host:
    def __init__(self, name, address):
        self.name, self.address = name, address
        # It keeps the host alive, all processes of it end with it, and it ends with this process.
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", f"hostname {name} && exec sleep infinity"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        children = f"/proc/{self._holder.pid}/task/{self._holder.pid}/children"
        self.pid = int(wait_for(lambda: open(children).read().split(), f"the host {name}")[0])
        wait_for(lambda: self.run("hostname", check=False).stdout.strip() == name, f"the name {name}")

    def prefix(self):
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m", "-p", "--"]

    def run(self, *argv, check=True, timeout=60, **more):
        ran = subprocess.run([*self.prefix(), *argv], capture_output=True, text=True, timeout=timeout, **more)
        assert not check or ran.returncode == 0, f"{argv}: {ran.stdout}{ran.stderr}"
        return ran

    def start(self, *argv, **more):
        return subprocess.Popen([*self.prefix(), *argv], **more)

    def die(self):
        """As by a power cut: nobody hears a last word."""
        subprocess.run(["nsenter", "-t", str(self.pid), "-n", "ip", "link", "set", "eth0", "down"], check=False)
        self.close()

    def close(self):
        self._holder.kill()
        self._holder.wait()


class Hosts:
    """The first one is the switch of the others, too. `aliases`: second names, by name."""

    def __init__(self, folder, *names, aliases=None):
        self._all = {}
        try:
            table = os.path.join(folder, "hosts")
            with open(table, "w") as file:
                print("127.0.0.1 localhost", file=file)
                for number, name in enumerate(names):
                    print(f"10.213.0.{number + 1} {name} {(aliases or {}).get(name, '')}", file=file)
            for number, name in enumerate(names):
                self._all[name] = Host(name, f"10.213.0.{number + 1}")
            head = self._all[names[0]]
            in_head = ["nsenter", "-t", str(head.pid), "-n"]
            _run(*in_head, "ip", "link", "add", "eth0", "type", "bridge")
            for host in self._all.values():
                if host is not head:
                    port = f"port{host.pid}"
                    _run(*in_head, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0",
                         "netns", str(host.pid))  # fmt: skip
                    _run(*in_head, "ip", "link", "set", port, "master", "eth0", "up")
                in_host = ["nsenter", "-t", str(host.pid), "-n"]
                _run(*in_host, "ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _run(*in_host, "ip", "link", "set", device, "up")
                host.run("mount", "--bind", table, "/etc/hosts")
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name):
        return self._all[name]

    def close(self):
        for host in self._all.values():
            host.close()


def _run(*argv):
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, f"{argv}: {ran.stderr}"


def wait_for(condition, what, seconds=60):
    """What `condition` returns as soon as that is true."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)
