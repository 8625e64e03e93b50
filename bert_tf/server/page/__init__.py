"""The web page to try the models: its files and its API."""

import asyncio
import json
import pathlib

from aiohttp import web

from bert_tf.foreign_files import read_text
from bert_tf.server.versions import Models

_FOLDER = pathlib.Path(__file__).parent
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# The description of an exported model.
_MODEL_FILE = "assets.extra/model.json"


def add_routes(application: web.Application, models: Models) -> None:
    """Adds the routes of the page.

    Args:
      application: the application of the server.
      models: the served models.
    """

    async def show_file(request: web.Request) -> web.Response:
        path = _FOLDER / (request.path[1:] or "page.html")
        return web.Response(
            text=path.read_text(encoding="utf-8"),
            content_type=_TYPES[path.suffix],
            charset="utf-8",
            headers=_HEADERS,
        )

    async def list_models(request: web.Request) -> web.Response:
        served = []
        for name in sorted(models.configs):
            versions = sorted(models.available(name))
            labels = {
                label: version
                for label, version in sorted(models.labels(name).items())
                if version in versions
            }
            served.append(
                {"name": name, "versions": versions, "labels": labels}
            )
        return web.json_response({"models": served}, headers=_HEADERS)

    async def describe(request: web.Request) -> web.Response:
        """Returns the description of a version, or an empty object."""
        versions = models.available(request.query.get("model", ""))
        number = request.query.get("version", "")
        description = {}
        for version in versions.values():
            if str(version.number) == number:
                description = await asyncio.to_thread(_read, version.folder)
        return web.json_response(description, headers=_HEADERS)

    application.router.add_get("/", show_file)
    for path in _FOLDER.iterdir():
        if path.suffix in _TYPES and path.name != "page.html":
            application.router.add_get(f"/{path.name}", show_file)
    application.router.add_get("/page/models", list_models)
    application.router.add_get("/page/description", describe)


def _read(folder: pathlib.Path) -> dict:
    """Reads the description in a folder; other programs' may be malformed."""
    try:
        description = json.loads(read_text(folder / _MODEL_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return description if isinstance(description, dict) else {}
