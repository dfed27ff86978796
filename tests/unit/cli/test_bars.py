"""Charts in text."""

from octavo.cli.bars import columns, sparkline


def test_a_sparkline_fits_its_width():
    assert sparkline([0, 1], 50) == "▁█"
    assert len(sparkline(range(1000), 50)) == 50


def test_a_column_is_as_high_as_its_share_of_the_largest():
    assert [row[0::3] for row in columns([(0, 1.0), (1, 0.5), (2, 0.0)], height=2)] == ["█  ", "██ "]
