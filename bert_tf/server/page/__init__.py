"""A page to try the models: three files, and the list of what is served."""

import pathlib

from aiohttp import web

from bert_tf.server.versions import Models

_FOLDER = pathlib.Path(__file__).parent
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/views.js": ("views.js", "text/javascript"),
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


def add_routes(application: web.Application, models: Models) -> None:
    """Lets the server show the page.

    Args:
      application: of the server.
      models: what can be tried.
    """

    async def show_file(request: web.Request) -> web.Response:
        name, kind = _FILES[request.path]
        return web.Response(
            text=(_FOLDER / name).read_text(encoding="utf-8"),
            content_type=kind,
            charset="utf-8",
            headers=_HEADERS,
        )

    async def list_models(request: web.Request) -> web.Response:
        served = [
            {"name": name, "versions": sorted(models.available(name))}
            for name in sorted(models.configs)
        ]
        return web.json_response({"models": served}, headers=_HEADERS)

    for path in _FILES:
        application.router.add_get(path, show_file)
    application.router.add_get("/page/models", list_models)
