"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import itertools
import pathlib
import shutil
import subprocess
import time

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "ArrowDown": (40, "")}


class Browser:
    """One page in a browser of its own.

    Args:
      profile: an empty folder.
    """

    def __init__(self, profile: pathlib.Path) -> None:
        self._process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stderr=subprocess.DEVNULL,
        )
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count(1)
        self.messages: list[str] = []
        self._loop.run_until_complete(self._connect(profile))

    async def _connect(self, profile: pathlib.Path) -> None:
        file = profile / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (file.exists() and "\n" in file.read_text()):
            assert time.monotonic() < end, "the browser does not start"
            await asyncio.sleep(0.1)
        port = file.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        url = f"http://127.0.0.1:{port}/json"
        async with self._session.get(url) as answer:
            targets = await answer.json()
        (page,) = [one for one in targets if one["type"] == "page"]
        self._socket = await self._session.ws_connect(
            page["webSocketDebuggerUrl"], max_msg_size=0
        )
        for domain in ("Page", "Runtime", "Log"):
            await self._ask(f"{domain}.enable", {})

    async def _ask(self, method: str, parameters: dict) -> dict:
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(asked)
        while True:
            message = await self._socket.receive_json(timeout=60)
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") == "Log.entryAdded":
                self.messages.append(message["params"]["entry"]["text"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.messages.append(str(message["params"]))

    def ask(self, method: str, **parameters: object) -> dict:
        """One command of the protocol."""
        return self._loop.run_until_complete(self._ask(method, parameters))

    def value(self, script: str) -> object:
        """What an expression in the page gives."""
        result = self.ask(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 30) -> object:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not (found := self.value(script)):
            if time.monotonic() > end:
                text = self.value("document.body.innerText")
                raise AssertionError(f"{script} is not true in: {text}")
            time.sleep(0.05)
        return found

    def open(self, url: str) -> None:
        """Opens a page."""
        self.ask("Page.navigate", url=url)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Presses and lets go a key; modifiers 2 is Ctrl, 8 is Shift."""
        code, text = _KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
                text=text if kind == "keyDown" and not modifiers else "",
            )

    def type(self, text: str) -> None:
        """Types into whatever has the focus."""
        self.ask("Input.insertText", text=text)

    def close(self) -> None:
        """Ends the browser."""

        async def end() -> None:
            await self._socket.close()
            await self._session.close()

        self._loop.run_until_complete(end())
        self._loop.close()
        self._process.terminate()
        self._process.wait(30)
