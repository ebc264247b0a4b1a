"""A real Chromium: `visit` opens a page of the whole app, `show` the stage by itself, `show_in_streamlit` the stage on
a page of Streamlit's, for what only Streamlit does.

All tests share one browser and, where they need one, one server. A test waits for what it wants to see, never for a
time; where it claims that nothing happens for a while, or would wait for what plays, it turns the page's clock.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests import chromium
from tests.browser import bare_page

PROJECT = Path(__file__).parent.parent.parent
STAGE = "[data-testid=stage]"
Visit = Callable[..., Any]
Open = Callable[..., Any]


@dataclass(frozen=True)
class Server:
    url: str
    pid: int


@contextmanager
def serve(script: Path) -> Iterator[Server]:
    """Run a Streamlit script on a free port until the block ends."""
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
        yield Server(url, process.pid)
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # only a failing test waits so long, or one on a machine that does much else
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def app() -> Iterator[Server]:
    with serve(PROJECT / "app.py") as server:
        yield server


@contextmanager
def watched() -> Iterator[Callable[[Any], Any]]:
    """Gives what watches a page; at the end none of those that it watched may have logged an error, and they close."""
    pages: list[Any] = []
    errors: list[str] = []

    def watch(page: Any) -> Any:
        pages.append(page)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield watch
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture
def new_page(browser: Any) -> Iterator[Open]:
    """A page in a context of its own."""
    contexts: list[Any] = []

    def open_page(width: int = 1280, height: int = 800, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        return watch(contexts[-1].new_page())

    with watched() as watch:
        yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def contexts(browser: Any) -> Callable[[str], Any]:
    """The contexts in which the app is visited, by colour scheme: pages of one share what they have loaded."""

    @cache
    def context(scheme: str) -> Any:
        return browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})

    return context


def go_to(page: Any, app: Server, place: str = "", landmark: str = f"{STAGE}[data-step]") -> Any:
    """Go to a place of the app, and wait until its landmark is there."""
    page.goto(f"{app.url}/?{place}")
    page.locator(landmark).first.wait_for(timeout=30_000)
    return page


@pytest.fixture
def visit(app: Server, contexts: Callable[[str], Any]) -> Iterator[Visit]:
    """Open a place of the app in a session of its own, which Streamlit gives to each page."""
    with watched() as watch:
        yield lambda place="", scheme="light", **more: go_to(watch(contexts(scheme).new_page()), app, place, **more)


@pytest.fixture
def show(new_page: Open) -> Open:
    """Open one case of the stage on a bare page."""

    def open_case(case: str, step: int = 0, theme: str = "light", answer: Any = None, **options: Any) -> Any:
        page = new_page(**options)
        bare_page.open_case(page, case, step, theme, *([answer] if answer else []))
        page.locator(f"{STAGE}[data-step]").wait_for()
        return page

    return open_case


@pytest.fixture(scope="session")
def demo() -> Iterator[Server]:
    with serve(Path(__file__).with_name("stage_demo.py")) as server:
        yield server


@pytest.fixture
def show_in_streamlit(demo: Server, new_page: Open) -> Open:
    """Open one case of the stage on a page of Streamlit's, which runs again whenever the stage tells something."""

    def open_case(case: str, step: int = 0, theme: str = "light", **options: Any) -> Any:
        page = new_page(**options)
        page.goto(f"{demo.url}/?case={case}&step={step}&embed=true&embed_options={theme}_theme")
        page.locator(f"{STAGE}[data-step]").first.wait_for(timeout=30_000)
        return page

    return open_case


def at(page: Any, step: int, index: int = 0) -> None:
    """Wait until the stage shows a step."""
    from playwright.sync_api import expect

    expect(page.locator(STAGE).nth(index)).to_have_attribute("data-step", str(step))


# Goes to each step, by a button where it is the next, and reads there; all in one call.
EACH = """(root, [steps, reads]) => {
  const control = (name) => root.querySelector(`[aria-label="${name}"]`);
  const readers = reads.map((read) => new Function(`return (${read});`)());
  return steps.map((step) => {
    const by = step - Number(root.dataset.step);
    if (by === 1) control("Step forward").click();
    else if (by === -1) control("Step back").click();
    else if (by) {
      control("Step").value = step;
      control("Step").dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (Number(root.dataset.step) !== step) throw new Error(`the stage is at step ${root.dataset.step}, not ${step}`);
    return readers.map((read) => read(root));
  });
}"""


def at_each(page: Any, steps: Iterable[int], *reads: str) -> list[list[Any]]:
    """What the stage shows at each of the steps; each of `reads` is a function of its root."""
    shown: list[list[Any]] = page.locator(STAGE).evaluate(EACH, [list(steps), reads])
    return shown


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def violations(page: Any) -> list[tuple[Any, ...]]:
    """Which of axe-core's rules the stage breaks, and where, once its animations are over.

    The layers that connectors and flights are drawn on lie over everything and let the pointer through. axe does not
    know that and would judge no contrast beneath them, so they are put away.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page.locator(STAGE).evaluate(
        """async (root) => {
          await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
          await Promise.all(root.getRootNode().getAnimations().map((animation) => animation.finished));
        }"""
    )
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
