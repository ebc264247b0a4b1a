"""Measurements come back as they were written, say where they are from, and a bad file is one sentence."""

import json

import pytest

from benchmarks import readme
from pagedviz import measurements
from pagedviz.measurements import BadMeasurements, load, parse, text_table
from tests.benchmarks.measurement_cases import absent, row
from tests.benchmarks.measurement_cases import measurements as made

SOME = made(
    row("A"), row("A", "Other", 80.0, microseconds=4.0), absent("B", "Other", "has no B"), row("B", rate=7.0, error=0.0)
)


def test_what_was_written_is_read_again():
    assert parse(SOME.to_text(), "some.json") == SOME


@pytest.mark.skipif(not measurements.RECORDED.exists(), reason="nothing has been recorded yet")
def test_what_is_recorded_has_this_projects_numbers_in_every_case_and_stands_in_the_readme():
    recorded = load(measurements.RECORDED)
    assert {row.table for row in recorded.rows} >= {"decode", "block size"}
    for name in measurements.TABLES:
        rows = recorded.table(name)
        assert {row.case for row in rows} == {row.case for row in rows if row.who == measurements.OURS and row.rate}
    text = readme.README.read_text(encoding="utf-8")
    assert readme.written(text, recorded) == text


def test_block_of_the_readme_replaces_what_stood_between_its_marks():
    text = readme.written(f"a{readme.BEGIN}old{readme.END}z", SOME)
    assert text.startswith(
        f"a{readme.BEGIN}\n\nRecorded on one Some GPU, 2026-01-02: driver 1.2, torch 2.0, triton 3.0."
    )
    assert "| A | 5.0 µs, 100 GB/s | **4.0 µs (0.80×), 80 GB/s** |\n| B | 5.0 µs, 7 GB/s | – |" in text
    assert text.endswith(f"{readme.END}z")
    assert "old" not in text
    assert readme.written(text, SOME) == text


def test_label_says_where_and_when(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(measurements, "RECORDED", tmp_path / "recorded.json")
    measurements.RECORDED.write_text(SOME.to_text(), encoding="utf-8")
    assert load().label == (
        "Recorded on one Some GPU, 2026-01-02; this machine's GPU has not been measured: make bench"
    )
    measurements.MEASURED.write_text(SOME.to_text().replace("Some GPU", "My GPU"), encoding="utf-8")
    assert load().label == "Measured on this machine: My GPU, 2026-01-02"


def changed(**keys):
    return json.dumps(json.loads(SOME.to_text()) | keys)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "some.json is not JSON: Expecting property name"),
        ("[]", "some.json has version None, and this reads version 1"),
        (changed(pagedviz_benchmark=2), "some.json has version 2, and this reads version 1"),
        (changed(machine={}), "some.json does not hold what version 1 holds (KeyError: 'gpu')"),
        (changed(ceilings={"copy": 1, "read": "fast"}), "some.json does not hold what version 1 holds (ValueError"),
        (changed(rows=[{"table": "decode"}]), "some.json does not hold what version 1 holds (TypeError"),
        (SOME.to_text().replace('"rate": 7.0', '"rate": -7.0'), "pagedviz has neither numbers nor a reason in B"),
        (SOME.to_text().replace('"reason": "has no B"', '"rate": 1.0'), "Other has neither numbers nor a reason in B"),
        (SOME.to_text().replace('"decode"', '"nosuch"'), "there is no table 'nosuch'"),
    ],
)
def test_a_bad_file_is_one_sentence(text, sentence):
    with pytest.raises(BadMeasurements) as raised:
        parse(text, "some.json")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(BadMeasurements, match="Nothing has been recorded in none"):
        load(tmp_path / "none.json")


def test_order_of_cases_and_contestants_is_the_rows():
    assert measurements.cases(SOME.rows) == ["A", "B"]
    assert measurements.contestants(SOME.rows) == ["pagedviz", "Other"]
    assert row("GQA 8 × 8k, block_size 16").shape == "GQA 8 × 8k"


def test_table_has_ratios_to_this_project_the_fastest_in_bold_and_no_column_for_who_ran_nothing():
    rows = [row("A", rate=200.0), row("A", "Other", 80.0, microseconds=12.5), absent("A", "Third", "not installed")]
    assert text_table([*rows, absent("B", "Other", "has no B"), row("B", rate=7.0)]) == [
        ["case", "pagedviz", "Other"],
        ["A", "**5.0 µs, 200 GB/s**", "12.5 µs (2.50×), 80 GB/s"],
        ["B", "5.0 µs, 7 GB/s", "–"],
    ]
