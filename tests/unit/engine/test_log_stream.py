"""Log lines: whole and in order where they are read, dropped with a count where they are not, and nobody ever waits for them."""

import os
import re
import threading

from octavo.engine.log_stream import LogStream

LINE = "x" * 999 + "\n"


def test_lines_come_whole_and_in_order():
    reader, writer = os.pipe()
    stream = LogStream(writer)
    for number in range(100):
        stream.write(f"line {number}\n")
    assert stream.drain(10)
    assert os.read(reader, 1 << 16).decode() == "".join(f"line {number}\n" for number in range(100))


def test_a_pipe_that_nobody_reads_stops_no_one_and_what_was_lost_is_told_once_it_is_read():
    reader, writer = os.pipe()
    stream = LogStream(writer, max_lines=10)
    num_written = 0
    while stream.drain(0.1):  # until the pipe is full
        stream.write(LINE)
        num_written += 1
    for _ in range(1000):  # far more than the queue holds; a write that waited would never end
        stream.write(LINE)
    pieces = []

    def read():
        while piece := os.read(reader, 1 << 16):
            pieces.append(piece)

    reading = threading.Thread(target=read)
    reading.start()
    assert stream.drain(10)
    stream.write("the next\n")
    assert stream.drain(10)
    os.close(writer)
    reading.join()
    text = b"".join(pieces).decode()
    dropped = sum(int(number) for number in re.findall(r"octavo: (\d+) log lines were dropped", text))
    assert dropped == num_written + 1000 - text.count(LINE) >= 990
    assert "the next\n" in text


def test_a_pipe_that_is_closed_at_the_other_end_harms_nobody():
    reader, writer = os.pipe()
    os.close(reader)
    stream = LogStream(writer)
    stream.write(LINE)
    assert stream.drain(10)
    os.close(writer)
