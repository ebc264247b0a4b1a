from collections.abc import Iterator

from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import Bandwidth, BlockSizes
from pagedviz.scenario.settings import CacheConfig

TITLE = "Which block size?"
CLAIM = "Larger blocks waste more slots and share less of a prefix; smaller ones need more table entries."
SEED = 2
CACHE = CacheConfig(num_blocks=28, host_blocks=0, num_layers=1, scatter=True)

SIZES = (1, 2, 4, 8, 16)
PAIR = ("A", "C")
WORDS = (
    "we hold these truths to be self evident that all men are created equal that they are endowed by their creator with"
).split()


def lesson(run: Run) -> Iterator[Page]:
    slots = run.cache.num_blocks * run.cache.block_size
    common = run.random.choice([13, 14, 15, 20, 21, 22])  # tokens with which both A and C begin
    run.add("A", [*WORDS[:common], "certain"])
    run.add("B", "call me Ishmael")
    yield Page(
        "One pool, cut another way",
        f"The pool has {slots} slots. Here they are {run.cache.num_blocks} blocks of {run.cache.block_size}, and could as "
        f"well be {slots // 16} blocks of 16. The same requests would then have other tables.\n\n"
        f"A has {run.state.seq_len('A')} tokens and B {run.state.seq_len('B')}. What is empty in a sequence's last block is "
        "**wasted**: nobody else may use it.\n\n"
        "To grade what you predict, the whole run is played again with the other block size, by the same kernels.",
        Question(
            "B writes one more word. How many slots do A and B waste together, with blocks of 4?",
            answer=lambda after: int(_row(after)["wasted"]),
            explain=lambda after: _wasted(after),
            unit="slots",
            probe=BlockSizes((4,), ("A", "B")),
        ),
    )

    run.append("B", ["some"])
    yield Page(
        "Blocks of 16",
        f"Now the same two sequences with blocks of 16, in a pool of {slots // 16} blocks. On the stage the blocks stay as "
        "they are.",
        Question(
            "B writes one more word. How many slots do A and B waste together, with blocks of 16?",
            answer=lambda after: int(_row(after)["wasted"]),
            explain=lambda after: (
                f"{_wasted(after)} On average a sequence wastes about half a block, so four times the block wastes about "
                "four times the slots."
            ),
            unit="slots",
            probe=BlockSizes((16,), ("A", "B")),
        ),
    )

    run.append("B", ["years"])
    yield Page(
        "A common prefix",
        f"C arrives next, and its first {common} words are A's. An engine may find such a **prefix** in its cache and not "
        "compute it again. It looks for whole blocks only: those that both sequences have full, from the first on, with "
        "equal tokens.\n\n"
        "That cache is the lesson *Prefix caching*; here every word is computed, and we count what it could have found.",
        Question(
            "C arrives. How many of its tokens lie in full blocks equal to A's, with blocks of 4?",
            answer=lambda after: int(_row(after)["hit"]),
            explain=lambda after: _hit(after, common),
            unit="tokens",
            probe=BlockSizes((4,), PAIR),
        ),
    )

    run.add("C", [*WORDS[:common], "and", "more"])
    yield Page(
        "The same prefix in blocks of 16",
        f"With blocks of 4 the {common} common words make {common // 4} full blocks, with {common % 4} left over. An "
        "engine finds a block by its **hash**, a number made of all tokens up to its end; only a full block gets one.",
        Question(
            "C writes one more word. How many of its tokens lie in full blocks equal to A's, with blocks of 16?",
            answer=lambda after: int(_row(after)["hit"]),
            explain=lambda after: _hit(after, common),
            unit="tokens",
            probe=BlockSizes((16,), PAIR),
        ),
    )

    run.append("C", ["words"])
    yield Page(
        "What a copy costs",
        "D is forked from A and writes a word. A's last block is full or not, depending on the block size; if it is not, "
        "it is copied first, whole.",
        Question(
            "How many bytes are copied, with blocks of 16? A slot takes "
            f"{run.cache.bytes_per_block // run.cache.block_size} bytes of K and V.",
            answer=lambda after: int(_row(after)["bytes_copied"]),
            explain=lambda after: _copied(after, run.cache.bytes_per_block // run.cache.block_size),
            unit="bytes",
            probe=BlockSizes((16,), PAIR),
        ),
    )

    run.fork("A", "D")
    run.append("D", ["unlike"])
    yield Page(
        "All of it by block size",
        "Below is the whole run at five block sizes. With the block, wasted slots tend to grow and what a prefix could "
        "have hit shrinks; table entries shrink, and with them what the kernel must look up. All of them attend to the same "
        "tokens, and give what dense attention gives.\n\n"
        "A block of 1 wastes nothing and finds every prefix. So why not always 1? One more number is missing.",
        shows=BlockSizes(SIZES, PAIR),
    )

    run.append("D", ["others"])
    yield Page(
        "Does the kernel mind?",
        "A kernel reads a block's K and V as one piece of memory, and pieces that are too short make a memory slow: that is "
        "**bandwidth**, the bytes read in a second. Below is what was measured, and on which GPU. Read off how much each "
        "kernel loses, and at which block sizes.\n\n"
        "vLLM takes blocks of 16 unless told otherwise; some kernels need 64 or more.",
        shows=Bandwidth(),
    )


def _row(after: After) -> dict[str, int]:
    row: dict[str, int] = after.found["rows"][0]
    return row


def _wasted(after: After) -> str:
    size = _row(after)["block_size"]
    lengths = {seq_id: len(tokens) for seq_id, tokens in after.after.tokens.items()}
    each = {seq_id: -(-length // size) * size - length for seq_id, length in lengths.items()}
    told = ", ".join(f"{each[s]} behind {s}'s {lengths[s]} tokens" for s in lengths)
    return f"{told}: {' + '.join(str(n) for n in each.values())} = {_row(after)['wasted']}."


def _hit(after: After, common: int) -> str:
    size, hit = _row(after)["block_size"], _row(after)["hit"]
    return (
        f"The {common} common words fill {common // size} whole block{'s' if common // size != 1 else ''} of {size}: "
        f"{common // size} × {size} = {hit}. What is left over, {common - hit}, would be computed again."
    )


def _copied(after: After, slot_bytes: int) -> str:
    length, copied = after.after.seq_len("A"), _row(after)["bytes_copied"]
    if not copied:
        return f"A's {length} tokens fill their last block of 16, so D's word opens a new one, and nothing is copied."
    return (
        f"A's {length} tokens leave {length % 16} in a last block of 16. It is copied whole, its {16 - length % 16} empty "
        f"slots with it: 16 × {slot_bytes} = {copied}."
    )
