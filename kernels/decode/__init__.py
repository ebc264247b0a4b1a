"""Attention from one new token per sequence, what is seen inside it, and one trick tried on it.

Read `minimal.py` first. Then the kernel that is fast and takes every option: `paged_decode.py` says what it computes,
`plan.py` how the work is cut, `launch_decode.py` launches `kernel.py`, whose loop is `tile.py`; `combine_splits.py`
joins programs that share a sequence, `widen.py` reads 8-bit numbers. Apart from them, `lens.py` lets the kernel report
each of its turns (`report_turn.py`), and `lazy_rescale.py` tries one trick.
"""
