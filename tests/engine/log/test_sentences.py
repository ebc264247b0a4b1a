"""Docstrings become the sentences on the screen: filled, counted, on one line."""

from dataclasses import replace

import pytest

from pagedviz.engine.log import errors
from pagedviz.engine.log.events.base import Event
from pagedviz.engine.log.events.blocks import (
    BatchWritten,
    BlockCopied,
    BlockHit,
    SequenceForked,
    TokensWritten,
    TokenWritten,
)
from pagedviz.engine.log.events.drafts import DraftsDropped, DraftsVerified, TokensDrafted
from pagedviz.engine.log.events.requests import (
    BeamsChosen,
    RequestAborted,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestSubmitted,
)
from pagedviz.engine.log.events.windows import BlockOutOfWindow, PrefixSkipped
from pagedviz.engine.log.text import sentences


@pytest.mark.parametrize(
    ("template", "numbers", "sentence"),
    [
        ("{n:free block} of {ids}", {"n": 2, "ids": [7, 1]}, "2 free blocks of 7, 1"),
        ("{n:block}", {"n": 1}, "1 block"),
        ("{n:block}", {"n": 0}, "0 blocks"),
        ("{n:more device block}, {ids}.", {"n": 1, "ids": ()}, "1 more device block, ."),
        ("{ids:token}", {"ids": (7, 1)}, "2 tokens"),
        ("{ids:token}", {"ids": ["x"]}, "1 token"),
        ("[{ids}]", {"ids": tuple(range(12))}, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"),
        ("[{ids}]", {"ids": list(range(1, 176))}, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 163 more]"),
        ("two\n    lines of {what}", {"what": "text"}, "two lines of text"),
        ("“{token}”", {"token": "{n} {0} %s"}, "“{n} {0} %s”"),
    ],
)
def test_template_is_filled_counted_and_folded(template, numbers, sentence):
    assert sentences.fill(template, numbers) == sentence


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            RequestScheduled("A", 1, 1),
            "This step's launch will compute 1 token of A. That leaves 1 token of the budget.",
        ),
        (
            RequestFinished("A", 1),
            "A is finished after 1 output. It gives up its blocks. Its last output was never written.",
        ),
        (RequestAborted("A", 0), "A was aborted after 0 outputs. It keeps no blocks."),
        (
            BatchWritten(tuple("ABCDEFGHIJKLMN"), (0,) * 14, (("x",),) * 14, ((0,),) * 14, 1),
            f"One launch wrote {', '.join(f'1 token of {name}' for name in 'ABCDEFGHIJKL')} and 2 more, "
            "each token into the slot that its sequence's block table points to.",
        ),
    ],
)
def test_sentences_of_requests_hold_for_one_and_for_many(event, sentence):
    assert event.sentence == sentence


@pytest.mark.parametrize(
    ("event", "part"),
    [
        (SequenceForked("B", "A", 2), "It will name A's 2 blocks and takes no block of its own."),
        (SequenceForked("B", "A", 2, 1), "own. Before them, the null block stands for 1 block out of the window."),
        (
            BlockOutOfWindow("A", 0, 7, 0, 0, 3, False, 5),
            "now names the null block, and block 7 went into the",
        ),
        (BlockOutOfWindow("A", 0, 7, 0, 2, None, False, 5), "and block 7 is still in use: its ref_count is now 2."),
        (BlockOutOfWindow("A", 0, 7, 0, 2, None, False, 5, group=1), "A's logical block 0 of group 1 is out of"),
        (PrefixSkipped("A", ("a", "b"), 2, 0), "for A's first 2 logical blocks. They are out of the window"),
        (
            TokensDrafted("A", 4, ("x",)),
            "“x” was drafted behind A's tokens, for position 4. The next launch computes 1 dr",
        ),
        (TokensDrafted("A", 4, ("x", 7)), "“x 7” was drafted behind A's tokens, for positions 4-5. The next"),
        (DraftsVerified("A", ("x",), (), (), 5), "The model accepted A's 1 draft. A has 5 tokens in the cache."),
        (
            DraftsVerified("A", (), ("x", "y"), (4, 5), 4),
            "The model accepted none of A's 2 drafts. Rolled back: slots 4, 5 hold garbage now. A has 4 tokens in",
        ),
        (
            DraftsVerified("A", ("x",), ("y",), (5,), 5),
            "The model accepted the first of A's 2 drafts. Rolled back: slot 5 holds garbage now.",
        ),
        (DraftsVerified("A", ("x", "y"), ("z",), (6,), 6), "The model accepted the first 2 of A's 3 drafts."),
        (
            DraftsDropped("A", ("x", "y"), "it was preempted"),
            "A lost 2 drafts before verification, because it was p",
        ),
        (
            BeamsChosen("A", ("A.1",), ("A.1",), ("x",), (-1.0,), (), "A.1 “x”"),
            "continuations of A's beams stay: A.1 “x”.",
        ),
        (BeamsChosen("A", ("A.1",), ("A.1",), ("x",), (-1.0,), ("A.2",), "A.1 “x”"), "A.1 “x”. Pruned: A.2."),
        (
            RequestSubmitted("A", ("a",), 2, 0, None, 0),
            "1 token, and 2 more to generate. It is first in the queue.",
        ),
        (RequestSubmitted("A", ("a",), 2, 0, None, 0, samples=3), "2 more to generate, in 3 samples. It is"),
        (RequestSubmitted("A", ("a",), 2, 0, None, 0, beams=3), "2 more to generate, with 3 beams. It is"),
    ],
)
def test_sentences_of_windows_drafts_and_beams_hold_in_every_case(event, part):
    assert part in event.sentence


def test_event_says_its_docstring_with_its_own_numbers():
    copied = BlockCopied("A", logical_block=1, source=3, target=5, num_slots=1)
    assert copied.sentence.startswith("Block 3 was copied to block 5")
    assert "1 filled slot," in copied.sentence
    written = TokenWritten("A", position=5, token="<b>{}", block=2, offset=1, slot=9, engine_step=0)
    assert "“<b>{}” at position 5" in written.sentence
    assert "slot 9" in written.sentence
    prompt = TokensWritten("A", position=2, tokens=("a", 7, "{b}"), slots=(9, 10, 11), engine_step=0)
    assert prompt.sentence == (
        "One launch wrote A's 3 tokens (positions 2-4) into the slots that its block table points to."
    )


def test_every_event_and_every_refusal_has_a_sentence():
    refusals = errors.CacheError.__subclasses__()
    assert len(refusals) >= 12
    for described in [*Event.kinds.values(), *refusals]:
        assert described.__doc__
        assert not described.__doc__.startswith(described.__name__), "the docstring that a dataclass makes up"


def test_refusal_carries_its_numbers_beside_its_sentence():
    error = errors.NoFreeBlocks(seq_id="A", needed=3, free=1, total=4)
    shown = error.to_json()
    assert shown.pop("sentence") == error.sentence
    assert "A needs 3 more device blocks, and 1 of 4 are free" in error.sentence
    assert shown == {"error": "NoFreeBlocks", "seq_id": "A", "needed": 3, "free": 1, "total": 4}


def test_batch_and_a_hit_on_a_block_of_the_same_launch_say_so():
    batch = BatchWritten(("A", "B"), (0, 4), (("a", "b", "c"), ("d",)), ((4, 5, 6), (8,)), engine_step=1)
    assert batch.sentence == (
        "One launch wrote 3 tokens of A, 1 token of B, each token into the slot that its sequence's block table points "
        "to."
    )
    hit = BlockHit("B", 0, 1, "ab12", ref_count=2, tokens=("a", "b"), num_tokens=3)
    assert "as its logical block 0: it holds the same 2 tokens behind the same prefix. B computes none" in hit.sentence
    later = replace(hit, computed=False)
    assert "as its logical block 0: after this step's launch it holds the same 2 tokens" in later.sentence


def test_request_that_preempts_itself_is_not_named_twice():
    other = RequestPreempted("B", "A", 7, "recompute", "It waits")
    assert other.sentence == "B was preempted, because A needs more blocks than are free. It waits."
    assert replace(other, requester="B").sentence.startswith("B was preempted, because it needs more blocks")
