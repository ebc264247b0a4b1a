from collections.abc import Iterator
from typing import Any

from pagedviz.engine.log.events.base import Write
from pagedviz.engine.log.events.blocks import Written
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.requests.timetable import StepCounts, timetable, waits
from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import Chunks, Timetable, Way
from pagedviz.scenario.settings import CacheConfig

TITLE = "Chunked prefill"
CLAIM = (
    "A long prompt in pieces beside the decodes holds nobody up for long; the price is that its prefix is read again."
)
SEED = 6
CACHE = CacheConfig(
    num_blocks=12,
    host_blocks=0,
    profile="vllm-v1",
    scatter=True,
    scheduler=Limits(max_num_batched_tokens=8, max_num_seqs=4),
)

LARGE = 32  # a budget that holds the whole prompt
IN_ONE_PIECE = Way(("prefill_first", "never_split"), LARGE)
WAYS = (
    IN_ONE_PIECE,
    Way(("running_first", "never_split"), LARGE),
    Way(("prefill_first", "split")),
    Way(("running_first", "split")),
)
SO_FAR, GATE = Timetable(), Timetable((Way(("whole_prompt_fits",)), Way(("first_chunk_fits",))))

LONG = "it was the best of times it was the worst of times it was the age of wisdom it was the age".split()
SAYS = "we had everything before us and we had nothing before us".split()


def lesson(run: Run) -> Iterator[Page]:
    size, budget = run.cache.block_size, run.cache.scheduler.max_num_batched_tokens
    run.submit("A", LONG[: run.random.choice([2, 3, 4])], says=SAYS)
    run.submit("B", "once upon a time", says=SAYS[: run.random.choice([4, 5])])
    run.step(2)
    prompt = run.random.choice([20, 21, 22])
    yield Page(
        "A long prompt comes",
        "A and B decode: each computes one token a step and gets its next word by that. Somebody reads A's "
        "words as they come.\n\n"
        f"Now L comes, with a prompt of {prompt}. A step's **token budget** is {budget} here (thousands on a GPU), so the prompt "
        "is **split**: a step computes a **chunk** of it. Whoever runs is served first.",
        Question(
            "How many of L's tokens does the next step compute?",
            answer=lambda after: _computed(after, "L"),
            explain=lambda after: (
                f"A and B took one each before L was admitted, and {budget} − {len(_writes(after)) - 1} were left. The launch "
                f"computes {' + '.join(f'{len(write.tokens)} of {write.seq_id}' for write in _writes(after))}."
            ),
            unit="tokens",
        ),
        shows=SO_FAR,
    )

    run.submit("L", LONG[:prompt], says="so far like the")
    run.step()
    filled = run.state.seq_len("L") % size
    yield Page(
        "The decodes ride along",
        "One launch computed L's chunk and the decodes of A and B, who got their words as always: they are **piggybacked**. "
        "Decodes alone mostly wait for memory; beside a chunk, which keeps the arithmetic busy, they cost little more. L got no "
        "word yet, for its last token is not computed.\n\n"
        f"The chunk ended where the budget did: L has {run.state.seq_len('L')} tokens in blocks "
        f"{list(run.state.block_tables['L'])}, and {filled} of the {size} slots of the last one are filled.",
        Question(
            "Into which slot does the first token of the next chunk go?",
            answer=lambda after: _write(after, "L").slots[0],
            explain=lambda after: _where(after),
            unit="slot",
        ),
        shows=SO_FAR,
    )

    run.step()
    gone = "B" not in run.state.running
    yield Page(
        "A chunk is what is left",
        f"Chunks and blocks need not agree. L has {run.state.seq_len('L')} of its {prompt} tokens now.\n\n"
        + ("B has all its words, and left. " if gone else "A and B still run. ")
        + "In each step the budget is shared out anew.",
        Question(
            "How many of L's tokens does the next step compute?",
            answer=lambda after: _computed(after, "L"),
            explain=lambda after: (
                f"{len(_writes(after)) - 1} of the budget of {budget} went to "
                f"{' and '.join(write.seq_id for write in _writes(after) if write.seq_id != 'L')}, and L took the rest."
            ),
            unit="tokens",
        ),
        shows=SO_FAR,
    )

    run.step()
    read = _chunks(run)
    yield Page(
        "What is there is read again",
        "A chunk's tokens attend to all tokens before them. So a chunk reads, out of the cache, the K and V of all chunks "
        "before it, and its own. Count each token **once a chunk**, for all that ask in it, as a kernel must load it at least: "
        f"L's chunks have read {', '.join(str(row.read['L']) for row in read)}.\n\n"
        f"{prompt - run.state.seq_len('L')} of L's tokens are left, for one more chunk.",
        Question(
            "Of how many tokens are K and V read for the whole of L's prompt, chunk by chunk, all added up?",
            answer=lambda after: sum(row.read["L"] for row in read) + after.after.seq_len("L"),
            explain=lambda after: (
                f"{' + '.join(str(row.read['L']) for row in read)} + {after.after.seq_len('L')}. In one piece it would be "
                f"{prompt}."
            ),
            unit="tokens",
        ),
        shows=SO_FAR,
    )

    run.step()
    rows = _chunks(run)
    waited = waits(timetable(run.events), "A")
    yield Page(
        "Read again, not computed again",
        f"{len(rows)} chunks read {sum(row.read['L'] for row in rows)} tokens where one piece reads {prompt}: with equal "
        "chunks it is about the prompt × (chunks + 1) / 2. No more is *computed*: "
        f"counted once for each token that asks, it is 1 + 2 + … + {prompt} = {sum(row.scores['L'] for row in rows)} scores, "
        "however they are cut. (A real model's weights are read in every step, too.)\n\n"
        f"What is that paid for? From one word of A to the next, never more than {max(map(len, waited))} step passed, "
        f"in which at most {max(row.num_tokens for steps in waited for row in steps)} tokens were computed, whoever's.",
        Question(
            "vLLM's first engine computed a prompt in one piece, in a step of its own. L so served when it came, beside "
            "A and B, how many tokens are computed between two words of A at most, that of the next word included?",
            answer=lambda after: int(after.found["others"][0]["wait"]["tokens"]),
            explain=lambda after: _held_up(after.found["others"][0]),
            unit="tokens",
            probe=Chunks("L", (IN_ONE_PIECE,)),
        ),
        shows=SO_FAR,
    )

    run.step()
    another = run.random.choice([9, 10, 11, 12])
    yield Page(
        "Four ways",
        "Below, the same requests in four ways, to the end. **Prompts first, in one piece**: A is held up. **Who runs first, "
        "in one piece** (Orca): A takes part in every step, but one of them is as long as the prompt. **Prompts first, split** "
        "(SGLang's usual way): no step is long, but A waits for all of the chunks. **Who runs first, split** (Sarathi-Serve, "
        "vLLM V1, the stage): never more than a budget between two words.\n\n"
        "It costs L more reading, and more steps to its first word.\n\n"
        f"M comes next, a prompt of {another}: {-(-another // size)} blocks. {len(run.state.free_blocks)} are free, before those who run "
        f"take what they need: A has filled {run.state.seq_len('A') % size or size} slots of its last block, L "
        f"{run.state.seq_len('L') % size or size}.",
        Question(
            "How many of M's tokens does the next step compute?",
            answer=lambda after: _computed(after, "M"),
            explain=lambda after: _why_none(after),
            unit="tokens",
        ),
        shows=Chunks("L", WAYS),
    )

    run.submit("M", LONG[:another], says="all before us")
    run.step()
    yield Page(
        "All of it or nothing",
        "Admission asks for the **whole prompt**, though only a chunk of it would be computed now. Below is why: the stage's "
        "run to its end, and the same with `first_chunk_fits`.\n\n"
        "There M came in, computed a chunk, found no block for the next one, and was **preempted** (✕): it let go of its "
        "blocks, and later computed the same tokens again. It was done no sooner.",
        shows=GATE,
    )


def _writes(after: After) -> tuple[Write, ...]:
    """The writes of the step's launch."""
    return next(event.writes for event in after.events if isinstance(event, Written))


def _write(after: After, seq_id: str) -> Write:
    return next(write for write in _writes(after) if write.seq_id == seq_id)


def _computed(after: After, seq_id: str) -> int:
    return sum(len(write.tokens) for write in _writes(after) if write.seq_id == seq_id)


def _where(after: After) -> str:
    write, size = _write(after, "L"), after.after.block_size
    block, offset = after.after.block_tables["L"][write.position // size], write.position % size
    return (
        f"It is position {write.position}: logical block {write.position // size}, which L has already, offset {offset}. "
        f"Block {block} × {size} + {offset} = {write.slots[0]}."
    )


def _chunks(run: Run) -> list[StepCounts]:
    """The steps that computed some of L's prompt."""
    return [row for row in timetable(run.events) if "L" in row.prefilled]


def _held_up(table: dict[str, Any]) -> str:
    wait = table["wait"]
    return (
        f"{wait['steps']} steps passed, which computed {' + '.join(map(str, wait['computed']))}: first L's whole prompt, then "
        "a token of each."
    )


def _why_none(after: After) -> str:
    size, left = after.after.block_size, after.after.token_budget - sum(after.after.scheduled.values())
    return (
        f"None. {left} tokens of the budget were left, which would fill {-(-left // size)} blocks, and those are free. But "
        f"M waits: {after.first('RequestWaits').reason}."
    )
