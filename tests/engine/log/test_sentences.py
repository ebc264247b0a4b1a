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
        (RequestScheduled("A", 1, 1), "A was given 1 token of this step's launch, which leaves 1 token of the budget."),
        (
            RequestFinished("A", 1),
            "A is finished after 1 output. It lets go of everything; the last output was never written.",
        ),
        (RequestAborted("A", 0), "A was aborted after 0 outputs. Nothing stays its own."),
        (
            BatchWritten(tuple("ABCDEFGHIJKLMN"), (0,) * 14, (("x",),) * 14, ((0,),) * 14, 1),
            "One launch wrote 1 of A, 1 of B, 1 of C, 1 of D, 1 of E, 1 of F, 1 of G, 1 of H, 1 of I, 1 of J, 1 of K, "
            "1 of L and 2 more, each token into the slot that its sequence's block table gives.",
        ),
    ],
)
def test_sentences_of_requests_hold_for_one_and_for_many(event, sentence):
    assert event.sentence == sentence


@pytest.mark.parametrize(
    ("event", "part"),
    [
        (SequenceForked("B", "A", 2), "It will name A's 2 blocks and take none of its own."),
        (SequenceForked("B", "A", 2, 1), "own; the null block stands in for 1 block before them, out of the window."),
        (BlockOutOfWindow("A", 0, 7, 0, 0, 3, False, 5), "names the null block, and block 7 went into the free queue"),
        (BlockOutOfWindow("A", 0, 7, 0, 2, None, False, 5), "and block 7 stays with others, its ref_count now 2."),
        (BlockOutOfWindow("A", 0, 7, 0, 2, None, False, 5, group=1), "A's logical block 0 of group 1 is out of"),
        (PrefixSkipped("A", ("a", "b"), 2, 0), "for A's first 2 logical blocks: the window of the tokens to come"),
        (TokensDrafted("A", 4, ("x",)), "“x” is drafted behind what A has, for position 4."),
        (TokensDrafted("A", 4, ("x", 7)), "“x 7” is drafted behind what A has, for positions 4 to 5."),
        (DraftsVerified("A", ("x",), (), (), 5), "The model says what was drafted: 1 draft of A accepted. A has 5 tok"),
        (
            DraftsVerified("A", (), ("x", "y"), (4, 5), 4),
            "Of 2 drafts of A the model says none itself. Rolled back: slots 4, 5 hold garbage now. A has 4 tokens in",
        ),
        (
            DraftsVerified("A", ("x",), ("y",), (5,), 5),
            "Of 2 drafts of A the model says the first itself. Rolled back: slot 5 holds garbage now.",
        ),
        (DraftsVerified("A", ("x", "y"), ("z",), (6,), 6), "the model says the first 2 itself."),
        (DraftsDropped("A", ("x", "y"), "it was preempted"), "are verified: 2 drafts of A, because it was preempted."),
        (BeamsChosen("A", ("A.1",), ("A.1",), ("x",), (-1.0,), (), "A.1 “x”"), "the likeliest stay: A.1 “x”."),
        (BeamsChosen("A", ("A.1",), ("A.1",), ("x",), (-1.0,), ("A.2",), "A.1 “x”"), "A.1 “x”. Pruned: A.2."),
        (RequestSubmitted("A", ("a",), 2, 0, None, 0), "a prompt of 1 token, and 2 more to generate. It waits"),
        (RequestSubmitted("A", ("a",), 2, 0, None, 0, samples=3), "2 more to generate, 3 times over, by chance. It"),
        (RequestSubmitted("A", ("a",), 2, 0, None, 0, beams=3), "2 more to generate, by 3 beams. It waits"),
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
        "A wrote 3 tokens in one launch, from position 2 on, each into the slot that its block table gives."
    )


def test_every_event_and_every_refusal_has_a_sentence():
    refusals = errors.CacheError.__subclasses__()
    assert len(refusals) >= 12
    for described in [*Event.kinds.values(), *refusals]:
        assert described.__doc__
        assert not described.__doc__.startswith(described.__name__), "the docstring that a dataclass makes up"


def test_refusal_carries_its_numbers_beside_its_sentence():
    error = errors.NoFreeBlocks(seq_id="A", needed=3, free=1, total=4)
    told = error.to_json()
    assert told.pop("sentence") == error.sentence
    assert "A needs 3 more device blocks, and 1 of 4 are free" in error.sentence
    assert told == {"error": "NoFreeBlocks", "seq_id": "A", "needed": 3, "free": 1, "total": 4}


def test_batch_and_a_hit_on_a_block_of_the_same_launch_say_so():
    batch = BatchWritten(("A", "B"), (0, 4), (("a", "b", "c"), ("d",)), ((4, 5, 6), (8,)), engine_step=1)
    said = "One launch wrote 3 of A, 1 of B, each token into the slot that its sequence's block table gives."
    assert batch.sentence == said
    hit = BlockHit("B", 0, 1, "ab12", ref_count=2, tokens=("a", "b"), num_tokens=3)
    assert "as its logical block 0: it holds the same 2 tokens behind the same prefix. B computes none" in hit.sentence
    later = replace(hit, computed=False)
    assert "as its logical block 0: after this step's launch it holds the same 2 tokens" in later.sentence


def test_who_preempts_itself_is_not_named_twice():
    other = RequestPreempted("B", "A", 7, "recompute", "It waits")
    assert other.sentence == "B was preempted, because A needs more blocks than are free. It waits."
    assert replace(other, requester="B").sentence.startswith("B was preempted, because it needs more blocks")
