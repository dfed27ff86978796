"""Starts an engine process and ends it: the parent's half of process.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.config.schema import EngineConfig
from octavo.engine.socket import socket_address

STOP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class EngineProcess:
    """A started engine. Connect a ZeroMQ DEALER to `address` and send any message: EngineReady comes first, or EngineFailed."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def address(self) -> str:
        return socket_address(self.directory)

    def close(self) -> int:
        """Stop the engine, kindly for STOP_TIMEOUT_S, then not; remove its socket. Returns its exit status."""
        self.process.terminate()
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        return status


def launch_engine(config: EngineConfig) -> EngineProcess:
    """Start an engine process on a fresh socket and return without waiting for it.

    Call it from a thread that lives as long as the engine shall (the main thread): the kernel ends the engine with it.
    """
    directory = Path(tempfile.mkdtemp(prefix="octavo-"))  # mode 0700
    command = [sys.executable, "-m", "octavo.engine.process", str(directory), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(msgspec.msgpack.encode(config))
    return EngineProcess(process, directory)
