"""The launch scripts of docs/training.md, run as far as one machine can."""

import os
import pathlib
import re
import subprocess

import pytest
import yaml

from bert_tf.training.cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.fixture
def stubs(tmp_path):
    """A folder of commands that stand for those of a cluster."""

    def write(**scripts):
        for name, body in scripts.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)
        return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    return write


def cluster_of(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    return Cluster.from_environment()


def test_kubernetes(stubs, monkeypatch):
    """Each pod makes TF_CONFIG of its index."""
    path = stubs(**{"bert-tf": 'echo "$TF_CONFIG"; echo "$@" >&2'})
    text = (ROOT / "production" / "training.yaml").read_text()
    service, job = yaml.safe_load_all(text)
    pods = job["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    assert pods["subdomain"] == service["metadata"]["name"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert int(variables["WORKERS"]) == job["spec"]["completions"]
    for index in (0, 3):
        done = subprocess.run(
            [*container["command"], *container["args"]],
            env={"PATH": path, "JOB_COMPLETION_INDEX": str(index), **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        cluster = cluster_of(monkeypatch, done.stdout)
        assert cluster.index == index
        assert list(cluster.workers) == [
            f"bert-training-{n}.bert-training:2222" for n in range(4)
        ]
        assert "--strategy=multi_worker" in done.stderr


@pytest.mark.parametrize(("code", "requeued"), [(0, ""), (75, "requeue 7\n")])
def test_slurm(stubs, monkeypatch, tmp_path, code, requeued):
    """Hosts become addresses; asked to stop, the job is queued again."""
    (script,) = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", PAGE, re.S)
    log = tmp_path / "log"
    path = stubs(
        scontrol=f'[ "$1" = show ] && printf "n1\\nn2\\n" || echo "$@" >{log}',
        srun='SLURM_PROCID=1 exec "$@"',
        **{"bert-tf": f'echo "$TF_CONFIG"; exit {code}'},
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": path, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    cluster = cluster_of(monkeypatch, done.stdout)
    assert cluster == Cluster(("n1:2222", "n2:2222"), 1)
    assert (log.read_text() if log.exists() else "") == requeued


def test_tf_config_of_the_page(monkeypatch):
    (text,) = re.findall(r"export TF_CONFIG='(.*?)'", PAGE, re.S)
    hosts = ("host0:2222", "host1:2222")
    assert cluster_of(monkeypatch, text) == Cluster(hosts, 0)
