from collections.abc import Iterator
from typing import Any

from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import Lens
from pagedviz.scenario.settings import CacheConfig

TITLE = "Attention through the table"
CLAIM = "The kernel walks the table block by block and gets what dense attention gives, within rounding."
SEED = 165  # A is in blocks 7, 2 and 5: the table is not in the order of the pool
CACHE = CacheConfig(num_blocks=10, scatter=True)

WORDS = "the cat sat on a mat and the dog lay by the door".split()
A, B = Lens("A", 0, 0), Lens("B", 0, 0)


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    first = run.random.choice([5, 6])  # another seed may give another length
    run.add("A", WORDS[:first])
    table = run.state.block_tables["A"]
    yield Page(
        "One query, many blocks",
        f"A has {first} tokens in blocks {' and '.join(map(str, table))}. The newest one asks its **query** of every key "
        "so far, its own included, and sums the values by how well the keys answer. Only K and V are cached: a query is "
        "used once.\n\n"
        "The kernel never sees A in one piece. It reads entry 0 of the table, loads that block's keys and values, then "
        "entry 1, and so on. One turn of its **loop** is one block here.",
        Question(
            f"Three more words come, one by one, and make {first + 3} tokens. How many turns does the loop then take for "
            "the newest one?",
            answer=lambda after: len(_turns(after)),
            explain=lambda after: (
                f"ceil({first + 3} / {size}) = {len(_turns(after))}. The kernel itself reported these turns, over blocks "
                f"{_blocks(after)}, one for each entry of the table. Entries past the end are never read."
            ),
            unit="turns",
            probe=A,
        ),
    )

    for word in WORDS[first : first + 3]:
        run.append("A", [word])
    yield Page(
        "Through the lens",
        "You need not believe that. Press **K**, or *Lens* under the stage: the kernel runs once more for A's newest token "
        "and writes down what each turn held. That is the **lens**.\n\n"
        "Step through the turns with J and L, and see a block light up when it is loaded. Watch the ids: are they in the "
        "order of the pool, or of the table?",
        Question(
            "One more word comes. Which physical block does the loop then load in its second turn?",
            answer=lambda after: int(_turns(after)[1]["block"]),
            explain=lambda after: (
                f"A's table is [{', '.join(map(str, after.after.block_tables['A']))}], and the turns loaded {_blocks(after)}: "
                "entry after entry, wherever in the pool that leads."
            ),
            unit="block id",
            probe=A,
        ),
    )

    run.append("A", WORDS[first + 3 : first + 4])
    filled = run.state.filled("A", len(run.state.block_tables["A"]) - 1)
    yield Page(
        "What is in the empty slots?",
        f"The last block holds {filled} of {size} tokens, yet the turn for it has {size} lanes, one a slot. What is in the "
        "other slots? Whatever was there before. Here it is **NaN**, put there on purpose: one NaN that slips in makes "
        "the whole output NaN, and the check beside the picture turns red.\n\n"
        "So the kernel **masks** such a lane twice: neither its key nor its value is loaded, because 0 × NaN is still "
        "NaN, and its *score* becomes minus infinity, so that it weighs nothing. The lens hatches masked lanes.",
        Question(
            "One more word is written. How many lanes of the last block are masked then?",
            answer=lambda after: _masked(after).count(True),
            explain=lambda after: (
                f"Of {after.after.seq_len('A')} tokens {after.after.seq_len('A') % size or size} lie in the last block, and the "
                f"kernel masked {_named([lane for lane, masked in enumerate(_masked(after)) if masked])} of 0 to {size - 1}."
            ),
            unit="lanes",
            probe=A,
        ),
    )

    run.append("A", WORDS[first + 4 : first + 5])
    yield Page(
        "A softmax over all blocks",
        "Does each block have a softmax of its own? No. The loop carries three numbers from block to block: the largest "
        "score so far **m**, the sum **l** of 2^(score − m), and the same sum weighted by the values. When a block brings "
        "a larger m, what was summed before is scaled down to it. The lens shows all three after each turn.\n\n"
        "Only after the last block is there one division by l. So the weights of *all* blocks together sum to 1, and no "
        "block's own weights do unless it is the only one: see *Attention weights* below the stage.",
        Question(
            "B arrives with a prompt of three words, and one launch serves both. How many turns does the loop take for B's "
            "newest token?",
            answer=lambda after: len(_turns(after)),
            explain=lambda after: (
                f"B's 3 tokens are in one block, {_blocks(after)}, so its weights do sum to 1. A's "
                f"{len(after.after.block_tables['A'])} entries are read in the same launch, by other programs."
            ),
            unit="turns",
            probe=B,
        ),
    )

    run.add("B", "hello over there")
    yield Page(
        "Is it exact?",
        "The numbers at the right compare the kernel with dense attention in float64, over a plain log of every key and "
        "value that knows nothing of blocks. They differ by **rounding** only: the kernel adds in another order, in "
        "float32. The tolerance is 1e-5, in every layer, for every sequence, after every step.\n\n"
        "In the last step each of B's words asked of itself and of the words before it, and A's newest word asked too: "
        "**prefill** and **decode** in one launch, every row of it compared.",
    )


def _turns(after: After) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = after.found["splits"][0]["turns"]
    return turns


def _blocks(after: After) -> str:
    return ", ".join(str(turn["block"]) for turn in _turns(after))


def _masked(after: After) -> list[bool]:
    """The lanes of the last block that attended to no position."""
    return [position is None for position in _turns(after)[-1]["positions"][: after.after.block_size]]


def _named(lanes: list[int]) -> str:
    if not lanes:
        return "no lane"
    return f"lane{'s' if len(lanes) > 1 else ''} {', '.join(map(str, lanes))}"
