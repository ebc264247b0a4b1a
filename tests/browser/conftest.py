"""A real Chromium and real servers: `app` is the whole app, `visit` opens a page of it, `show` the stage by itself."""

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
Open = Callable[..., Any]


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


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    with serve(Path(__file__).with_name("stage_demo.py")) as url:
        yield url


@pytest.fixture
def show(demo: str, browser: Any) -> Iterator[Open]:
    """Open one case of the stage's own page; at the end of the test its page must have logged no error."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_case(case: str, step: int = 0, theme: str = "light", width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{demo}/?case={case}&step={step}&embed=true&embed_options={theme}_theme")
        page.locator(f"{STAGE}[data-step]").first.wait_for(timeout=30_000)
        return page

    yield open_case
    for context in contexts:
        context.close()
    assert errors == []


def at(page: Any, step: int, index: int = 0) -> None:
    """Wait until the stage shows a step."""
    from playwright.sync_api import expect

    expect(page.locator(STAGE).nth(index)).to_have_attribute("data-step", str(step))


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def violations(page: Any) -> list[tuple[Any, ...]]:
    """Which of axe-core's rules the stage breaks, and where. The page's animations must be over.

    The layers that connectors and flights are drawn on lie over everything and let the pointer through. axe does not
    know that and would judge no contrast beneath them, so they are put away.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page.locator(".wires, .flights").evaluate_all("layers => layers.forEach((layer) => layer.remove())")
    found = axe.Axe().run(page).response
    ours = [
        [(rule["id"], node["target"], node.get("failureSummary")) for node in rule["nodes"] if _in_shadow(node)]
        for rule in found["violations"]
    ]
    assert any(_in_shadow(node) for rule in found["passes"] for node in rule["nodes"])
    return [broken for rule in ours for broken in rule]


def _in_shadow(node: dict[str, Any]) -> bool:
    """Whether the node is inside a shadow root: ours, not Streamlit's."""
    return isinstance(node["target"][0], list)
