from collections.abc import Iterator

from pagedviz.lesson import After, Page, Question, Run
from pagedviz.scenario.settings import CacheConfig

TITLE = "Growing and freeing"
CLAIM = "Blocks come one at a time and go back in a known order; nothing is ever moved to make room."
SEED = 5
CACHE = CacheConfig(num_blocks=10, host_blocks=0, scatter=True)

REFUSED = "D is refused, and nothing changes"
PARTLY = "D takes the free blocks and waits for the rest"
COMPACTED = "The others are moved together to make room"


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    run.add("A", "once upon a time there was")
    run.add("B", "in a hole" if run.random.random() < 0.5 else "in a deep hole")
    yield Page(
        "Nobody reserves",
        f"A and B share the pool. A has {len(run.state.block_tables['A'])} blocks for {run.state.seq_len('A')} tokens, B "
        f"has {len(run.state.block_tables['B'])} for {run.state.seq_len('B')}: as many as their prompts need. Nobody asked "
        "how long they will get: the next block is taken by the write that finds the last one full.",
        Question(
            "B writes five more words, one by one. How many blocks does it take?",
            answer=lambda after: sum(event.kind == "BlockAllocated" for event in after.events),
            explain=lambda after: (
                f"{after.after.seq_len('B')} tokens need ceil({after.after.seq_len('B')} / {size}) = "
                f"{len(after.after.block_tables['B'])} blocks, and it had {len(after.before.block_tables['B'])}."
            ),
            unit="blocks",
        ),
    )

    for word in ("there", "lived", "a", "small", "hobbit"):
        run.append("B", word)
    table = run.state.block_tables["A"]
    yield Page(
        "Freeing",
        f"A is finished now. Its table [{', '.join(map(str, table))}] is walked from the tail, and its blocks go **before "
        "the head** of the free queue, in that order. This is the rule of vLLM's first block manager; other engines have "
        "other rules, and the same rule gives the same ids here as there.",
        Question(
            "Which block id is then handed out next?",
            answer=lambda after: after.after.free_blocks[0],
            explain=lambda after: (
                f"The tail of the table, {after.before.block_tables['A'][-1]}, went back first and stands at the head. The "
                f"queue now begins {', '.join(map(str, after.after.free_blocks[:3]))}."
            ),
            unit="block id",
        ),
    )

    run.free("A")
    yield Page(
        "Stale",
        "A's slots are hatched again. A real engine leaves the old numbers where they are, because nobody will read them; "
        "here they are overwritten with NaN, so that reading them would be seen at once.\n\n"
        "The next sequence takes what was just freed.",
        Question(
            "C arrives with five words. Which block holds the fifth?",
            answer=lambda after: int(after.after.block_tables["C"][1] or 0),
            explain=lambda after: (
                f"The first four words fill block {after.after.block_tables['C'][0]}, and the fifth begins block "
                f"{after.after.block_tables['C'][1]}: first and second of the queue."
            ),
            unit="block id",
        ),
    )

    run.add("C", "call me Ishmael some years")
    free = len(run.state.free_blocks)
    words = size * free + 1 + run.random.randrange(size)
    yield Page(
        "Any block will do",
        f"{free} blocks are free, scattered over the pool. With one long piece of memory for each sequence, holes like "
        "these would be useless to a longer one: **external fragmentation**. Here any free block serves anybody, so "
        "there is nothing to tidy up and no block ever moves.",
        Question(
            f"D arrives with {words} words, which need {-(-words // size)} blocks, and {free} are free. What happens?",
            answer=_what_happened_to_d,
            explain=lambda after: (
                "A prompt gets all of its blocks or none. The refusal says what was needed and what was free, and the "
                f"queue still begins with {after.after.free_blocks[0]}."
            ),
            choices=(PARTLY, REFUSED, COMPACTED),
        ),
    )

    run.add("D", [f"w{i}" for i in range(words)])
    yield Page(
        "All or nothing",
        "D is told why, with the numbers, and the cache is exactly as it was: no block taken, none lost. What a serving "
        "engine does then is wait until somebody finishes, or move somebody out: see *Spill and reload*.",
    )


def _what_happened_to_d(after: After) -> str:
    return REFUSED if after.first("OperationRefused") and after.before == after.after else PARTLY
