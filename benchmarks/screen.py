"""How long a user waits: for the first stage, a drawn step, all verdicts, and in many sessions, in a real Chromium.

    python -m benchmarks.screen [--sessions 20] [--url http://localhost:8501]

Without --url it starts a server of its own. Step to drawn is the time from the click until the new state is in the
document and the next frame begins, measured in the page.
"""

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.async_api import Browser, Page, async_playwright

from pagedviz import lesson
from pagedviz.scenario.operations import Add, Append
from pagedviz.scenario.scenario import Scenario
from pagedviz.scenario.settings import CacheConfig
from pagedviz.ui import address
from tests.chromium import find

LESSON = "06_copy_on_write"
PAUSE = 5.0  # seconds between the steps of one session; all of them share this machine with their server
STEP = """async (stage, label) => {
  const button = stage.querySelector(`[aria-label="${label}"]`), before = stage.dataset.step, start = performance.now();
  button.click();
  while (stage.dataset.step === before) {
    await new Promise(requestAnimationFrame);
    if (performance.now() - start > 5000) return null;
  }
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""


def row(what: str, times: list[float], unit: str = "ms") -> None:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    print(f"{what:58} {len(times):5} {statistics.median(times):9.1f} {p95:9.1f} {ordered[-1]:9.1f}  {unit}", flush=True)


@contextmanager
def served(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", f"--server.port={port}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


async def opened(browser: Browser, address: str) -> tuple[Page, float]:
    """A new session at an address, and the seconds until its stage is painted."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    start = time.perf_counter()
    await page.goto(address)
    await page.locator("[data-testid=stage]").wait_for()
    return page, time.perf_counter() - start


async def steps(page: Page, count: int, pause: float = 0.0) -> list[float]:
    """Milliseconds of `count` steps, to the end and back."""
    stage, times, label = page.locator("[data-testid=stage]"), [], "Step forward"
    for _ in range(count):
        at, last = await stage.get_attribute("data-step"), await stage.get_attribute("data-steps")
        label = "Step back" if at == last else "Step forward" if at == "0" else label
        took = await stage.evaluate(STEP, label)
        times.append(5000.0 if took is None else took)
        await asyncio.sleep(pause)
    return times


async def checked(page: Page) -> float:
    """Seconds until the last state of the run has its verdict."""
    start = time.perf_counter()
    await page.get_by_text("all ", exact=False).first.wait_for()
    stage = page.locator("[data-testid=stage]")
    await page.keyboard.press("End")
    while await stage.get_attribute("data-verdict") == "pending":
        await asyncio.sleep(0.05)
    return time.perf_counter() - start


def long_run() -> Scenario:
    """Three hundred words, each in an operation of its own, so that each is a step of its own."""
    words = [Append(seq_id, (f"word{i}",)) for seq_id in "AB" for i in range(149)]
    cache = CacheConfig(num_blocks=200, scatter=True)
    return Scenario(seed=7, cache=cache, ops=(Add("A", ("first",)), Add("B", ("first",)), *words))


async def measure(url: str, sessions: int) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        page, _ = await opened(browser, url)  # warms up the server and Chromium's cache of the page's code
        await asyncio.sleep(3)
        await page.context.close()
        print(f"{'':58} {'n':>5} {'median':>9} {'p95':>9} {'max':>9}")
        firsts = []
        for name in lesson.names():
            page, first = await opened(browser, f"{url}/?lesson={name}&seed=77")
            firsts.append(first)
            row(f"{name}: opened to fully checked", [first + await checked(page)], "s")
            await page.context.close()
        row("first stage painted after navigation, new session", firsts, "s")
        page, _ = await opened(browser, f"{url}/?lesson={LESSON}")
        await asyncio.sleep(2)
        row("step to drawn, one session, nothing computing", await steps(page, 60))
        await page.context.close()
        word = address.encode(long_run())
        busy, _ = await opened(browser, f"{url}/?page=sequences&scenario={word}")
        visits = [await opened(browser, f"{url}/?lesson={LESSON}") for _ in range(sessions)]
        pages = [page for page, _ in visits]
        row(f"first stage painted, {sessions} sessions arriving, computing", [first for _, first in visits], "s")
        await asyncio.sleep(2)
        print(f"the compute process works: {await busy.locator('.stProgress').count() == 1}")
        results = await asyncio.gather(*(steps(page, 10, pause=PAUSE) for page in pages))
        row(
            f"step to drawn, {sessions} sessions, one step each {PAUSE:g} s, computing",
            [took for times in results for took in times],
        )
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--url")
    chosen = parser.parse_args()
    with served(chosen.url) as url:
        for _ in range(100):
            try:
                socket.create_connection((url.split("//")[1].split(":")[0], int(url.rsplit(":", 1)[1]))).close()
                break
            except OSError:
                time.sleep(0.1)
        asyncio.run(measure(url, chosen.sessions))


if __name__ == "__main__":
    main()
