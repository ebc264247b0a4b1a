from collections.abc import Iterable, Iterator

from pagedviz.engine.log.events.requests import RequestPreempted, RequestScheduled
from pagedviz.engine.log.events.transfers import BlockSpilled
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.policies.profiles import PROFILES
from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import PreemptionCost, SwapOrRecompute
from pagedviz.scenario.settings import CacheConfig

TITLE = "Swap or recompute?"
CLAIM = (
    "Who is preempted moves its blocks to the host, in fewer copies the larger they are, or computes its tokens again."
)
SEED = 11
CACHE = CacheConfig(
    num_blocks=13,
    host_blocks=8,
    profile="vllm-v1",
    scatter=True,
    scheduler=Limits(max_num_batched_tokens=64),
    policies=(("preemption", "swap"),),
)

SIZES = (1, 4, 16)
# Tokens of the first and second sequence when the pool is full. They fill whole blocks of each size, so the pool is
# full in the same step.
FULL = ((16, 32), (32, 16))
WORDS = {
    "A": (
        "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness it was "
        "the epoch of belief it was the epoch of incredulity it was the season of light"
    ).split(),
    "B": (
        "call me Ishmael some years ago never mind how long precisely having little or no money in my purse and nothing "
        "particular to interest me on shore I thought I would sail about a little and see the watery part"
    ).split(),
    "D": "Four score and seven years ago our fathers brought forth upon this continent a new nation".split(),
    "E": (
        "we hold these truths to be self evident that all men are created equal that they are endowed by their creator "
        "with certain unalienable rights that among these are life liberty and the pursuit of happiness that to secure "
        "these rights"
    ).split(),
}
SOME_MOVE = "As many as fit move to the host, the others are freed"
ALL_FREED = "All are freed, and none moves"
NOBODY = "Nobody is preempted; {} waits until there is room on the host"


def lesson(run: Run) -> Iterator[Page]:
    size, slabs = run.cache.block_size, 2 * run.cache.num_layers
    first, second = run.random.sample(["A", "B"], 2)
    full = dict(zip((first, second), run.random.choice(FULL), strict=True))
    decodes = run.random.choice([1, 2])  # steps in which both write one word, until the pool is full
    yield Page(
        "Two requests, one pool",
        "An engine serves **requests**: a prompt, and words to generate behind it. A request waits, is **admitted** and runs. "
        "In each **step** one launch computes what those who run have not computed yet: all of a prompt at first, then the "
        "word that was sampled last.\n\n"
        f"The pool hands out {_total(run.state)} blocks of {size}. {first} arrives with {full[first] - decodes} words, then "
        f"{second} with {full[second] - decodes}. Both fit, and both grow, until one needs a block and none is free. Then somebody "
        "is **preempted**: it gives way, and goes on later.",
        Question(
            "Both run until no block is free. Who is preempted?",
            answer=lambda after: str(after.first("RequestPreempted").seq_id),
            explain=lambda after: (
                f"{after.first('RequestPreempted').requester} needed a block. {second} was admitted last, so {second} goes, "
                "however long it is. Whoever came first is served first to the end, so somebody always gets done."
            ),
            choices=("A", "B"),
        ),
    )

    for seq_id in (first, second):
        _submit(run, seq_id, full[seq_id] - decodes, decodes + 4)
    run.step(decodes + 2)
    num_blocks = len(run.state.host_tables[second])
    yield Page(
        "Out",
        f"{second} had {full[second]} tokens in {num_blocks} blocks, and they are on the host now: **all of them**, for with a "
        f"part it could not run, and the rest would be in others' way. {first} took block "
        f"{run.state.block_tables[first][-1]} at once.\n\n"
        f"One block id is a piece of memory in K and one in V, in each of the {run.cache.num_layers} layers. The plain way to "
        "move a block is to copy each piece by itself.",
        Question(
            f"How many copies took {second} to the host, piece by piece?",
            answer=lambda after: _copies(after),
            explain=lambda after: (
                f"K and V, {run.cache.num_layers} layers, {num_blocks} blocks: 2 × {run.cache.num_layers} × {num_blocks} = "
                f"{_copies(after)}, each of {_bytes(after) // _copies(after)} bytes."
            ),
            unit="copies",
            probe=SwapOrRecompute((size,), ("swap",)),
        ),
    )

    run.step()
    yield Page(
        "Smaller blocks",
        f"The same pool could have been cut into {_total(run.state) * size} blocks of 1, the host as well. To grade what you "
        "predict, the run is played again like that. The two requests fill it in the same step.",
        Question(
            f"How many copies take {second} to the host, piece by piece, with blocks of 1?",
            answer=lambda after: _copies(after),
            explain=lambda after: (
                f"{full[second]} tokens are {full[second]} blocks: {slabs} × {full[second]} = {_copies(after)} copies of "
                f"{_bytes(after) // _copies(after)} bytes. That is {_bytes(after):,} bytes in all, as many as before, and "
                f"{size} times the copies, each of which has to be started."
            ),
            unit="copies",
            probe=SwapOrRecompute((1,), ("swap",)),
        ),
    )

    run.submit("C", "to be or", says="not to")
    free, wanted = len(run.state.free_blocks), num_blocks + 1
    yield Page(
        "Staged",
        "Larger blocks make fewer and larger copies. Fewer still are left when a kernel first gathers all pieces side by side "
        "in a buffer, for **one** copy takes a run of host blocks that follow one another. Here that is all of them. On "
        "the stage each block moves in a step of its own.\n\n"
        f"C waits now, with a prompt of 3 words: one block. {free} are free. {second} would need {wanted}, one of them for "
        "its next word.",
        Question(
            "The engine takes one more step. Who computes in it?",
            answer=lambda after: _in_launch(after),
            explain=lambda after: (
                f"{first} alone. C would fit, but has to wait: {after.first('RequestWaits').reason}. Else newcomers might take "
                f"the blocks that {second} waits for, one after the other, for ever."
            ),
            choices=(first, f"{first} and C", f"{first} and {second}"),
        ),
        shows=SwapOrRecompute(SIZES, ("swap",)),
    )

    run.step()
    was = [event.block for event in run.events if isinstance(event, BlockSpilled)]
    yield Page(
        "Who comes back first",
        f"{first} is finished, and has let go of all its blocks. In the next step {second} comes back, and C is admitted "
        f"behind it. {second}'s table was [{_table(was)}] before it went. Its blocks are host blocks "
        f"{_table(run.state.host_tables[second])} now.",
        Question(
            f"How many tokens does {second} compute in the step in which it comes back?",
            answer=lambda after: _scheduled(after, second),
            explain=lambda after: (
                f"One: the word that was sampled just before it went, and was in no slot yet. The {full[second]} others came "
                "back bit for bit."
            ),
            unit="tokens",
        ),
    )

    run.step()
    row = run.state.block_tables[second]
    elsewhere = sum(block != then for block, then in zip(row, was, strict=False))
    preemption = PROFILES[run.cache.profile].preemption.__name__
    yield Page(
        "Back, elsewhere",
        f"{second}'s table is [{_table(row)}] now, the last one for its new word. {elsewhere} of the other {len(was)} entries "
        "name **another block** than before, and nobody but the table has to know.\n\n"
        f"The paper and vLLM's first engine swap. **vLLM V1 never does**: the profile `{run.cache.profile}` has the policy "
        f"`{preemption}`, and this lesson put `swap` in its place, one function for another. `{preemption}` frees the blocks "
        "at once. The words are kept, and their K and V are computed again, by a second prefill.",
        Question(
            f"Had {second} been preempted by `recompute`, how many tokens would have been computed a second time?",
            answer=lambda after: int(after.found["rows"][0]["again"]),
            explain=lambda after: (
                f"All {after.found['rows'][0]['again']} that it had. One prefill takes them, and the newest word with them. "
                "It counts tokens, so the block size does not matter."
            ),
            unit="tokens",
            probe=SwapOrRecompute((size,), ("recompute",)),
        ),
    )

    run.step(2)
    known = run.random.choice([34, 35, 36])  # E's words when D finds no block
    e_blocks = -(-known // size)
    yield Page(
        "Both ways",
        "Below is the run so far, played three ways at three block sizes. Swap copies less often the larger the blocks. "
        "Recompute copies nothing, and computes the same tokens again **whatever the block size**.\n\n"
        f"Unless {second}'s own blocks are still there: with prefix caching a freed block keeps its hash until it is handed "
        f"out, and {second} finds all that {first} has not taken meanwhile. It took from the tail, in whole blocks, so the "
        "larger they are, the more is lost.\n\n"
        f"D and E are next. When D needs its fourth block, E has {e_blocks}, and the host has {run.cache.host_blocks}, all free.",
        Question(
            "What becomes of E's blocks?",
            answer=lambda after: _fate(after),
            explain=lambda after: (
                f"All or none, as a part of them on the host would be of no use. So `swap` fell back on "
                f"`{after.first('RequestPreempted').how}`: {after.first('RequestPreempted').then}."
            ),
            choices=(SOME_MOVE, ALL_FREED, NOBODY.format("D")),
        ),
        shows=SwapOrRecompute(SIZES),
    )

    _submit(run, "D", 3 * size - 1, 4)
    _submit(run, "E", known - 1, 4)
    run.step(3)
    had = run.state.requests["E"]
    how = next(event.how for event in reversed(run.events) if isinstance(event, RequestPreempted))
    yield Page(
        "All or none",
        f"So it was preempted by `{how}`. E waits again, at the front of the queue. It owns nothing, but its {len(had.prompt)} words and the {len(had.output)} "
        "that it has said are known. When D has finished, it is admitted as if it were new.",
        Question(
            "How many tokens does E compute in the step in which it comes back?",
            answer=lambda after: _scheduled(after, "E"),
            explain=lambda after: (
                f"{len(had.prompt)} + {len(had.output)} = {_scheduled(after, 'E')}, all that is known of it, in one prefill. "
                f"After a swap it would have been one."
            ),
            unit="tokens",
        ),
    )

    run.step(4)
    yield Page(
        "Which is cheaper?",
        "A swap moves K and V twice over the link between device and host. To recompute takes the work of a prefill, and "
        "grows with the model as well as with the tokens. So it depends on the link, the model and the length. The paper "
        "found that swapping suffers from small blocks, and recomputing does not. Of vLLM V1 its documentation says that "
        "recomputing costs less there.\n\n"
        "Below is what this machine's GPU took for both, if it has one.",
        shows=PreemptionCost(),
    )


def _submit(run: Run, seq_id: str, prompt: int, says: int) -> None:
    run.submit(seq_id, WORDS[seq_id][:prompt], says=WORDS[seq_id][prompt : prompt + says])


def _total(state: Snapshot) -> int:
    return state.num_blocks - (state.null_block is not None)


def _table(row: Iterable[int | None]) -> str:
    return ", ".join(map(str, row))


def _copies(after: After) -> int:
    return int(after.found["rows"][0]["out"]["copies"])


def _bytes(after: After) -> int:
    return int(after.found["rows"][0]["out"]["bytes"])


def _in_launch(after: After) -> str:
    return " and ".join(event.seq_id for event in after.events if isinstance(event, RequestScheduled))


def _scheduled(after: After, seq_id: str) -> int:
    """How many tokens the first step of a sequence computes."""
    return next(e.num_tokens for e in after.events if isinstance(e, RequestScheduled) and e.seq_id == seq_id)


def _fate(after: After) -> str:
    if after.first("RequestPreempted") is None:
        return NOBODY.format("D")
    return SOME_MOVE if after.first("BlockSpilled") else ALL_FREED
