"""The tolerance of a verdict, and how much of a sequence is shown: judge, runner and probes share both.

A run computes in float32. The tests' table of tolerances by dtype is in `tests/kernel_cases.py`.
"""

TOLERANCE = 1e-5  # float32: largest |paged - dense| that passes
MAX_SHOWN_BLOCKS = 64  # of a sequence whose weights and turns are shown: each turn takes the interpreter milliseconds
