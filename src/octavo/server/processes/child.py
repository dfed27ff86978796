"""An API process as its supervisor sees it: start it, talk to it, notice its end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import msgspec

from octavo.errors import StartupError
from octavo.server.processes.messages import CannotStart, Channel, FromProcess, Serving, Start, ToProcess


class ApiProcess:
    """One API process, and the channel to it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel, on_word: Callable[[ApiProcess, FromProcess], None]) -> None:
        self._process = process
        self._channel = channel
        self._on_word = on_word
        self._serving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def spawn(cls, start: Start, on_word: Callable[[ApiProcess, FromProcess], None]) -> ApiProcess:
        """Return a starting process; wait_serving() tells when it answers. Raises StartupError."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "octavo.server.processes.process",
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=(start.listener, start.block, theirs.fileno()),
            )
        except OSError as error:
            ours.close()
            raise StartupError(f"an API process cannot be started: {error.strerror}") from error
        finally:
            control = theirs.fileno()
            theirs.close()
        if process.stdin is not None:
            process.stdin.write(msgspec.msgpack.encode(msgspec.structs.replace(start, control=control)))
            process.stdin.close()
        return cls(process, await Channel.over(ours, FromProcess), on_word)

    async def wait_serving(self) -> None:
        """Return when it answers requests. Raises StartupError with its own words, or its exit code."""
        await self._serving

    def tell(self, message: ToProcess) -> None:
        self._channel.send(message)

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()

    async def wait(self) -> int:
        """Return the exit code once it has ended."""
        return await self._process.wait()

    async def close(self) -> None:
        """End it at once, if it has not ended. Idempotent."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._reading.cancel()
        self._channel.close()

    async def _read(self) -> None:
        async for word in self._channel.messages():
            if isinstance(word, Serving) and not self._serving.done():
                self._serving.set_result(None)
            elif isinstance(word, CannotStart) and not self._serving.done():
                self._serving.set_exception(StartupError(word.message))
            else:
                self._on_word(self, word)
        if not self._serving.done():
            code = await self._process.wait()
            self._serving.set_exception(StartupError(f"an API process ended while starting (exit code {code}); its log is above"))
