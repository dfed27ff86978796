"""Figures: rows of several processes are one sum, and a process that has ended takes its part with it."""

from octavo.metrics.figures import ROW_BYTES, Counter, Figures, Gauge, Histogram, row_over


def rows(count):
    return [row_over(bytearray(ROW_BYTES)) for _ in range(count)]


def test_each_process_adds_to_its_row_and_sees_the_sum():
    shared = rows(3)
    counters = [Counter(Figures(shared, own)) for own in range(3)]
    for number, counter in enumerate(counters, start=1):
        counter.inc(number)
    assert [counter.value for counter in counters] == [6, 6, 6]


def test_a_value_lies_in_the_first_bucket_whose_bound_it_does_not_pass():
    histogram = Histogram(Figures(), (1, 2, 5))
    for value in (0, 1, 1.5, 2, 5, 5.1, 100):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1, 2]
    assert histogram.sum == 114.6


def test_histograms_of_several_processes_add_up():
    shared = rows(2)
    here, there = (Histogram(Figures(shared, own), (1,)) for own in range(2))
    here.observe(0.5)
    there.observe(3)
    assert (here.counts, here.sum) == (there.counts, there.sum) == ([1, 1], 3.5)


def test_what_a_dead_process_had_is_taken_off_and_told():
    shared = rows(2)
    gauges = [Gauge(Figures(shared, own)) for own in range(2)]
    gauges[0].set(2)
    gauges[1].set(5)
    assert gauges[0].clear(1) == 5
    assert gauges[0].value == 2
    assert gauges[0].parts == [2, 0]


def test_metrics_do_not_share_places():
    figures = Figures()
    first, histogram, last = Counter(figures), Histogram(figures, (1, 2)), Counter(figures)
    histogram.observe(9)
    assert (first.value, last.value) == (0, 0)
