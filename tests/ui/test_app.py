"""The pages without a browser: what they say, and that no press of a button ends in an error."""

import re
import time
from html import unescape
from pathlib import Path

import pytest

testing = pytest.importorskip("streamlit.testing.v1", reason="streamlit is not installed")

from pagedviz import lesson, measurements  # noqa: E402
from pagedviz.engine.policies.limits import Speculation  # noqa: E402
from pagedviz.ui import address  # noqa: E402
from tests.benchmarks.measurement_cases import absent, row  # noqa: E402
from tests.benchmarks.measurement_cases import measurements as made  # noqa: E402

pytestmark = pytest.mark.slow

APP = Path(__file__).parents[2] / "app.py"


def shown(**query: str):
    app = testing.AppTest.from_file(str(APP), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def press(app, label):
    next(button for button in app.button if button.label == label).click()
    app.run()
    assert not app.exception


def held(app):
    """The scenario that the address holds."""
    word = app.query_params["scenario"]
    return address.decode(word if isinstance(word, str) else word[0])


def verbs(app):
    return [next(iter(op)) for op in held(app).to_json()["ops"]]


def typed(app, key, text):
    app.text_input(key=key).set_value(text)


def test_first_screen_says_what_it_is():
    assert [heading.value for heading in shown().subheader] == ["Watch a token find its block"]


@pytest.mark.parametrize("name", lesson.names())
def test_lesson_opens_on_its_first_page(name):
    app = shown(lesson=name)
    assert [heading.value for heading in app.subheader] == [lesson.load(name).pages[0].page.title]


@pytest.mark.parametrize("query", [{"lesson": "../../etc/passwd"}, {"page": "nosuch"}, {"lesson": ""}])
def test_an_address_that_leads_nowhere_shows_the_first_screen_and_says_so(query):
    app = shown(**query)
    assert app.info[0].value.startswith("There is no ")
    assert app.subheader[0].value == "Watch a token find its block"


@pytest.mark.parametrize("seed", ["-1", "abc", "99999999999", "1e3", "٣"])
def test_a_seed_that_makes_no_sense_gives_the_lessons_own(seed):
    app = shown(lesson="02_block_table", seed=seed, step="999")
    assert app.subheader[0].value == lesson.load("02_block_table").pages[0].page.title


def test_a_prediction_left_empty_is_asked_for_again():
    app = shown(lesson="02_block_table")
    press(app, "Check")
    assert "Enter a prediction first, or skip." in [caption.value for caption in app.caption]


@pytest.mark.parametrize(("given", "verdict"), [(2, "success"), (3, "warning")])
def test_a_prediction_is_graded(given, verdict):
    app = shown(lesson="02_block_table")
    app.number_input[0].set_value(given)
    press(app, "Check")
    assert len(getattr(app, verdict)) == 1


@pytest.mark.parametrize(("given", "verdict"), [(2, "success"), (5, "warning")])
def test_a_prediction_is_graded_by_what_the_kernel_reports(given, verdict):
    app = shown(lesson="03_attention_through_the_table")
    app.number_input[0].set_value(given)
    press(app, "Check")
    asking = time.monotonic() + 60
    while any("is being asked" in info.value for info in app.info) and time.monotonic() < asking:
        time.sleep(0.2)
        app.run()
    (said,) = getattr(app, verdict)
    assert "The kernel itself reported these turns, over blocks 7, 2" in said.value


def below(app):
    """What stands below the stage, once the compute process has answered."""
    asking = time.monotonic() + 60
    while any("is being asked" in caption.value for caption in app.caption) and time.monotonic() < asking:
        time.sleep(0.2)
        app.run()
    return spoken(app)


@pytest.mark.parametrize(("name", "follows"), [("09_radix_and_blocks", True), ("21_inside_the_worker", False)])
def test_what_is_shown_below_is_of_the_stages_step_only_where_the_page_says_so(name, follows):
    """Both pages last for steps that change the answer."""
    taught = lesson.load(name)
    placed = next(placed for placed in taught.pages if placed.page.shows)
    assert placed.page.shows.follows == follows
    at_first = below(shown(lesson=name, step=str(placed.step)))
    assert (below(shown(lesson=name, step=str(placed.graded_at - 1))) != at_first) == follows


def test_your_own_run_grows_by_each_button_and_undo_takes_each_back():
    app = shown(page="sequences")
    app.text_input(key="sandbox-more").set_value("fathers")
    press(app, "Append")
    press(app, "Generate 1")
    press(app, "Fork")
    press(app, "Free")
    assert verbs(app) == ["add", "append", "generate", "fork", "free"]
    for left in range(4, 1, -1):
        press(app, "Undo")
        assert len(verbs(app)) == left


@pytest.mark.parametrize(
    ("button", "sentence"),
    [
        ("Append", "Refused: the text is"),
        ("Add", "Refused: the prompt is"),
        ("Reload", "Refused: All blocks of A are on the device already, so there is nothing to reload."),
    ],
)
def test_a_refusal_is_a_sentence_and_changes_nothing(button, sentence):
    app = shown(page="sequences")
    press(app, button)
    assert app.warning[0].value.startswith(sentence)
    assert "scenario" not in app.query_params


def test_heads_that_do_not_divide_are_refused_and_another_cache_plays_the_same_operations():
    app = shown(page="sequences")
    heads = {box.label: box for box in app.number_input}
    heads["num_kv_heads (1 to 8)"].set_value(3)
    press(app, "Apply")
    assert "cache.num_heads is 2 and cache.num_kv_heads is 3" in app.warning[0].value
    heads = {box.label: box for box in app.number_input}
    heads["num_kv_heads (1 to 8)"].set_value(1)
    heads["block_size, tokens (1 to 256)"].set_value(2)
    press(app, "Apply")
    assert held(app).cache.block_size == 2


def spoken(app):
    """All that a page says in Markdown and HTML, tags and unbreakable spaces aside."""
    said = [each.value for each in app.markdown] + [each.proto.body for each in app.get("html")]
    return unescape(re.sub(r"<[^>]+>", "|", "\n".join(said))).replace("\u00a0", " ")


def test_speed_says_where_it_was_measured_shows_every_number_as_text_and_why_one_is_missing(monkeypatch, tmp_path):
    sweep = [row("GQA, block_size 8", rate=123.0, table="block size", block_size=8)]
    found = made(row("A", rate=4321.0), row("A", "Other", 8.0), absent("A", "Third", "not installed"), *sweep)
    monkeypatch.setattr(measurements, "MEASURED", tmp_path / "measured.json")
    measurements.MEASURED.write_text(found.to_text(), encoding="utf-8")
    app = shown(page="speed")
    said = spoken(app)
    for wanted in ("**Measured on this machine: Some GPU, 2026-01-02.**", "`make bench`", "4,321 GB/s", "123 GB/s"):
        assert wanted in said
    assert "5.0 µs (1.00×), 8 GB/s" in said
    assert "Third, every case: not installed." in app.caption[0].value


def test_measurements_that_cannot_be_read_are_a_sentence_and_the_recorded_ones_are_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(measurements, "RECORDED", tmp_path / "recorded.json")
    measurements.MEASURED.write_text('{"pagedviz_benchmark": 99}', encoding="utf-8")
    measurements.RECORDED.write_text(made(row("A")).to_text(), encoding="utf-8")
    app = shown(page="speed")
    assert app.warning[0].value == "measured.json has version 99, and this reads version 1; make bench writes it anew."
    assert "**Recorded on one Some GPU" in spoken(app)


def test_where_nothing_was_measured_one_sentence_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(measurements, "RECORDED", tmp_path / "recorded.json")
    app = shown(page="speed")
    assert [each.value.split(";")[0] for each in app.warning] == ["Nothing has been recorded in recorded.json yet"]


def test_requests_are_submitted_served_and_aborted():
    app = shown(page="sequences")
    typed(app, "sandbox-request-prompt", "it was the best of times")
    press(app, "Submit")
    typed(app, "sandbox-request-prompt", "it was the worst")
    press(app, "Submit")
    press(app, "1 engine step")
    app.radio(key="sandbox-request").set_value("C")
    app.run()
    press(app, "Abort")
    press(app, "10 engine steps")
    assert held(app).to_json()["ops"][1:] == [
        {"submit": "B", "tokens": "it was the best of times".split(), "max_tokens": 4},
        {"submit": "C", "tokens": "it was the worst".split(), "max_tokens": 4},
        {"step": 1},
        {"abort": "C"},
        {"step": 10},
    ]
    assert "10 engine steps" not in [button.label for button in app.button]  # nothing is left to serve


def test_the_text_is_that_of_the_run_even_where_python_hashes_two_runs_alike():
    app = shown(page="sequences")
    typed(app, "sandbox-request-prompt", "it was")
    app.number_input(key="sandbox-request-priority").set_value(-1)
    press(app, "Submit")
    app.text_area[0].set_value(held(app).to_text().replace('"priority": -1', '"priority": -2'))
    press(app, "Run this text")
    assert app.text_area[0].value == held(app).to_text()
    press(app, "Undo")
    assert app.text_area[0].value == held(app).to_text()


def test_a_request_that_can_never_fit_is_refused_in_a_sentence_and_its_text_stays():
    app = shown(page="sequences")
    typed(app, "sandbox-request-prompt", "word " * 60)
    press(app, "Submit")
    assert "B needs 16 blocks by itself, and the whole device pool has 12" in app.warning[0].value
    assert app.text_input(key="sandbox-request-prompt").value == "word " * 60
    assert "scenario" not in app.query_params


def test_each_policy_can_be_swapped_for_another_and_back():
    app = shown(page="sequences")

    def choose(kind, name):
        next(box for box in app.selectbox if box.label == kind).set_value(name)
        press(app, "Apply")

    choose("victim", "fewest_outputs")
    choose("preemption", "swap")
    assert held(app).cache.policies == (("preemption", "swap"), ("victim", "fewest_outputs"))
    choose("victim", "as the profile")
    assert held(app).cache.policies == (("preemption", "swap"),)
    choose("publish", "when_scheduled")
    assert "duplicates is collapsed and publish is when_scheduled" in app.warning[0].value
    assert held(app).cache.policies == (("preemption", "swap"),)


def chosen(app, label, value):
    """Set the one field of this label."""
    (field,) = [
        box for box in (*app.number_input, *app.text_input, *app.selectbox, *app.checkbox) if box.label == label
    ]
    field.set_value(value)


def labels(app):
    return [button.label for button in app.button]


def test_windows_groups_and_drafts_for_requests_are_settings_and_a_wrong_group_is_a_sentence():
    app = shown(page="sequences")
    chosen(app, "window, tokens (0 for all, to 1,024)", 6)
    chosen(app, "num_drafts (0 to 8)", 2)
    chosen(app, "min_confidence (0 to 1)", 0.25)
    press(app, "Apply")
    assert (held(app).cache.window, held(app).cache.speculation) == (6, Speculation(2, 0.25))
    chosen(app, "window, tokens (0 for all, to 1,024)", 0)
    chosen(app, "groups, a window each", "none; 8")
    press(app, "Apply")
    assert 'the groups are "none; 8"; they must be windows with commas between, like “none, 8”' in app.warning[0].value
    assert held(app).cache.window == 6
    chosen(app, "groups, a window each", "None, 8")
    chosen(app, "Profile", "vllm-v1")
    press(app, "Apply")
    assert (held(app).cache.windows, held(app).cache.profile) == ((None, 8), "vllm-v1")
    assert next(box for box in app.text_input if box.label == "groups, a window each").value == "none, 8"


def test_tokens_are_drafted_by_the_drafter_or_typed_and_then_verified():
    app = shown(page="sequences")
    chosen(app, "drafts", 2)
    press(app, "Draft")
    assert "Draft" not in labels(app)
    press(app, "Append")
    assert app.warning[0].value.startswith("Refused: the text is")
    press(app, "Verify")
    assert "Verify" not in labels(app)
    typed(app, "sandbox-drafts", "never said")
    press(app, "Draft")
    assert "Drafted for A: “never said”" in [caption.value for caption in app.caption]
    press(app, "Verify")
    assert held(app).to_json()["ops"][1:] == [
        {"draft": "A", "tokens": 2},
        {"verify": "A"},
        {"draft": "A", "tokens": ["never", "said"]},
        {"verify": "A"},
    ]


def test_blocks_go_to_the_host_tier_and_come_back_and_each_transfer_ends_as_it_is_told():
    app = shown(page="sequences")
    assert any("give it *host_chunks* under" in caption.value for caption in app.caption)
    assert {"Store A", "Load"}.isdisjoint(labels(app))
    chosen(app, "Cache prefixes", True)
    chosen(app, "host_chunks (0 to 8,192)", 4)
    chosen(app, "block_size, tokens (1 to 256)", 2)
    chosen(app, "num_blocks, device (1 to 8,192)", 4)
    press(app, "Apply")
    assert not any("host_chunks" in caption.value for caption in app.caption)
    assert "Finish" not in labels(app)
    press(app, "Store A")
    assert "Transfer 1: 3 blocks to the host" in [caption.value for caption in app.caption]
    press(app, "Fail")
    press(app, "Store A")
    press(app, "Finish")
    press(app, "Free")
    typed(app, "sandbox-prompt", "1 2 3 4 5 6 7 8")
    press(app, "Add")
    press(app, "Free")
    typed(app, "sandbox-load", "Four score and seven years")
    press(app, "Load")
    assert "Transfer 3: 2 blocks from the host" in [caption.value for caption in app.caption]
    press(app, "Cancel")
    assert {"Finish", "Fail", "Cancel"}.isdisjoint(labels(app))
    ended = [op for op in held(app).to_json()["ops"] if set(op) & {"store", "load", "finish", "fail", "cancel"}]
    prompt = "Four score and seven years".split()
    assert ended == [{"store": "A"}, {"fail": 1}, {"store": "A"}, {"finish": 2}, {"load": prompt}, {"cancel": 3}]


def test_a_request_with_several_beams_shows_as_one_and_only_where_its_profile_forks():
    app = shown(page="sequences")
    press(app, "Free")
    typed(app, "sandbox-request-prompt", "it was the best of times")
    chosen(app, "beams", 2)
    press(app, "Submit")
    press(app, "1 engine step")
    assert held(app).to_json()["ops"][-2]["beams"] == 2
    assert app.number_input(key="sandbox-request-beams").value == 1
    assert [radio.options for radio in app.radio if radio.label in ("Sequence", "Request")] == [["B"]]
    assert "Draft" not in labels(app)
    chosen(app, "Profile", "vllm-v1")
    press(app, "Apply")
    assert "beams" not in [box.label for box in app.number_input]
    assert any(caption.value.startswith("Samples and beams fork") for caption in app.caption)


def test_the_prefix_cache_is_reset_when_nobody_is_there():
    app = shown(page="sequences")
    app.checkbox(key=next(box.key for box in app.checkbox if box.label == "Cache prefixes")).set_value(True)
    press(app, "Apply")
    press(app, "Reset prefix cache")
    assert "Free every sequence first" in app.warning[0].value
    press(app, "Free")
    press(app, "Reset prefix cache")
    assert verbs(app) == ["add", "free", "reset_prefix_cache"]
    assert "Reset prefix cache" not in [button.label for button in app.button]
