"""A real Chromium and a real server: `serve` starts any script, `app` the whole app, `visit` opens a page of it."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests import chromium

PROJECT = Path(__file__).parent.parent.parent
STAGE = "[data-testid=stage]"
Visit = Callable[..., Any]


@contextmanager
def serve(script: Path) -> Iterator[str]:
    """Run a Streamlit script on a free port until the block ends; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--server.headless=true", "--server.fileWatcherType=none", f"--server.port={port}"]
    command = [sys.executable, "-m", "streamlit", "run", str(script), *flags]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urlopen(f"{url}/_stcore/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.25)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def app() -> Iterator[str]:
    with serve(PROJECT / "app.py") as url:
        yield url


@pytest.fixture
def visit(app: str, browser: Any) -> Iterator[Visit]:
    """Open a place of the app in a session of its own. At the end no page may have logged an error."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_place(place: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{app}/?{place}" if place else app)
        page.locator(f"{STAGE}[data-step]").wait_for(timeout=30_000)
        return page

    yield open_place
    for context in contexts:
        context.close()
    assert errors == []
