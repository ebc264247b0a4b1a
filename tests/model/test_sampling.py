"""Words from scores: the same everywhere, and drawn as often as their softmax says."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from pagedviz.model import sampling
from pagedviz.model.vocabulary import VOCABULARY

SCORES = np.random.default_rng(0).standard_normal(len(VOCABULARY))
TIED = np.zeros(len(VOCABULARY))


def test_greedy_is_the_highest_score_and_the_first_word_of_equal_ones():
    assert sampling.greedy(SCORES) == VOCABULARY[int(SCORES.argmax())]
    assert sampling.greedy(TIED) == VOCABULARY[0]


def test_draws_are_as_frequent_as_softmax_says():
    draws = 4_000
    counts = Counter(sampling.greedy(sampling.noised(SCORES, seed, "A", 5)) for seed in range(draws))
    expected = draws * np.exp(SCORES) / np.exp(SCORES).sum()
    found = np.array([counts[word] for word in VOCABULARY])
    chi_square = float((np.square(found - expected) / expected).sum())
    # A chi-square of 104 degrees of freedom is above 104 + 4 sqrt(208) once in some 10,000 seeds; these are fixed.
    assert chi_square < 104 + 4 * math.sqrt(2 * 104)


@pytest.mark.parametrize("changed", [{"seed": 1}, {"seq_id": "B"}, {"position": 6}])
def test_chance_is_of_the_seed_the_sequence_and_the_position(changed):
    given = {"seed": 0, "seq_id": "A", "position": 5}
    assert np.array_equal(sampling.noised(SCORES, **given), sampling.noised(SCORES, **given))
    assert not np.array_equal(sampling.noised(SCORES, **given), sampling.noised(SCORES, **(given | changed)))


def test_another_process_draws_the_same_words():
    asked = "import numpy as np; from pagedviz.model.sampling import noised;"
    asked += "print(noised(np.zeros(105), 3, 'é', 2).tolist())"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert eval(said) == sampling.noised(np.zeros(105), 3, "é", 2).tolist()


def test_best_are_in_order_with_their_log_probabilities():
    best = sampling.best(SCORES, 5)
    assert [word for word, _ in best] == [VOCABULARY[i] for i in np.argsort(-SCORES)[:5]]
    softmax = np.exp(SCORES) / np.exp(SCORES).sum()
    assert [score for _, score in best] == pytest.approx(sorted(np.log(softmax), reverse=True)[:5])
    assert [word for word, _ in sampling.best(TIED, 3)] == VOCABULARY[:3]


def test_gap_is_what_would_change_the_choice_or_its_order():
    scores = np.array([1.0, 4.0, 3.5, 2.0, 1.75])
    assert sampling.gap(scores) == 0.5
    assert [sampling.gap(scores, k) for k in (1, 2, 3, 4, 5)] == [0.5, 0.5, 0.25, 0.25, 0.25]
    assert sampling.gap(TIED) == 0
    assert sampling.gap(np.array([1.0])) == math.inf
