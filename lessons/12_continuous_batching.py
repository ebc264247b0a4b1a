from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pagedviz.engine.log.events.requests import RequestAdmitted, RequestWaits
from pagedviz.engine.policies.limits import Limits
from pagedviz.engine.requests.timetable import idle_seats, timetable
from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import Timetable, Way
from pagedviz.scenario.settings import CacheConfig

TITLE = "Continuous batching"
CLAIM = "Who is done leaves after that very step, and whoever fits comes in; a batch that waits for its longest leaves seats idle."
SEED = 24
CACHE = CacheConfig(
    num_blocks=8,
    host_blocks=0,
    profile="vllm-v1",
    scatter=True,
    scheduler=Limits(max_num_batched_tokens=16, max_num_seqs=3),
)

REFUSED = "It is refused at once"
NOBODY = "Nobody"
WAITS = "It waits until the pool is empty"
BEGINS = "It begins, and is stopped when no block is left"
SO_FAR = Timetable(seats=True)
STATIC = Timetable((Way(("static_batches",)),), seats=True)

LONG = "if you really want to hear about it the first thing you will ask is where I was born".split()
SAYS = "it is a truth universally acknowledged".split()


def lesson(run: Run) -> Iterator[Page]:
    size, limits = run.cache.block_size, run.cache.scheduler
    blocks, seats = run.cache.num_blocks - 1, limits.max_num_seqs
    run.submit("A", "call me Ishmael some years", says="ago never")
    run.submit("B", "in a hole", says=SAYS[: run.random.choice([5, 6])])
    run.submit("C", "all happy families are", says="alike every unhappy")
    run.submit("D", LONG[: run.random.choice([9, 10, 13])], says="and what my")
    run.submit("E", "mother died", says="today or maybe"[: run.random.choice([8, 14])])
    requests = run.state.requests
    prompt = blocks * size - run.random.choice([2, 1])
    yield Page(
        "Five requests wait",
        "A server gets prompts at any time and of any length. Nothing is computed yet; the requests stand in a queue:\n\n"
        + "\n".join(f"- **{s}**, a prompt of {len(r.prompt)}, says {r.num_tokens} words" for s, r in requests.items())
        + f"\n\nHow much each will say is known to us, not to the server. Memory is for {blocks} blocks of {size}, as "
        "block 0 is never handed out.",
        Question(
            f"Z comes with a prompt of {prompt} words and wants {len(SAYS)} back. What happens?",
            answer=lambda after: REFUSED if after.first("OperationRefused") else WAITS,
            explain=lambda after: (
                f"Z may come to hold {prompt} + {len(SAYS)} − 1 tokens, as the last word is never written: "
                f"{-(-(prompt + len(SAYS) - 1) // size)} blocks, and the pool has {blocks}. No waiting helps, and those "
                "behind it would wait with it."
            ),
            choices=(WAITS, BEGINS, REFUSED),
        ),
    )

    run.submit("Z", [f"z{i}" for i in range(prompt)], says=SAYS)
    yield Page(
        "A step is an iteration",
        "Z was told so with the numbers, and nothing changed. Everybody else can be served, but not all at once.\n\n"
        "The engine goes in **steps**: schedule, one launch of the kernels, one new word for whoever is due. Two numbers bound "
        f"a step. `max_num_seqs`: {seats} requests run at most, so there are {seats} **seats**. The **token budget**, "
        f"`max_num_batched_tokens`: the launch computes {limits.max_num_batched_tokens} tokens at most, whoever they belong to.",
        Question(
            "The first step admits whom it can, in order. How many tokens does its launch compute?",
            answer=lambda after: sum(len(write.tokens) for write in after.first("BatchWritten").writes),
            explain=lambda after: (
                f"{_sum(after.after.scheduled)}: their prompts. {after.first('RequestWaits').seq_id} waits: "
                f"{after.first('RequestWaits').reason}."
            ),
            unit="tokens",
        ),
    )

    run.step()
    yield Page(
        "Sampled is not written",
        f"B's prompt gave its first word, “{run.state.requests['B'].output[0]}”. It is **sampled**: known, but no layer has "
        f"seen it, so it has no K and V and no slot. B knows {len(run.state.requests['B'].prompt) + 1} tokens, and "
        f"{run.state.seq_len('B')} are in the cache. The next step **writes** it, and from that comes the second.\n\n"
        "The table below is of the steps so far, as the stage counts them.",
        Question(
            "One step more. How many of B's tokens are then in slots?",
            answer=lambda after: after.after.seq_len("B"),
            explain=lambda after: (
                f"Its prompt of {len(after.after.requests['B'].prompt)} and “{after.after.tokens['B'][-1]}”. It has said "
                f"“{' '.join(map(str, after.after.requests['B'].output))}”, and the newest is in no slot yet."
            ),
            unit="tokens",
        ),
        shows=SO_FAR,
    )

    run.step()
    yield Page(
        "A is done",
        "A has all it wanted. At the end of that step it left, and its blocks are free: now, not when the others are done. "
        "A seat is free as well.\n\n"
        f"D is the first of the queue and has a prompt of {len(requests['D'].prompt)}. **Admission**: the whole prompt must "
        f"find free blocks. {len(run.state.free_blocks)} are free now, and those who run are served first; B has filled "
        f"{run.state.seq_len('B') % size or size} slots of its last block, C {run.state.seq_len('C') % size or size}.",
        Question(
            "Who is admitted in the next step?",
            answer=_admitted,
            explain=_why_admitted,
            choices=("D", "E", "D and E", NOBODY),
        ),
        shows=SO_FAR,
    )

    run.step()
    came = "D" in run.state.running
    outputs = {seq_id: request.num_tokens for seq_id, request in requests.items()}
    total = sum(outputs.values())
    yield Page(
        "In the very next step" if came else "Nobody overtakes",
        (
            "D took A's seat one step after A's last word, in the same launch in which B and C decode."
            if came
            else "A seat was free, and E's block would have been, too. But the queue goes in order: if whoever is small "
            "slipped past, D might wait for ever. So E waited with it, and the seat stayed idle for that step."
        )
        + "\n\nBefore Orca (2022), servers took a **static batch**: the first requests that fit, and nobody else until *all* "
        f"of them were done. Words wanted: {', '.join(f'{s} {n}' for s, n in outputs.items())}.",
        Question(
            f"The same requests in static batches: until all are done, each step has {seats} seats. In how many is nobody?",
            answer=lambda after: int(_other(after)["idle"]),
            explain=lambda after: (
                f"Each batch takes as many steps as its longest wants words: {_batches(_other(after))} steps, "
                f"× {seats} = {seats * len(_other(after)['steps'])} seats. {total} words were wanted, one a seat: "
                f"{seats * len(_other(after)['steps'])} − {total} = {_other(after)['idle']}."
            ),
            unit="seats",
            probe=STATIC,
        ),
        shows=SO_FAR,
    )

    run.step()
    first = timetable(run.events)[0].engine_step
    yield Page(
        "A static batch, beside it",
        "Below is the stage's run so far, and under it the same requests served to the end by the same engine with one policy "
        "changed: `static_batches` for `running_first`. A dot is a request that is there and gets nothing.\n\n"
        "A and C are done early, and their seats stay idle until B is. D and E could have had them.",
        Question(
            "How many steps does the stage's own run take, from the first to the last?",
            answer=lambda after: after.after.engine_step - first + 1,
            explain=lambda after: (
                f"Engine steps {first} to {after.after.engine_step}. In static batches there are "
                f"{len(_other(after)['steps'])}, up to step {_other(after)['steps'][-1]['engine_step']}."
            ),
            unit="steps",
            probe=STATIC,
        ),
        shows=STATIC,
    )

    while run.state.running or run.state.waiting:
        run.step()
    rows = timetable(run.events)
    yield Page(
        "Iteration by iteration",
        f"{total} words in {len(rows)} steps, {idle_seats(rows, seats)} of {len(rows) * seats} seats idle; below, the "
        "static batches needed more of both. Orca called it **iteration-level scheduling**; everybody calls it continuous batching.\n\n"
        "It needs memory that is handed out in every step, in pieces that fit anybody: paging. And it pays, because a decode "
        "step reads all weights of a model for one word of each who runs: an idle seat costs nearly as much as a busy one.\n\n"
        "D's prompt took most of its step, and B waited for its word as long. *Chunked prefill* is about that.",
        shows=STATIC,
    )


def _sum(scheduled: Mapping[str, int]) -> str:
    return " + ".join(f"{num_tokens} of {seq_id}" for seq_id, num_tokens in scheduled.items())


def _admitted(after: After) -> str:
    came = [event.seq_id for event in after.events if isinstance(event, RequestAdmitted)]
    return " and ".join(came) or NOBODY


def _why_admitted(after: After) -> str:
    waits: RequestWaits = after.first("RequestWaits")
    prompt = len(after.after.requests["D"].prompt)
    needed = -(-prompt // after.after.block_size)
    if waits.seq_id == "D":
        return f"D's {prompt} tokens need {needed} blocks, and who runs took what it needed first. D waits: {waits.reason}."
    return f"D's {prompt} tokens need {needed} blocks, and they were there. {waits.seq_id} waits: {waits.reason}."


def _other(after: After) -> dict[str, Any]:
    """The table of the static batches."""
    table: dict[str, Any] = after.found["others"][0]
    return table


def _batches(table: Mapping[str, Any]) -> str:
    """The steps of each batch. A batch begins with the step that admits requests."""
    begins = [i for i, step in enumerate(table["steps"]) if step["admitted"]]
    lengths = [stop - start for start, stop in pairwise([*begins, len(table["steps"])])]
    return " + ".join(map(str, lengths))
