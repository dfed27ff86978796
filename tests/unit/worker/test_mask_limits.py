"""What a grammar may cost the steps that it shares: it ends at a limit, with its own error, and the others go on."""

import time

import pytest
from tests.fakes.grammars import allowed_ids, compiled, vocabulary
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.worker import masks
from octavo.worker.masks import fill_masks

TOKENIZER = byte_level_tokenizer()
WORDS = vocabulary(TOKENIZER)


def token_of(character):
    return TOKENIZER.encode("x" + character, add_special_tokens=False)[-1]


class FakeMatcher:
    """A matcher whose masks take this long by the fake clock."""

    def __init__(self, clock, cost_s):
        self.clock, self.cost_s, self.mask_s, self.debt_s, self.error, self.num_filled = clock, cost_s, cost_s, 0.0, None, 0

    def fill(self):
        if self.error is None:
            self.num_filled += 1
            self.clock.now_s += self.cost_s

    def end(self, error):
        self.error = self.error or error


class FakeClock:
    now_s = 0.0

    def thread_time(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(masks, "time", clock)
    return clock


@pytest.mark.parametrize(
    "grammar",
    ["root ::= a\na ::= a a | [a-z ]\n", "root ::= a\na ::= a a | a a a | [a-z ]\n", 'root ::= a\na ::= a a | "a"\n'],
    ids=["any letter", "three ways", "one letter"],
)
def test_an_ambiguous_grammar_costs_little_before_it_ends_and_says_why(grammar):
    matcher = compiled(WORDS, grammar=grammar).open()
    began, steps_s = time.thread_time(), []
    while matcher.error is None and len(steps_s) < 3000:
        before = time.thread_time()
        fill_masks([matcher])
        matcher.accept(token_of("a"))
        steps_s.append(time.thread_time() - before)
    assert "the limit" in matcher.error
    assert max(steps_s) < 0.4 and time.thread_time() - began < 3


def test_one_slow_mask_ends_its_answer_alone(clock):
    slow, quick = FakeMatcher(clock, 0.06), FakeMatcher(clock, 0.0001)
    for _ in range(3):
        fill_masks([slow, quick])
    assert slow.error == masks.TOO_SLOW and "50 ms" in slow.error and slow.num_filled == 1
    assert quick.error is None and quick.num_filled == 3


def test_masks_that_are_a_little_slow_end_an_answer_after_a_while(clock):
    slow, bearable = FakeMatcher(clock, 0.03), FakeMatcher(clock, 0.004)
    for _ in range(100):
        fill_masks([slow, bearable])
    assert slow.error == masks.TOO_SLOW_IN_ALL and 5 < slow.num_filled < 15
    assert bearable.error is None and bearable.debt_s == 0


def test_many_that_are_a_little_slow_do_not_add_up_in_a_step(clock):
    crowd, quick = [FakeMatcher(clock, 0.015) for _ in range(128)], FakeMatcher(clock, 0.001)
    for _ in range(20):
        before = clock.now_s
        fill_masks([*crowd, quick])
        assert clock.now_s - before < masks.STEP_S + 0.02
    assert quick.num_filled == 20 and quick.error is None
    assert sum(slow.error == masks.TOO_SLOW_TOGETHER for slow in crowd) > 100


def test_many_that_are_quick_end_never(clock):
    crowd = [FakeMatcher(clock, 0.002) for _ in range(128)]
    for _ in range(50):
        fill_masks(crowd)
    assert all(one.error is None and one.num_filled == 50 for one in crowd)


def test_a_matcher_begins_with_what_its_first_mask_takes():
    assert 0 < compiled(WORDS, json_object=True).open().mask_s < masks.MASK_S


def test_a_grammar_that_leads_nowhere_and_a_conflict_are_told_apart():
    dead = compiled(WORDS, grammar='start: "a" A\nA: /c(x|y)/ & /c[zw]/').open()
    dead.fill()
    dead.accept(token_of("a"))
    dead.fill()
    assert "no answer can match" in dead.error
    conflict = compiled(WORDS, choice=["a"]).open()
    assert allowed_ids(conflict)
    conflict.accept(token_of("b"))
    assert "allowed_token_ids" in conflict.error


def test_a_token_that_the_mask_allows_and_the_parser_has_no_room_for_is_a_limit():
    properties = {f"name{number}": {"type": "string"} for number in range(1000)}
    matcher = compiled(WORDS, json={"type": "object", "properties": properties, "additionalProperties": False}).open()
    for text in ("{", '"'):
        matcher.fill()
        matcher.accept(token_of(text))
    assert "2,000 items" in matcher.error
