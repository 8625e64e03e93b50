"""Makes the pictures of README: docs/report.png and docs/page.png.

    .venv/bin/python -m tests.pictures --model=demo_output/model

fine-tunes it on examples/reviews.csv as README does, unless that is done, and
takes pictures of the report and of the server's page. It needs Chromium.
"""

import base64
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

from absl import app, flags

import bert_tf
from tests.documents import ROOT
from tests.server.browser import Browser
from tests.server.page_actions import answer, fill

MODEL = flags.DEFINE_string("model", "demo_output/model", "the model to train")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "out/reviews", "the folder of the training"
)
TEXT = flags.DEFINE_string(
    "text",
    "The waiter was friendly and the food was excellent.",
    "the text that the page shows",
)
WIDTH = 1000
EXPLAINED = "document.querySelector('#explained mark') !== null"


def picture(browser: Browser, name: str, height: int) -> None:
    """Writes the top of the page that is open as docs/NAME.png."""
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
    browser.value("scrollTo(0, 0)")
    browser.ask("Emulation.setScrollbarsHidden", hidden=True)
    shot = browser.ask(
        "Page.captureScreenshot", clip=clip, captureBeyondViewport=True
    )
    path = ROOT / "docs" / f"{name}.png"
    path.write_bytes(base64.b64decode(shot["data"]))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def main(_: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = bert_tf.finetune(
            MODEL.value,
            ROOT / "examples" / "reviews.csv",
            text_columns="text",
            label_column="label",
            output_dir=OUTPUT_DIR.value,
        )
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "tools.serve", "--port=0"),
                *(f"--model={run.folder.resolve()}", "--model_name=reviews"),
                f"--rest_api_port={port}",
            ],
            cwd=ROOT,
            env=os.environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        browser = Browser(pathlib.Path(folder) / "browser")
        try:
            browser.ask(
                "Emulation.setDeviceMetricsOverride",
                **{"width": WIDTH, "height": 700, "deviceScaleFactor": 1},
                mobile=False,
            )
            browser.open(run.report.resolve().as_uri())
            browser.until("document.readyState == 'complete'")
            picture(browser, "report", 860)
            while "ready" not in (line := server.stderr.readline()):
                assert line, "the server has ended"
            browser.open(f"http://127.0.0.1:{port}/")
            browser.until("document.querySelector('#input-text') !== null")
            fill(browser, text=TEXT.value)
            answer(browser)
            browser.value("document.querySelector('#explained button').click()")
            browser.until(EXPLAINED)
            picture(browser, "page", 860)
        finally:
            browser.close()
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    app.run(main)
