"""Draw the README's pictures from the running app, light and dark: make pictures

A still of the whole page, and an animation of copy-on-write. The time of the page's own animations is set by hand,
frame by frame: a flight is as smooth on a slow machine as on a fast one, and slow enough to be followed.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests import chromium
from tests.browser.conftest import STAGE, serve

DOCS = Path(__file__).parent
LESSON = "lesson=06_copy_on_write"
STILL = 9  # the step of the still: a block has just been copied
SIZE = {"width": 1280, "height": 820}

# The animation: each step, and for how many ms it is read after its flight. The four steps of one write.
READ = {7: 900, 8: 1100, 9: 1200, 10: 1000, 11: 1300}
FLIGHT = 800  # ms of the animation in which the stage's flights are shown
FRAME = 50  # ms
SCALE = 1.5  # device pixels per CSS pixel
COLOURS = 96
MARGIN = 12  # CSS pixels around what is shown
SHOWN = (".op", ".tables", ".queue-box")  # its first line, the right edge and the last line

TAKE_TIME = """stage => {
  const moves = stage.getAnimations({ subtree: true });
  moves.forEach((move) => move.pause());
  return Math.max(0, ...moves.map((move) => move.effect.getComputedTiming().endTime));
}"""
STEP_FORWARD = f"""stage => {{
  stage.querySelector('button[aria-label="Step forward"]').click();
  return ({TAKE_TIME})(stage);
}}"""
SET_TIME = "(stage, ms) => stage.getAnimations({ subtree: true }).forEach((move) => { move.currentTime = ms; })"
END_TIME = "stage => stage.getAnimations({ subtree: true }).forEach((move) => move.finish())"


def opened(browser: Any, app: str, scheme: str, step: int, scale: float) -> Page:
    """The lesson at a step, when all of its steps have been checked."""
    page = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=scale).new_page()
    page.goto(f"{app}/?{LESSON}&step={step}")
    expect(page.locator(STAGE)).to_have_attribute("data-step", str(step), timeout=60_000)
    expect(page.locator(STAGE)).to_have_attribute("data-verdict", "ok", timeout=60_000)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(2000)  # Streamlit's own fades
    return page


def frames(page: Page) -> Iterator[tuple[bytes, int]]:
    """PNGs of the animation, and for how many ms each is shown. Takes a page at the last step, where most is on it."""
    stage = page.locator(STAGE)
    stage.locator(".pool-box").nth(1).evaluate("host => { host.style.visibility = 'hidden'; }")  # it has no part here
    boxes = [stage.locator(name).first.bounding_box() or {} for name in SHOWN]
    left, top = min(box["x"] for box in boxes) - MARGIN, boxes[0]["y"] - MARGIN
    right, bottom = (max(box[p] + box[s] for box in boxes) + MARGIN for p, s in (("x", "width"), ("y", "height")))
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    for _ in range(len(READ) - 1):
        stage.get_by_role("button", name="Step back").click()
    for step, read in READ.items():
        if step > min(READ):
            lasts = stage.evaluate(STEP_FORWARD)
            for shown in range(0, FLIGHT if lasts else 0, FRAME):
                stage.evaluate(SET_TIME, lasts * shown / FLIGHT)
                yield page.screenshot(clip=clip), FRAME
            stage.evaluate(END_TIME)
        expect(stage).to_have_attribute("data-step", str(step))
        yield page.screenshot(clip=clip), read


def animated(shots: list[tuple[bytes, int]], path: Path) -> None:
    """Write the frames as one animation that runs for ever. All share one palette, so that nothing flickers."""
    pictures = [Image.open(io.BytesIO(png)).convert("RGB") for png, _ in shots]
    palette = pictures[-1].quantize(COLOURS)
    few = [picture.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB") for picture in pictures]
    times = [ms for _, ms in shots]
    few[0].save(path, save_all=True, append_images=few[1:], duration=times, loop=0, lossless=True, method=6)


if __name__ == "__main__":
    with serve(DOCS.parent / "app.py") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            opened(browser, server.url, scheme, STILL, 1).screenshot(path=DOCS / f"page_{scheme}.png")
            shots = list(frames(opened(browser, server.url, scheme, max(READ), SCALE)))
            path = DOCS / f"copy_on_write_{scheme}.webp"
            animated(shots, path)
            seconds = sum(ms for _, ms in shots) / 1000
            print(f"{path.name}: {len(shots)} frames, {seconds:.1f} s, {path.stat().st_size / 1000:,.0f} kB")
