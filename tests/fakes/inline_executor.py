"""A concurrent.futures executor that has done the work before submit() returns."""

from concurrent.futures import Executor, Future


class InlineFutures(Executor):
    def __init__(self, name: str = "") -> None:
        self.name = name

    def submit(self, work, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
