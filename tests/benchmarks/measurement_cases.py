"""Made-up measurements for the tests of what reads them. The numbers are chosen to be told apart, nothing measured."""

from pagedviz.measurements import OURS, Measurements, Row

MACHINE = {"gpu": "Some GPU", "driver": "1.2", "torch": "2.0", "triton": "3.0", "python": "3.12", "date": "2026-01-02"}


def row(case: str, who: str = OURS, rate: float = 100.0, **more: object) -> Row:
    given = {"table": "decode", "unit": "GB/s", "block_size": 16, "head_dim": 128, "dtype": "bfloat16"}
    given |= {"kv_dtype": "bfloat16", "microseconds": 5.0, "rate": rate, "error": 1e-3, "timed": "graph"}
    return Row(case=case, who=who, **(given | more))  # type: ignore[arg-type]


def absent(case: str, who: str, reason: str) -> Row:
    return row(case, who, None, microseconds=None, error=None, timed="", reason=reason)  # type: ignore[arg-type]


def measurements(*rows: Row) -> Measurements:
    return Measurements(MACHINE, {"Other": "7.1"}, {"copy": 900.0, "read": 1000.0}, rows)
