"""The stage on a page of its own, without a server: the page plays Streamlit's part, the test process Python's."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from pagedviz.ui import stage
from tests.browser import lens_answers, stage_demo

Data = dict[str, Any]
Answer = Callable[[Data, Data], Data]
ADDRESS = "http://stage.localhost"

# What Streamlit gives to the stage in the app's two themes; tests/browser/test_app.py compares.
THEMES = {
    "light": {"background-color": "#fcfcfa", "text-color": "#1b1f24"},
    "dark": {"background-color": "#14171c", "text-color": "#e8e8e4"},
}

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:"><title>stage</title>
<style>
  :root { THEME --st-font: "Source Sans", sans-serif; --st-code-font: monospace }
  body { margin: 0; background: var(--st-background-color); color: var(--st-text-color); font: 16px/1.6 var(--st-font) }
  .stMain { box-sizing: border-box; height: 100vh; overflow: auto; padding: 48px 24px 0; display: grid;
    grid-template-columns: minmax(0, 27fr) minmax(0, 73fr); gap: 32px; align-items: start; align-content: start }
  @media (max-width: 640px) { .stMain { grid-template-columns: minmax(0, 1fr) } }
</style>
<main class="stMain">
  <div><h2>Copy-on-write</h2><p id="heard">Python heard: None</p><p id="asks">The lens asks: None</p></div>
  <div id="stage"></div>
</main>
<script type="module">
  import mount from "/stage.js";
  const [css, given] = await Promise.all(["/stage.css", "/data.json"].map(async (of) => (await fetch(of)).text()));
  const parentElement = document.querySelector("#stage").attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = css;
  parentElement.append(style);
  let data = { ...JSON.parse(given), step: STEP };
  const draw = () => mount({ data, parentElement, setStateValue });
  async function setStateValue(name, value) {
    if (name === "at") document.querySelector("#heard").textContent = `Python heard: ${value.step}`;
    else {
      const { asks, lens } = await window.python(value);
      document.querySelector("#asks").textContent = `The lens asks: ${asks}`;
      data = { ...data, lens };
      draw();
    }
  }
  draw();
</script></html>"""


data_of = cache(stage_demo.case_data)


@cache
def files_of(case: str) -> dict[str, tuple[str, str]]:
    """What the page loads, by path, with its type."""
    return {
        "/stage.js": ("text/javascript", stage.javascript()),
        "/stage.css": ("text/css", stage.css()),
        "/data.json": ("application/json", json.dumps(data_of(case), ensure_ascii=False)),
    }


def open_case(page: Any, case: str, step: int, theme: str, answer: Answer = lens_answers.answer) -> None:
    """Open a case of `stage_demo`, at a step. `answer` is what Python answers to the lens, given the data and what it
    asks."""

    def python(asked: Data | None) -> Data:
        found = asked and {"asked": asked, "answer": answer(data_of(case), asked)}
        return {"asks": repr(asked), "lens": found}

    colours = "".join(f"--st-{name}: {colour}; " for name, colour in THEMES[theme].items())
    files = files_of(case) | {"/": ("text/html", PAGE.replace("THEME", colours).replace("STEP", str(step)))}

    def fulfil(route: Any) -> None:
        kind, body = files[route.request.url.removeprefix(ADDRESS)]
        route.fulfill(content_type=f"{kind}; charset=utf-8", body=body)

    page.expose_function("python", python)
    page.route(f"{ADDRESS}/**", fulfil)
    page.goto(f"{ADDRESS}/")
