"""One by one: which request is chosen, which calls it makes, and when it is freed."""

from pagedviz.engine.policies.orders import first_come, longest_prefix_first
from pagedviz.engine.requests.serving import one_by_one

PROMPTS = {"E": "xyz", "F": "abcd", "G": "abcdefg"}


class Memory:
    """Remembers only the last prompt. The next prompt hits the tokens that both have in common."""

    def __init__(self):
        self.last, self.done = "abcdef", []

    def num_hit_tokens(self, tokens):
        pairs = enumerate(zip(tokens, self.last, strict=False))
        return next((i for i, (one, other) in pairs if one != other), min(len(tokens), len(self.last)))

    def add(self, seq_id, tokens):
        self.last = tokens
        self.done.append(f"add {seq_id}")

    def free(self, seq_id):
        self.done.append(f"free {seq_id}")


def test_first_come_serves_as_they_came_and_finds_what_is_left():
    assert list(one_by_one(Memory(), PROMPTS, first_come)) == [("E", 0), ("F", 0), ("G", 4)]


def test_longest_prefix_is_looked_for_anew_before_each():
    assert list(one_by_one(Memory(), PROMPTS, longest_prefix_first)) == [("G", 6), ("F", 4), ("E", 0)]
    prompts = {"E": "m1", "F": "abcd", "G": "n1", "H": "m2"}
    assert list(one_by_one(Memory(), prompts, longest_prefix_first)) == [("F", 4), ("E", 0), ("H", 1), ("G", 0)]


def test_each_is_finished_before_the_next_one_is_admitted():
    memory = Memory()
    served = one_by_one(memory, PROMPTS, first_come)
    assert next(served) == ("E", 0)
    assert memory.done == ["add E"]
    list(served)
    assert memory.done == ["add E", "free E", "add F", "free F", "add G", "free G"]
