"""The manifests of examples/kubernetes: held against Kubernetes' schemas, and their commands run.

There is no cluster here. Each pod's commands run as root on a host made of namespaces, with the
name, the variables and the table of hosts that Kubernetes, JobSet or Kubeflow Trainer would give it.
"""

import os
import subprocess
import sys

import pytest

import hosts
from conftest import ROOT, TRAIN, assert_same_training, result_in

yaml = pytest.importorskip("yaml", reason="no yaml: ./psring test --engines installs it")

FOLDER = os.path.join(ROOT, "examples", "kubernetes")
MANIFESTS = sorted(name for name in os.listdir(FOLDER) if name.endswith(".yaml"))

# The fields of the two kinds that no Kubernetes has by itself, as their definitions list them
# (jobset.x-k8s.io_jobsets.yaml, v1alpha2; trainer.kubeflow.org_trainjobs.yaml, v1alpha1).
JOB_SET = {
    "spec": {"successPolicy", "failurePolicy", "replicatedJobs", "network", "startupPolicy", "suspend",
             "coordinator", "managedBy", "ttlSecondsAfterFinished"},
    "replicatedJob": {"name", "template", "replicas", "groupName", "dependsOn"},
    "failurePolicy": {"maxRestarts", "restartStrategy", "rules"},
    "successPolicy": {"operator", "targetReplicatedJobs"},
}  # fmt: skip
TRAIN_JOB = {
    "spec": {"runtimeRef", "trainer", "initializer", "suspend", "managedBy", "labels", "annotations"},
    "runtimeRef": {"name", "apiGroup", "kind"},
    "trainer": {"image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"},
}  # fmt: skip


def documents(name):
    with open(os.path.join(FOLDER, name)) as file:
        return list(yaml.safe_load_all(file))


def check_fields(given, allowed, where):
    assert set(given) <= allowed, f"{where}: no such field: {sorted(set(given) - allowed)}"


def jobs_of(document):
    """(name, specification) of the jobs that a JobSet makes."""
    for job in document["spec"]["replicatedJobs"]:
        yield f"{document['metadata']['name']}-{job['name']}-0", job["template"]["spec"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_valid(name):
    validate = pytest.importorskip("kubernetes_validate", reason="./psring test --engines installs it").validate
    for document in documents(name):
        if document["kind"] == "JobSet":
            for part in ("failurePolicy", "successPolicy"):
                check_fields(document["spec"][part], JOB_SET[part], part)
            check_fields(document["spec"], JOB_SET["spec"], "JobSet")
            for job in document["spec"]["replicatedJobs"]:
                check_fields(job, JOB_SET["replicatedJob"], job["name"])
            for job, spec in jobs_of(document):
                validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}, "spec": spec}, "1.31", strict=True)
        elif document["kind"] == "TrainJob":
            check_fields(document["spec"], TRAIN_JOB["spec"], "TrainJob")
            check_fields(document["spec"]["runtimeRef"], TRAIN_JOB["runtimeRef"], "runtimeRef")
            check_fields(document["spec"]["trainer"], TRAIN_JOB["trainer"], "trainer")
        else:
            validate(document, "1.31", strict=True)


class Pod:
    def __init__(self, hostname, domain, spec, variables):
        self.hostname, self.dns, self.spec = hostname, f"{hostname}.{domain}", spec
        self.variables = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": hostname, **variables}


def pods_of_job(name, domain, spec):
    for index in range(spec["completions"]):
        yield Pod(f"{name}-{index}", domain, spec["template"]["spec"], {"JOB_COMPLETION_INDEX": str(index)})


def pods_of(name):
    for document in documents(name):
        spec, called = document.get("spec"), document["metadata"]["name"]
        if document["kind"] == "Job":
            yield from pods_of_job(called, spec["template"]["spec"].get("subdomain", "none"), spec)
        elif document["kind"] == "StatefulSet":
            for index in range(spec["replicas"]):
                yield Pod(f"{called}-{index}", spec["serviceName"], spec["template"]["spec"], {})
        elif document["kind"] == "JobSet":
            for job, job_spec in jobs_of(document):
                yield from pods_of_job(job, called, job_spec)
        elif document["kind"] == "TrainJob":
            trainer = spec["trainer"]
            container = {"command": trainer["command"], "env": trainer["env"]}
            for index in range(trainer["numNodes"]):
                yield Pod(f"{called}-node-0-{index}", called, {"containers": [container]}, {
                    "JOB_COMPLETION_INDEX": str(index), "PET_NODE_RANK": str(index),
                    "PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                    "PET_MASTER_ADDR": f"{called}-node-0-0.{called}", "PET_MASTER_PORT": "29500",
                })  # fmt: skip


def start(pod, host, psring, environment, key, folder, log, flags=()):
    """The pod's containers, one after another; python3, psring and the script are this test's."""
    container = pod.spec["containers"][0]
    variables = {**environment, **pod.variables, **{each["name"]: each["value"] for each in container["env"]}}
    variables["PATH"] = os.pathsep.join([os.path.dirname(psring), os.path.dirname(sys.executable), os.environ["PATH"]])
    if "PSRING_KEY_FILE" in variables:
        variables["PSRING_KEY_FILE"] = key
    commands = [each["command"] for each in [*pod.spec.get("initContainers", []), container]]
    steps = []
    for command in commands:
        script = [sys.executable, TRAIN, str(folder), *flags]
        words = [word.replace("python3 train.py", " ".join(script)) for word in command]
        if words[-2:] == ["python3", "train.py"]:
            words[-2:] = script
        steps.append(words)
    for words in steps[:-1]:
        subprocess.run([*host.prefix(), *words], env=variables, stdout=log, stderr=log, check=True, timeout=60)
    return host.start(*steps[-1], env=variables, stdout=log, stderr=log)


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
@pytest.mark.parametrize("name, servers", [
    ("indexed-job.yaml", 0), ("statefulset.yaml", 2), ("jobset.yaml", 2), ("trainjob.yaml", 2),
])  # fmt: skip
def test_the_commands_of_all_pods_make_a_job(name, servers, psring, environment, key, expected, tmp_path):
    pods = list(pods_of(name))
    machines = hosts.Hosts(str(tmp_path), *(pod.hostname for pod in pods), aliases={pod.hostname: pod.dns for pod in pods})
    running = []
    try:
        with open(tmp_path / "log", "w") as log:
            for pod in reversed(pods):  # rank 0 is no earlier than others
                running.append(start(pod, machines[pod.hostname], psring, environment, key, tmp_path, log))
            codes = [process.wait(timeout=180) for process in running]
    finally:
        machines.close()
    assert codes == [0] * len(pods), (tmp_path / "log").read_text()
    result = result_in(tmp_path)
    assert_same_training(result, expected(4))
    assert (result["mode"], result["servers"]) == ("ps" if servers else "ring", servers)
    if name != "trainjob.yaml":
        workers = [pod.hostname for pod in pods if "JOB_COMPLETION_INDEX" in pod.variables and "server" not in pod.hostname]
        assert result["hosts"] == workers


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
@pytest.mark.parametrize("name", ["indexed-job.yaml", "statefulset.yaml"])
def test_pods_look_a_name_up_again_that_dns_has_wrong(name, psring, environment, key, expected, tmp_path):
    """As where a pod has taken the place of another: DNS has the earlier one's address for a while, or none.
    Containers that start again wait in no init container."""
    pods = list(pods_of(name))
    for pod in pods:
        pod.spec.pop("initContainers", None)
    machines = hosts.Hosts(str(tmp_path), *(pod.hostname for pod in pods), aliases={pod.hostname: pod.dns for pod in pods})
    table = (tmp_path / "hosts").read_text()
    first = pods[0].dns

    def set_table(text):  # in the file that all hosts have mounted
        with open(tmp_path / "hosts", "r+") as file:
            file.write(text)
            file.truncate()

    running = []
    try:
        for wrong in ("10.213.0.99 ", "# "):
            set_table("".join(wrong + line.split(" ", 1)[1] if first in line else line for line in table.splitlines(True)))
            with open(tmp_path / "log", "a") as log:
                running = [start(pod, machines[pod.hostname], psring, environment, key, tmp_path, log) for pod in pods]
            words = "which is not this host's" if wrong[0] == "1" else "cannot resolve host"
            hosts.wait_for(lambda: words in (tmp_path / "log").read_text(), words)
            set_table(table)
            assert [process.wait(timeout=60) for process in running] == [0] * len(pods), (tmp_path / "log").read_text()
    finally:
        machines.close()
    log = (tmp_path / "log").read_text()
    assert "looks the name up until the join timeout" in log
    assert_same_training(result_in(tmp_path), expected(4))


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
def test_sigterm_to_one_pod_saves_and_ends_all_of_them_well(psring, environment, key, expected, tmp_path):
    pods = list(pods_of("indexed-job.yaml"))
    machines = hosts.Hosts(str(tmp_path), *(pod.hostname for pod in pods), aliases={pod.hostname: pod.dns for pod in pods})

    def run(flags):
        with open(tmp_path / "log", "a") as log:
            return [start(pod, machines[pod.hostname], psring, environment, key, tmp_path, log, flags) for pod in pods]

    try:
        running = run(["--stop-on-sigterm", "--meet-at=20"])
        files = [tmp_path / f"at-20.{rank}" for rank in range(4)]
        hosts.wait_for(lambda: all(file.exists() for file in files), "four workers at step 20")
        machines["train-2"].run("kill", "-TERM", files[2].read_text())
        (tmp_path / "go").touch()
        assert [process.wait(timeout=60) for process in running] == [0] * 4, (tmp_path / "log").read_text()
        assert not (tmp_path / "result.json").exists()
        # The pods that take their places.
        assert [process.wait(timeout=60) for process in run([])] == [0] * 4, (tmp_path / "log").read_text()
    finally:
        machines.close()
    assert result_in(tmp_path)["resumed_at"] == 21
    assert_same_training(result_in(tmp_path), expected(4))
