"""A new user's first steps in the shell, in Python and in production, timed.

Clones this repository, lets make install it into an environment without
packages of the system, with an empty home folder, and walks:

- shell: `make demo`, then `bert-tf predict` on a file;
- Python: the first program of README.md, with --model from another model;
- production: `bert-tf export`, `bert-tf serve` and an answer by HTTP.

Each is timed to its end, after the installation; a walk that fails, or whose
answers are wrong, ends the run. Needs git, make and Python alone:

python -m benchmarks.first_steps --output_dir=/tmp/first_steps

Repeated with the same folder it installs only what has changed.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The model of the demo, as README's program names it.
DEMO = "demo_output/model"
# Texts as they are asked in production, and their labels. The demo and README's
# program end in a good and a bad one, too.
TEXTS = {
    "My new boots are light, warm and comfortable.": "good",
    "The train was late, dirty and cold.": "bad",
}
# Seconds that each walk may take on two idle cores.
LIMITS = {"shell": 180, "Python": 60, "production": 90}


class Newcomer:
    """Somebody with a fresh clone, an empty home and nothing installed."""

    def __init__(self, folder: pathlib.Path, python: str) -> None:
        self.checkout = folder / "checkout"
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.python = python
        bin_folder = str(self.checkout / ".venv" / "bin")
        # Where packages come from is the machine's own setting.
        kept = {n: v for n, v in os.environ.items() if n.startswith("PIP_")}
        self.environment = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
            **kept,
        }

    def clone(self) -> None:
        """Brings the committed state of this repository."""
        if self.checkout.exists():
            self.run("git", "fetch", "--quiet", "origin", "HEAD")
            self.run("git", "reset", "--quiet", "--hard", "FETCH_HEAD")
        else:
            words = ["git", "clone", "--quiet", str(ROOT), str(self.checkout)]
            subprocess.run(words, check=True)
        for name in ("demo_output", "out", "served", "answers.jsonl"):
            found = self.checkout / name
            if found.is_dir():
                shutil.rmtree(found)
            found.unlink(missing_ok=True)

    def run(self, *words: str) -> str:
        """Runs a command, shows what it prints, and returns that."""
        print("$", *words, flush=True)
        with subprocess.Popen(
            words,
            cwd=self.checkout,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            lines = []
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
        if process.returncode:
            sys.exit(f"{' '.join(words)}: ended with {process.returncode}")
        return "".join(lines)

    def install(self) -> None:
        """Makes the environment with `bert-tf`."""
        self.run("make", ".venv/bin/bert-tf", f"PYTHON={self.python}")


def check(labels: list[str]) -> None:
    """Ends the run if the labels are not those of a good and a bad review."""
    if labels != [*TEXTS.values()]:
        sys.exit(f"expected {[*TEXTS.values()]}, found {labels}")


def walk_shell(user: Newcomer) -> None:
    """Runs the demo, and predicts the labels of a file."""
    said = user.run("make", "demo", f"PYTHON={user.python}")
    check(re.findall(r"^ *(good|bad) \d+%$", said, flags=re.M))
    new = user.checkout / "examples" / "new_reviews.csv"
    user.run(
        *("bert-tf", "predict", "--model=demo_output/reviews"),
        *(f"--input={new}", "--output=answers.jsonl"),
    )
    lines = (user.checkout / "answers.jsonl").read_text().splitlines()
    with new.open(newline="") as file:
        if len(lines) != len(list(csv.DictReader(file))):
            sys.exit(f"answers.jsonl has {len(lines)} rows")


def walk_python(user: Newcomer, model: str) -> None:
    """Runs README's first program, which ends in the labels of two texts."""
    readme = (user.checkout / "README.md").read_text(encoding="utf-8")
    (program, *_) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    if DEMO not in program:
        sys.exit(f"README's first program does not name {DEMO}")
    said = user.run("python", "-c", program.replace(DEMO, model))
    check(re.findall(r"\. (good|bad) [\d.]+$", said, flags=re.M))


def walk_production(user: Newcomer) -> None:
    """Exports the demo's classifier, serves it and asks."""
    user.run(
        *("bert-tf", "export", "--model=demo_output/reviews"),
        "--output_dir=served/reviews",
    )
    rest, grpc = free_port(), free_port()
    server = subprocess.Popen(
        [
            *("bert-tf", "serve", "--model_name=reviews"),
            "--model_base_path=served/reviews",
            *(f"--rest_api_port={rest}", f"--port={grpc}"),
        ],
        cwd=user.checkout,
        env=user.environment,
    )
    try:
        address = f"http://127.0.0.1:{rest}/v1/models/reviews"
        wait_for(address, server)
        body = {"instances": [{"text": text} for text in TEXTS]}
        data = json.dumps(body).encode()
        with urllib.request.urlopen(f"{address}:predict", data) as answer:
            found = json.load(answer)["predictions"]
        check([one["label"] for one in found])
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def wait_for(address: str, server: subprocess.Popen) -> None:
    """Waits until the server answers at an address."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"bert-tf serve: ended with {server.returncode}")


def main() -> None:
    """Installs, walks and prints the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--output_dir", type=pathlib.Path, required=True, help="Folder of all."
    )
    parser.add_argument(
        "--python", default="python3.11", help="Python of the environment."
    )
    parser.add_argument(
        "--model",
        default=DEMO,
        help="Model of the walk in Python, such as "
        "hf://google-bert/bert-base-uncased.",
    )
    options = parser.parse_args()
    user = Newcomer(options.output_dir.resolve(), options.python)
    walks: dict[str, Callable[[], None]] = {
        "clone": user.clone,
        "installation": user.install,
        "shell": lambda: walk_shell(user),
        "Python": lambda: walk_python(user, options.model),
        "production": lambda: walk_production(user),
    }
    seconds = {}
    for name, walk in walks.items():
        started = time.monotonic()
        walk()
        seconds[name] = time.monotonic() - started
    print("\n| walk | seconds | limit |\n|---|---|---|")
    for name, taken in seconds.items():
        print(f"| {name} | {taken:.0f} | {LIMITS.get(name, '')} |")


if __name__ == "__main__":
    main()
