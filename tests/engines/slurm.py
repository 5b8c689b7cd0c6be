"""A real Slurm of three hosts: slurmctld on `head`, a slurmd on `n1` and on `n2`."""

import os
import shutil
import subprocess

from hosts import Hosts, wait_for, why_not as why_no_hosts

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "munged")

CONFIGURATION = """
ClusterName=psring
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=300
KillWait=5
ReturnToService=2
NodeName=n1,n2 CPUs=3 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def why_not():
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        return f"no {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    return why_no_hosts()


class Slurm:
    def __init__(self, folder, environment):
        self.folder = folder
        with open(os.path.join(folder, "slurm.conf"), "w") as file:
            file.write(CONFIGURATION.format(folder=folder))
        os.mkdir(os.path.join(folder, "state"))
        self.environment = {**environment, "SLURM_CONF": os.path.join(folder, "slurm.conf")}
        self.hosts = Hosts(folder, "head", "n1", "n2")
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self):
        key = os.path.join(self.folder, "munge.key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o400), "wb") as file:
            file.write(os.urandom(128))
        head = self.hosts["head"]
        at = os.path.join(self.folder, "munge")
        self._daemon(head, "munged", "--foreground", "--force", f"--socket={at}.socket", f"--key-file={key}",
                     f"--pid-file={at}.pid", f"--log-file={at}.log", f"--seed-file={at}.seed")  # fmt: skip
        wait_for(lambda: os.path.exists(at + ".socket"), "munged")
        self._daemon(head, "slurmctld", "-D")
        for name in ("n1", "n2"):
            os.mkdir(os.path.join(self.folder, "spool-" + name))
            self._daemon(self.hosts[name], "slurmd", "-D", "-N", name)
        wait_for(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).stdout.strip() == "2",
                 "two idle nodes")  # fmt: skip

    def _daemon(self, host, *argv):
        with open(os.path.join(self.folder, f"{argv[0]}.out"), "a") as out:
            host.start(*argv, env=self.environment, stdout=out, stderr=out)

    def run(self, *argv, env=None, **more):
        """A command on the head node."""
        return self.hosts["head"].run(*argv, env={**self.environment, **(env or {})}, **more)

    def start(self, *argv, env=None):
        return self.hosts["head"].start(
            *argv, env={**self.environment, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def submit(self, script, *argv, env=None):
        """The number of a job that sbatch has taken."""
        return self.run("sbatch", "--parsable", script, *argv, env=env).stdout.strip()

    def state(self, job):
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False).stdout.strip()

    def close(self):
        self.hosts.close()
