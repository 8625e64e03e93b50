"""huggingface.co on this machine: what pushing and downloading ask of it."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

import yaml

TOKEN = "hf_of_a_test"
_COMMIT = "0123456789" * 4


class Hub(http.server.ThreadingHTTPServer):
    """Its repositories, by name, and who may see them.

    Attributes:
      files: name of a model to its files.
      created: what it was asked to make.
      commits: how many there were.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict] = []
        self.commits = 0
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """What there is to know of a model, and its files."""
        path = self.path.partition("?")[0]
        for name, files in self.server.files.items():
            api = f"/api/models/{name}"
            if path in (api, f"{api}/revision/main"):
                siblings = [{"rfilename": each} for each in files]
                facts = {"id": name, "sha": _COMMIT, "siblings": siblings}
                return self.answer(facts)
            if path == f"{api}/tree/{_COMMIT}":
                return self.answer(
                    [
                        {"type": "file", "path": n, "size": len(f), "oid": n}
                        for n, f in files.items()
                    ]
                )
            place = f"/{name}/resolve/{_COMMIT}/"
            if path.startswith(place):
                return self.answer(files[path.removeprefix(place)])
        return self.refuse(404, "RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Making a model, and a commit."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.refuse(401, "")
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] == "others":
                return self.refuse(403, "")
            self.server.created.append(asked)
            self.server.files.setdefault(name, {})
            return self.answer({"url": f"{self.server.address}/{name}"})
        if self.path == "/api/validate-yaml":
            return self.validate(json.loads(body)["content"])
        name, _, what = self.path.removeprefix("/api/models/").rpartition("/")
        name = name.removesuffix("/preupload").removesuffix("/commit")
        if "/preupload/" in self.path:
            asked = [file["path"] for file in json.loads(body)["files"]]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            files = [{"path": path, **modes} for path in asked]
            return self.answer({"files": files})
        self.server.commits += 1
        for line in body.splitlines():
            operation = json.loads(line)
            if operation["key"] == "file":
                file = operation["value"]
                content = base64.b64decode(file["content"])
                self.server.files[name][file["path"]] = content
        address = f"{self.server.address}/{name}/commit/{_COMMIT}"
        return self.answer({"commitOid": _COMMIT, "commitUrl": address})

    def validate(self, card: str) -> None:
        """A card's metadata, as YAML between two lines of dashes."""
        _, metadata, _ = card.split("---\n", 2)
        try:
            assert isinstance(yaml.safe_load(metadata), dict)
        except yaml.YAMLError:
            errors = [{"message": "bad YAML"}]
            self.answer({"errors": errors, "warnings": []}, 400)
        else:
            self.answer({"errors": [], "warnings": []})

    def refuse(self, status: int, code: str) -> None:
        self.answer({"error": "refused"}, status, {"X-Error-Code": code})

    def answer(self, value, status=200, headers=None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        headers = (headers or {}) | {
            "Content-Length": len(body),
            "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
            "X-Repo-Commit": _COMMIT,
        }
        for name, content in headers.items():
            self.send_header(name, str(content))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
