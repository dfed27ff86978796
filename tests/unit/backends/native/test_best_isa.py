import pytest

from octavo.backends.native.backend import best_isa


@pytest.mark.parametrize(
    ("isas", "few_rows", "best"),
    [
        (["portable", "avx2", "avx512", "amx"], False, "amx"),
        (["portable", "avx2", "avx512", "amx"], True, "avx512"),
        (["portable", "avx2"], True, "avx2"),
        (["portable", "neon", "i8mm"], True, "i8mm"),
        (["portable"], False, "portable"),
    ],
)
def test_the_widest_isa_is_taken_but_for_few_rows_none_that_works_in_tiles(isas, few_rows, best):
    assert best_isa(isas, few_rows) == best
