import pytest
from tests.fakes.history_worker import make_request

from octavo.errors import CapacityError, ContextLengthExceeded, InvalidRequest
from octavo.scheduler.admission import Limits, check_request

LIMITS = Limits(max_model_len=100, max_num_seqs=4, max_num_batched_tokens=16, vocab_size=50)


def test_a_request_that_fits_exactly_passes():
    check_request(make_request("r", [1] * 40, max_tokens=25), LIMITS, kv_tokens=64)  # the last of 65 tokens is never computed


def test_a_request_larger_than_all_kv_memory_is_told_need_and_capacity():
    with pytest.raises(CapacityError, match="KV memory for 65 tokens; this server has 64"):
        check_request(make_request("r", [1] * 40, max_tokens=26), LIMITS, kv_tokens=64)


def test_max_tokens_beyond_the_context_is_cut_not_refused():
    check_request(make_request("r", [1] * 40, max_tokens=1000), LIMITS, kv_tokens=99)


@pytest.mark.parametrize("length", [100, 101])
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(length):
    with pytest.raises(ContextLengthExceeded, match=f"prompt has {length} tokens; this server takes 100"):
        check_request(make_request("r", [1] * length), LIMITS, kv_tokens=1000)


@pytest.mark.parametrize("token_id", [-1, 50, 1 << 40])
def test_token_ids_outside_the_vocabulary_are_refused(token_id):
    for request in (
        make_request("r", [1, token_id]),
        make_request("r", [1], resume=[token_id]),
    ):
        with pytest.raises(InvalidRequest, match=r"outside 0\.\.49"):
            check_request(request, LIMITS, kv_tokens=1000)


def test_a_bias_for_an_unknown_token_is_refused():
    with pytest.raises(InvalidRequest, match="logit_bias"):
        check_request(make_request("r", [1], logit_bias={50: 1.0}), LIMITS, kv_tokens=1000)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidRequest, match="no token"):
        check_request(make_request("r", []), LIMITS, kv_tokens=1000)
