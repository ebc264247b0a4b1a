from collections.abc import Iterable, Iterator
from typing import Any

from pagedviz.engine.log.events.blocks import BlockHit, TokenWritten
from pagedviz.engine.log.events.windows import BlockOutOfWindow, NullBlockTaken
from pagedviz.engine.log.snapshot import Snapshot, TableRow
from pagedviz.engine.log.text.sentences import count
from pagedviz.engine.policies.windows import below_window, first_seen
from pagedviz.lesson import After, Page, Question, Run, free_queue, listed
from pagedviz.probe import Launch, Lens
from pagedviz.scenario.settings import CacheConfig

TITLE = "Sliding window and groups"
CLAIM = "What no token to come will see is let go, so layers with a window stay small; they need a block table of their own."
SEED = 13
WINDOW = 8
CACHE = CacheConfig(
    num_blocks=16,
    host_blocks=0,
    groups=(None, WINDOW),  # layer 0 is group 0, layer 1 is group 1
    profile="vllm-v1",
    prefix_caching=True,
    scatter=True,
)

WORDS = (
    "call me Ishmael some years ago never mind how long precisely having little or no money in my purse and nothing "
    "particular to interest me on shore"
).split()
FAR = (40, 80)  # tokens of A's text, in runs beside the lesson
ROOM = 64  # blocks of the pools of these runs
OTHERS = "it was the best of times it was the worst".split()


def lesson(run: Run) -> Iterator[Page]:
    size, words = run.cache.block_size, iter(WORDS)
    prompt = run.random.choice([8, 9, 10])
    yield Page(
        "Two layers, two needs",
        "This model has two layers. In layer 0 a token attends to all before it: **full attention**. Layer 1 has a **sliding "
        f"window** of {WINDOW}: a token sees itself and the {WINDOW - 1} before it, and nothing older.\n\n"
        "So layer 1 could forget what layer 0 must keep. One table for both would keep all of it for both. Here each layer "
        "has a table of its own, and a block holds K and V of one of the two only. Both take blocks from the same free queue.",
        Question(
            f"A arrives with {prompt} words. How many blocks leave the free queue?",
            answer=lambda after: len(after.after.ref_counts),
            explain=lambda after: (
                f"ceil({prompt} / {size}) = {len(after.after.block_tables['A'])} for layer 0, and as many for layer 1: "
                f"{len(after.after.ref_counts)}. All words of a prompt are computed in one launch, so both layers take "
                "blocks for all of them."
            ),
            unit="blocks",
        ),
    )

    run.add("A", [next(words) for _ in range(prompt)])
    rows = _rows(run.state, "A")
    yield Page(
        "A table for each group",
        f"Two tables, one sequence: {_list(rows[0])} says where A's {prompt} tokens lie in layer 0, {_list(rows[1])} where "
        "the same tokens lie in layer 1.\n\n"
        "Layers with the same window form a **group**, and a group has one table, however many layers it has. So a block id "
        f"means a slab in the layers of its group: block {rows[0][0]} is layer 0's and has no room for layer 1.\n\n"
        "A sequence now takes blocks twice as often as in other lessons, each half as large.",
        Question(
            f"In group 1 a token at position p sees p − {WINDOW - 1} to p. A goes on, word by word. How many words does it "
            "write before it lets go of a block?",
            answer=lambda after: _written_before_release(after),
            explain=lambda after: (
                f"Up to position {WINDOW + size - 2}, {count(_written_before_release(after), 'word')} more, a token sees some of "
                f"logical block 0, positions 0 to {size - 1}. Position {WINDOW + size - 1} sees {size} to {WINDOW + size - 1}, "
                "and who comes later sees nothing older. So before that word A let go of block "
                f"{after.first('BlockOutOfWindow').block}."
            ),
            unit="words",
        ),
    )

    before = run.random.choice([14, 15])
    _write(run, words, before)
    rows = _rows(run.state, "A")
    row, null = rows[1], run.state.null_block
    gone = _released(run)[0]
    unchanged, next_gone = _list(row), _list((null, null, *row[2:]))
    wrong = (_list(row[1:]), _list((null, null, null, *row[3:])))
    yield Page(
        "Out of the window",
        f"Group 1's table is {_list(row)}. Its entry 0 names the **null block**, {null}, in which nobody ever writes. The "
        f"other entries stay where they are, for entry j must stay logical block j. Group 0 keeps its block {rows[0][0]} for "
        "the same tokens.\n\n"
        f"Block {gone.block} went to the end of the free queue, for it is cached, and either group may take it: there is one "
        "pool.",
        Question(
            f"A has {before} tokens and writes the next. What is group 1's table then?",
            answer=lambda after: _list(_rows(after.after, "A")[1]),
            explain=lambda after: (
                f"The next token, at position {before}, sees from {before} − {WINDOW} + 1 = {first_seen(before, WINDOW)} on. "
                f"Logical block 1 holds positions {size} to {2 * size - 1}: "
                + (
                    f"none of them is seen any more, and block {row[1]} goes. Entries do not move up."
                    if after.first("BlockOutOfWindow")
                    else f"position {2 * size - 1} is seen still, so the whole block stays."
                )
            ),
            choices=tuple(run.random.sample((unchanged, next_gone, *wrong), 4)),
        ),
    )

    _write(run, words, before + 1)
    longer = run.random.choice([17, 18, 19])
    yield Page(
        "Only what is wholly below",
        f"With n tokens in the cache, the next one sees from n − {WINDOW} + 1 on. Blocks **wholly below** that are let go: "
        f"(n − {WINDOW} + 1) // {size} of them. It was {below_window(14, WINDOW, size)} for n = 14, and is "
        f"{below_window(15, WINDOW, size)} for n = 15. A block of which one token is seen stays whole.\n\n"
        "So group 1's first block may hold tokens that are below the window. The kernel has to leave them out.",
        Question(
            f"A goes on until it has {longer} tokens. Which block does the kernel then load **first** in layer 1?",
            answer=lambda after: int(_turns(after)[0]["block"]),
            explain=lambda after: (
                f"The newest token, at position {longer - 1}, sees from {longer} − {WINDOW} = {longer - WINDOW} on, and "
                f"{longer - WINDOW} // {size} = {(longer - WINDOW) // size}: the loop began at logical block "
                f"{_turns(after)[0]['logical_block']}. It loaded {listed(turn['block'] for turn in _turns(after))}, and "
                "no entry before them was even looked at."
            ),
            unit="block id",
            probe=Lens("A", 1, 0),
        ),
    )

    _write(run, words, longer)
    used = len(run.state.ref_counts)
    hidden = (longer - WINDOW) % size
    full = run.random.choice([20, 21])
    yield Page(
        "It starts at the window",
        "Below is what the launch of this step was given: for each group its own table, its own slots, and its window. In "
        f"group 1 the kernel's loop started at the window: at position {longer - WINDOW}, in block "
        f"{_rows(run.state, 'A')[1][(longer - WINDOW) // size]}, of which it masked {count(hidden, 'token')}. (Faded on the "
        "stage is what the *next* token will not see.)\n\n"
        "Every slot that nobody owns holds NaN here, and so does the null block. Had the kernel read one of them, the output "
        "would be no number. The check is green: it never reads below the window.",
        Question(
            f"A owns {used} blocks. It goes on, word by word, until it has {full} tokens. How many does it own then?",
            answer=lambda after: len(after.after.ref_counts),
            explain=lambda after: (
                f"Group 0: ceil({full} / {size}) = {-(-full // size)}. Group 1: {-(-full // size)} entries, of which "
                f"({full - 1} − {WINDOW} + 1) // {size} = {below_window(full - 1, WINDOW, size)} are null, leaves "
                f"{_owned(after.after, 1)}. Together {len(after.after.ref_counts)}, "
                + ("fewer than before." if len(after.after.ref_counts) < used else f"after {used}.")
            ),
            unit="blocks",
        ),
        shows=Launch(),
    )

    _write(run, words, full)
    lost = len(_released(run))
    common = run.random.choice([16, 17, 18, full])
    older = _older_rule(run)
    yield Page(
        "However long the text",
        "The same text, played on by the same engine: blocks in use with full attention in both layers, with a window in one, "
        "and with a window in both.\n\n"
        + _compared(run, (full, *FAR))
        + "\n\nWith full attention they grow for ever. With a window they are **bounded**: word by word, "
        f"{_most(run)} at most in a layer, at any length. A long prompt takes more while it is computed, unless that is done "
        "in chunks.",
        Question(
            f"B arrives: A's first {common} words, then another. Group 1 has let go of A's first {lost} blocks. How many of "
            "B's tokens are found in the cache?",
            answer=lambda after: size * len(_hit(after, "B", 0)),
            explain=lambda after: (
                f"All {common // size} whole blocks: {size * len(_hit(after, 'B', 0))} tokens. Group 0 has every one of "
                f"them. Group 1 needs only what the token behind them sees, from {common // size * size} − {WINDOW} + 1 = "
                f"{first_seen(common // size * size, WINDOW)} on: blocks {listed(_hit(after, 'B', 1))}."
            ),
            unit="tokens",
        ),
    )

    run.add("B", [*WORDS[:common], "otherwise"])
    rows = _rows(run.state, "B")
    seen = below_window(common // size * size, WINDOW, size)
    one, other = (int(row[seen] or 0) for row in rows)
    begins = run.random.choice([6, 9, 10, 13, 14])  # so many of D's words are A's
    prompt_d = [*WORDS[:begins], "elsewhere"]
    would_hit = run.num_hit_tokens(prompt_d)
    then = _without(run, "B")
    crowd = _crowd(then)
    of_c = 2 * -(-len(crowd) // size)
    yield Page(
        "What every group agrees on",
        f"B's tables are {_list(rows[0])} and {_list(rows[1])}. A hit is a length on which **every group agrees**: full "
        "attention needs all blocks from block 0 on without a gap, a window only those that it sees. Before them the null "
        "block stands in, though B never had a block there.\n\n"
        f"Blocks {one} and {other} have the same hash, `{run.state.cached[one].block_hash[:4]}`: the same tokens, in other "
        "layers. So a block is found by its hash **and its group**.\n\n"
        f"B is finished next. The free queue is then {free_queue(then)}; those in bold are cached.",
        Question(
            f"Then C arrives with {len(crowd)} new words and takes {of_c} blocks. Which block loses its hash?",
            answer=lambda after: int(after.first("BlockEvicted").block),
            explain=lambda after: (
                f"C took the first {of_c} of the queue, and of them only block {after.first('BlockEvicted').block} had a "
                "hash. It was the first that group 1 let go: A's logical block 0."
            ),
            unit="block id",
        ),
    )

    run.free("B")
    run.add("C", crowd)
    run.free("C")
    short, long = run.num_hit_tokens(WORDS[:6]), run.num_hit_tokens(WORDS[:14])
    yield Page(
        "Lost in one group",
        f"C is finished too. In group 0 all of A's blocks can be found, for A names them still. In group 1 A's first "
        f"{size} tokens are lost; what A let go later, blocks {listed(e.block for e in _released(run)[1:])}, is still there.",
        Question(
            f"D arrives: A's first {begins} words, then another. Before C came, {would_hit} of its tokens would have been "
            "found. How many are found now?",
            answer=lambda after: size * len(_hit(after, "D", 0)),
            explain=lambda after: (
                f"Group 0 has the first {begins // size * size}. The token behind them sees from "
                + (
                    f"{first_seen(would_hit, WINDOW)} on, so group 1 would need logical block 0 and has lost it: there is no "
                    "length on which both agree but 0."
                    if not below_window(would_hit, WINDOW, size)
                    else f"{would_hit} − {WINDOW} + 1 = {first_seen(would_hit, WINDOW)} on, so group 1 needs logical blocks "
                    f"{listed(range(below_window(would_hit, WINDOW, size), would_hit // size))}, and it has them: "
                    f"{listed(_hit(after, 'D', 1))}. What it has lost it does not need."
                )
            ),
            unit="tokens",
        ),
    )

    run.add("D", prompt_d)
    yield Page(
        "Longer may hit more",
        f"When D came, A's first 6 words would have hit {short} tokens, and its first 14 words {long}. With full attention "
        "alone that cannot be: there a hit of the longer is a hit of the shorter.\n\n"
        "Many models mix layers so: gpt-oss has every second layer windowed, Gemma 3 five of six. All blocks must be of one "
        "size in bytes, so that one pool serves all groups. So vLLM gives each group as many layers, and makes several groups "
        "of Gemma 3's windowed ones.\n\n" + older,
    )


def _write(run: Run, words: Iterator[str], num_tokens: int) -> None:
    """Append words one by one, until A has so many tokens."""
    while run.state.seq_len("A") < num_tokens:
        run.append("A", [next(words)])


def _rows(state: Snapshot, seq_id: str) -> list[TableRow]:
    return [tables[seq_id] for tables in state.all_tables]


def _released(run: Run) -> list[BlockOutOfWindow]:
    return [event for event in run.events if isinstance(event, BlockOutOfWindow)]


def _written_before_release(after: After) -> int:
    release = after.events.index(after.first("BlockOutOfWindow"))
    return sum(isinstance(event, TokenWritten) for event in after.events[:release])


def _turns(after: After) -> list[dict[str, int]]:
    turns: list[dict[str, int]] = after.found["splits"][0]["turns"]
    return turns


def _owned(state: Snapshot, group: int) -> int:
    return len({block for row in state.tables(group).values() for block in row} - {state.null_block})


def _hit(after: After, seq_id: str, group: int) -> list[int]:
    """The cached blocks that a prompt named in a group."""
    hits = [event for event in after.events if isinstance(event, BlockHit)]
    return [event.block for event in hits if (event.seq_id, event.group) == (seq_id, group)]


def _without(run: Run, seq_id: str) -> Snapshot:
    """The state after a sequence would have finished."""
    beside = run.again()
    beside.free(seq_id)
    return beside.state


def _crowd(state: Snapshot) -> list[str]:
    """New words that need all free blocks before the first cached one."""
    first = next(i for i, block in enumerate(state.free_blocks) if block in state.cached)
    return OTHERS[: (first + 1) // len(state.windows) * state.block_size - 1]


def _compared(run: Run, lengths: tuple[int, ...]) -> str:
    """A table of the blocks that A's text uses at several lengths. Each column is another run."""
    columns = {"full": (None, None), "one": run.cache.groups, "both": (WINDOW, WINDOW)}
    runs = [run.again(groups=windows, num_blocks=ROOM) for windows in columns.values()]
    counts = [[len(state.ref_counts) for state in _played_on(beside, lengths)] for beside in runs]
    lines = [("tokens", *columns), ["---"] * (len(columns) + 1), *zip(lengths, *counts, strict=True)]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def _played_on(run: Run, lengths: Iterable[int]) -> Iterator[Snapshot]:
    """The states in which A's text, growing word by word, has these lengths."""
    for length in lengths:
        _write(run, (f"w{i}" for i in range(length)), length)
        yield run.state


def _most(run: Run, **settings: Any) -> int:
    """The most blocks that A owns in the last group from now on; the cache may have other settings."""
    beside = run.again(num_blocks=ROOM, **settings)
    lengths = range(beside.state.seq_len("A"), FAR[-1] + 1)
    return max(_owned(state, len(state.windows) - 1) for state in _played_on(beside, lengths))


def _older_rule(run: Run) -> str:
    """How vLLM V0 and V1 treat A's text with one window for all layers."""
    one = {"groups": (), "window": WINDOW}
    v0 = run.again(**one, profile="vllm-v0")
    null = next(event for event in v0.events if isinstance(event, NullBlockTaken))
    return (
        f"vLLM's V0 let go later: it kept {WINDOW} // {run.cache.block_size} + 2 = {WINDOW // run.cache.block_size + 2} full "
        f"blocks and the growing one. That is up to {_most(run, **one, profile='vllm-v0')} for A's text, where V1 has up to "
        f"{_most(run, **one)}. And its pool had no null block: it would have taken block {null.block} out of the free queue "
        "for good."
    )


def _list(row: Iterable[object]) -> str:
    return f"[{listed(row)}]"
