"""The stage's replay is the engine's: after every event of real runs it knows just what the engine's snapshot says."""

from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from tests.browser import serving_cases, stage_demo  # noqa: E402
from tests.browser.replay_check import call, expected, replayed  # noqa: E402
from tests.run import run_cases  # noqa: E402

NEW = {
    "window": {"PrefixSkipped", "BlockOutOfWindow"},
    "window-v0": {"NullBlockTaken", "SequenceForked", "BlockOutOfWindow"},
    "groups": {"PrefixSkipped", "BlockOutOfWindow", "BlockHit", "BlockFreed"},
    "groups-served": {"BlockOutOfWindow", "BatchWritten"},
    "drafts": {"TokensDrafted", "DraftsVerified"},
    "drafts-groups": {"TokensDrafted", "DraftsVerified", "BlockOutOfWindow", "BlockFreed"},
    "speculation": {"TokensDrafted", "DraftsDropped", "DraftsVerified", "TokensSampled"},
    "tier": {"TierStoreFailed", "TierLoadAborted", "TierLoadFinished", "BlockLoaded", "TierTouched"},
    "tier-served": {"TierStoreBegun", "TierStoreFinished", "TierLoadBegun", "RequestWaits", "BlockLoaded"},
    "beams": {"BeamsChosen", "SequenceForked", "BlockCopied"},
    "samples": {"RequestForked", "RequestPreempted", "BlockCopied"},
}


def compare(browser: Any, base: Any, happenings: list[Any]) -> None:
    seen = replayed(browser, base, [happening.event for happening in happenings])
    states = [base, *(happening.snapshot for happening in happenings)]
    for step, (shown, snapshot) in enumerate(zip(seen, states, strict=True)):
        assert shown == expected(snapshot), f"step {step}: {happenings[step - 1].event if step else 'the start'}"


@pytest.mark.parametrize("name", serving_cases.CASES)
def test_what_a_server_has_is_replayed(browser: Any, name: str) -> None:
    player, happenings = serving_cases.played(name)
    assert {happening.event.kind for happening in happenings} >= NEW[name]
    assert not any(happening.refused for happening in happenings)
    compare(browser, player.base, happenings)


@pytest.mark.parametrize("name", stage_demo.SERVED)
def test_requests_are_replayed(browser: Any, name: str) -> None:
    scenario = stage_demo.scenario_of(name)
    player, happenings = stage_demo.play(scenario.cache, scenario.ops)
    compare(browser, player.base, happenings)


def test_runs_in_which_every_event_happens_are_replayed(browser: Any) -> None:
    for run in run_cases.RUNS:
        happenings = run_cases.happenings(run)
        compare(browser, happenings[0].before, happenings)


def test_a_link_names_device_blocks_host_blocks_and_chunks(browser: Any) -> None:
    imports = 'import { endsOf, entryOf } from "./state/entries.js";'
    assert call(browser, imports, "(link) => endsOf(link).map(entryOf)", "d7 h2 c3") == [7, -3, None]


def test_a_snapshot_in_the_middle_is_as_good_a_start(browser: Any) -> None:
    for name in ("speculation", "tier-served", "beams"):
        _, happenings = serving_cases.played(name)
        middle = len(happenings) // 2
        compare(browser, happenings[middle].snapshot, happenings[middle + 1 :])
