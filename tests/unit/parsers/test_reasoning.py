"""Reasoning: what stands between the marks, wherever the prompt left off."""

import pytest
from tests.fakes.tool_texts import parse

from octavo.parsers.formats import REASONING_FORMATS
from octavo.parsers.reasoning import ReasoningParser, Thinking

THINK = Thinking()


def split(text, *, inside=False, thinking=THINK, by_letter=True):
    whole = parse(ReasoningParser(thinking, inside=inside), [text])
    if by_letter:
        assert parse(ReasoningParser(thinking, inside=inside), list(text)) == whole
    return whole.reasoning, whole.content


@pytest.mark.parametrize("name", REASONING_FORMATS)
def test_every_format_tells_reasoning_from_answer(name):
    thinking = REASONING_FORMATS[name]
    text = f"{thinking.open}\nHm,\n\nwell. \n{thinking.close}\n\nYes. \n"
    assert split(text, thinking=thinking) == ("Hm,\n\nwell.", "Yes. \n")


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("no thoughts", False, ("", "no thoughts")),
        ("  no thoughts ", False, ("", "  no thoughts ")),
        ("hm</think>yes", True, ("hm", "yes")),
        ("<think>hm</think>yes", True, ("hm", "yes")),
        ("hm, and never an end \n", True, ("hm, and never an end", "")),
        ("<think>", False, ("", "")),
        ("<thin", False, ("", "<thin")),
        ("hm</thin", True, ("hm</thin", "")),
        ("so <think>no</think>", False, ("", "so <think>no</think>")),
        ("<think></think>a</think>b", False, ("", "a</think>b")),
        ("", True, ("", "")),
    ],
)
def test_only_the_beginning_can_be_reasoning(text, inside, expected):
    assert split(text, inside=inside) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm\n</think>\n<answer>\nYes. \n</answer>\n", ("hm", "Yes.")),
        ("<answer>Yes</answer>", ("", "Yes")),
        ("<think>hm</think>Yes", ("hm", "Yes")),
        ("<think>hm</think>a <answer>b</answer> c", ("hm", "a <answer>b</answer> c")),
        ("<think>hm</think><answer>cut sho", ("hm", "cut sho")),
        ("<think>hm</think><ans", ("hm", "<ans")),
        ("<think>hm</think><answer>a</answer>b</answer>", ("hm", "ab</answer>")),
    ],
)
def test_marks_around_the_answer_are_no_part_of_it(text, expected):
    assert split(text, thinking=REASONING_FORMATS["hunyuan_a13b"]) == expected


@pytest.mark.parametrize(
    ("prompt_end", "plain", "begins"),
    [
        ("<|assistant|>\n", False, True),
        ("<|assistant|>\n<think>\n", True, True),
        ("<|assistant|>\n<think>\n\n</think>\n\n", False, False),
        ("say <think> please<|end|><|assistant|>\n", False, True),
    ],
)
def test_the_prompt_tells_whether_the_answer_begins_inside(prompt_end, plain, begins):
    assert THINK.is_inside(prompt_end) is plain
    assert Thinking(begins_inside=True).is_inside(prompt_end) is begins


def test_it_is_known_while_reasoning_lasts():
    parser = ReasoningParser(THINK, inside=False)
    states = []
    for piece in ("<think>", "hm", "</think>", "yes"):
        parser.push(piece)
        states.append(parser.is_thinking)
    assert states == [True, True, False, False]
