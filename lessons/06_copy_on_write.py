from collections.abc import Iterator

from pagedviz.lesson import After, Page, Question, Run
from pagedviz.scenario.settings import CacheConfig

TITLE = "Copy-on-write"
CLAIM = "A fork shares every block; the first to write into a shared one copies it, the last writes in place."
SEED = 1784  # 7, 1 and 3 are handed out first: the two samples of the PagedAttention paper
CACHE = CacheConfig(scatter=True)


def lesson(run: Run) -> Iterator[Page]:
    run.add("A", "Four score and seven years ago our")
    table = run.state.block_tables["A"]
    yield Page(
        "Two continuations of one prompt",
        f"A's prompt is in blocks {table[0]} and {table[1]}, computed in one launch. Someone wants a second answer to it. "
        "The keys and values of the prompt are the same for both, so nobody computes them again: B is **forked** from A, "
        "and starts with the same table.",
        Question(
            "How many blocks does the fork take from the free queue?",
            answer=lambda after: len(after.before.free_blocks) - len(after.after.free_blocks),
            explain=lambda after: (
                f"None. B's table is [{', '.join(map(str, after.after.block_tables['B']))}], A's own blocks; only their "
                "ref_count rose to 2, and the free queue is as it was."
            ),
            unit="blocks",
        ),
    )

    run.fork("A", "B")
    copies, in_place = f"B copies block {table[1]} and writes into the copy", f"B writes into block {table[1]}"
    yield Page(
        "Shared",
        f"Blocks {table[0]} and {table[1]} carry a ×2 now. Their **ref_count** is the number of table entries that name "
        f"them. Block {table[1]} has a slot left, the dashed one, and both sequences would write their next word there.",
        Question(
            "B writes its eighth word, “mothers”. What happens?",
            answer=lambda after: copies if after.first("BlockCopied") else in_place,
            explain=lambda after: (
                f"Had B written into block {table[1]}, A would read B's word as its own. So B took block "
                f"{after.first('BlockCopied').target}, the head of the free queue, and copied "
                f"{after.first('BlockCopied').num_slots} filled slots into it."
            ),
            choices=(in_place, copies, f"B takes an empty block and leaves block {table[1]} to A"),
        ),
    )

    run.append("B", "mothers")
    own = run.state.block_tables["B"][1]
    again, here, there = "A copies a block too", f"A writes into block {table[1]}", f"A writes into block {own}"
    yield Page(
        "Copy-on-write",
        f"It went in four steps: the write was stopped, block {table[1]} was copied to block {own}, B's table entry was "
        f"re-pointed from {table[1]} to {own}, and then B wrote. A's table did not change, nor did a byte of what A "
        f"reads. Block {table[0]} is still shared: nobody writes into a full block.",
        Question(
            "A writes its eighth word, “fathers”. What happens?",
            answer=lambda after: _who_wrote(after, table[1], again, here, there),
            explain=lambda after: (
                f"The ref_count of block {table[1]} had fallen to {after.before.ref_counts[int(table[1] or 0)]}: only A "
                "names it, so A writes in place. The last sharer never copies."
            ),
            choices=(again, here, there),
        ),
    )

    run.append("A", "fathers")
    yield Page(
        "At a block boundary",
        "Both have eight words now, and all of their blocks are full. C is forked from A and writes the ninth word.",
        Question(
            "How many blocks are copied?",
            answer=lambda after: sum(event.kind == "BlockCopied" for event in after.events),
            explain=lambda after: (
                f"None. C's ninth word opens logical block 2, and that is a new block, "
                f"{after.first('BlockAllocated').block}. A copy is needed only for a partly filled shared block."
            ),
            unit="blocks",
        ),
    )

    run.fork("A", "C")
    run.append("C", "brought")
    used = len(run.state.ref_counts)
    unshared = sum(len(row) for row in run.state.block_tables.values())
    yield Page(
        "What sharing saves",
        f"Three sequences with {unshared} table entries use {used} blocks. Without sharing they would use {unshared}.\n\n"
        "This is how the paper and vLLM's first engine serve several samples of one prompt. Its present engine, V1, has "
        "no fork: it shares only full blocks, found by their content, so nobody ever writes into a shared block.",
    )


def _who_wrote(after: After, block: int | None, again: str, here: str, there: str) -> str:
    if after.first("BlockCopied"):
        return again
    return here if after.first("TokenWritten").block == block else there
