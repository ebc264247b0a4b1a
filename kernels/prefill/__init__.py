"""Attention from many new tokens of a sequence at once.

`paged_prefill.py` says what it computes and launches; `plan.py` says how the work is cut, `work.py` lists the pieces.
Two kernels share `piece.py` (a piece's rows) and `tile.py` (one step of the online softmax): `kernel.py` fetches keys
and values slot by slot (`slots.py`), `descriptor_kernel.py` fetches whole boxes of a block (`descriptors.py`).
"""
