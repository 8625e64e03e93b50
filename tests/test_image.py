"""production/Dockerfile, which is built where there is a network."""

import json
import pathlib
import re
import shlex
import tomllib

import yaml

from tests import commands
from tools import COMMANDS

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "production" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions in order, each with its arguments in one line."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.M)
    lines = text.replace("\\\n", " ").splitlines()
    return [(kind, rest) for kind, _, rest in (x.partition(" ") for x in lines)]


def arguments(kind: str) -> list[str]:
    return [rest for each, rest in instructions() if each == kind]


def test_it_starts_the_server_as_a_user_without_rights():
    kinds = [kind for kind, _ in instructions()]
    assert set(kinds) <= {
        *("FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE"),
        "ENTRYPOINT",
    }
    assert kinds[0] == "FROM"
    assert kinds.index("RUN") < kinds.index("USER") < kinds.index("ENTRYPOINT")
    (image,), (run,), (user,) = map(arguments, ("FROM", "RUN", "USER"))
    assert re.fullmatch(r"python:3\.1\d-slim", image)
    assert f"useradd --create-home --uid 1000 {user}" in run
    (entry,) = arguments("ENTRYPOINT")
    program, command, *flags = json.loads(entry)
    assert (program, COMMANDS[command]) == ("bert-tf", "serve")
    # The examples in its first lines too.
    text = DOCKERFILE.read_text("utf-8")
    for name, used in (
        ("serve", [*flags, *re.findall(r"bert_tf (--\w+)=", text)]),
        ("finetune", re.findall(r"--(?:task|train_file|output_dir)\b", text)),
    ):
        help_text = commands.run(f"tools.{COMMANDS[name]}", "--help").stdout
        for flag in used:
            assert f"\n  {flag.partition('=')[0]}" in help_text, flag
    (ports,) = arguments("EXPOSE")
    help_text = commands.run("tools.serve", "--help").stdout
    for port in ports.split():
        assert f"default: {port})" in help_text


def test_it_installs_the_project_and_extras_that_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (run,) = arguments("RUN")
    (extras,) = re.findall(r"pip install --no-cache-dir '\.\[(.*?)\]'", run)
    known = project["project"]["optional-dependencies"]
    assert {"serve", "openvino"} <= {*extras.split(",")} <= known.keys()
    copied = set()
    for line in arguments("COPY"):
        *sources, target = shlex.split(line)
        copied.update(sources)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert target in ("./", f"./{source}")
    # What is built from, and nothing that is left out of the context.
    folders = re.findall(r'": "(\w+)"', (ROOT / "setup.py").read_text("utf-8"))
    metadata = {"pyproject.toml", "setup.py", project["project"]["readme"]}
    metadata.update(project["project"]["license-files"])
    assert copied == {"bert_tf", *folders, *metadata}
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert {line[1:] for line in ignored if line[0] == "!"} == copied
    assert "*" in ignored


def test_the_job_of_workers_can_use_it():
    """Its user may write to the volume, and its folder is there."""
    text = (ROOT / "production" / "training.yaml").read_text("utf-8")
    assert "production/Dockerfile" in text
    _, job = yaml.safe_load_all(text)
    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["fsGroup"] == 1000
    (container,) = pod["containers"]
    assert [container["workingDir"]] == arguments("WORKDIR")
