"""An engine process that has begun and is told nothing: it leaves nothing behind."""

import stat

from octavo.client.engine_launch import LaunchedEngine


def test_one_that_is_not_wanted_is_gone_with_its_directory():
    with LaunchedEngine() as engine:
        assert engine.process.poll() is None
        assert stat.S_IMODE(engine.directory.stat().st_mode) == 0o700
    assert engine.process.returncode is not None
    assert not engine.directory.exists()
    engine.close()  # again: nothing happens


def test_one_whose_launcher_goes_without_a_word_ends_by_itself(capfd):
    with LaunchedEngine() as engine:
        engine.tell(b"")
        assert engine.line.recv(1) == b""  # the end of its standard input is its own end
        assert engine.process.wait() == 0
    assert capfd.readouterr().err == ""


def test_the_other_end_tells_of_a_death():
    with LaunchedEngine() as engine:
        engine.process.kill()
        assert engine.line.recv(1) == b""
