"""The floor: two interpreters, two pipes each, and nothing that a pool is for.

Frames of four bytes of length and a flat record in msgpack by cattrs, a fixed number of tasks in flight in each worker,
no supervision: a worker that dies ends the measurement. They are in sessions of their own, as a pool's workers are,
since a busy machine is shared out by session. `StreamFloor` talks through anyio's process streams, as a pool
on an event loop would first be written; `BareFloor` has no event loop at all: ``select`` and ``os.read``.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import msgpack
from _pool_tasks import Task, do
from attrs import field, frozen
from cattrs.preconf.msgpack import make_converter

WORKERS = 2
HEADER = 4
PIPE = 2**20
Note = Callable[[int, "int | BaseException"], None]


@frozen
class Ask:
    """To a worker: one task, and the artifact by the digest it was sent under."""

    lease: int
    job: int
    artifact: str
    task_id: str
    prompt: str
    meta: dict[str, Any] = field(factory=dict)


@frozen
class Text:
    """To a worker: an artifact."""

    digest: str
    text: str


@frozen
class Answer:
    """From a worker."""

    lease: int
    seconds: float
    output: Any = None
    score: float | None = None


CONVERTER = make_converter()
TAGS: dict[str, type[Any]] = {"ask": Ask, "text": Text, "answer": Answer}
NAMES = {kind: tag for tag, kind in TAGS.items()}


def pack(message: Ask | Text | Answer) -> bytes:
    """A whole frame."""
    kind = type(message)
    body: bytes = msgpack.packb([NAMES[kind], CONVERTER.unstructure(message, kind)])
    return len(body).to_bytes(HEADER, "big") + body


def unpack(body: bytes) -> Any:
    tag, fields = msgpack.unpackb(body)
    return CONVERTER.structure(fields, TAGS[tag])


def serve(source: Any, sink: Any) -> None:
    """The worker: answer until the pipe ends."""
    artifacts = {"": ""}
    while header := source.read(HEADER):
        message = unpack(source.read(int.from_bytes(header, "big")))
        if isinstance(message, Text):
            artifacts[message.digest] = message.text
            continue
        began = time.perf_counter()
        task = (message.meta["kind"], message.meta["argument"], artifacts[message.artifact], message.prompt)
        output = do(task)
        sink.write(pack(Answer(message.lease, time.perf_counter() - began, output, 1.0)))
        sink.flush()


class Sending:
    """What one worker has been told; `frames` are those of the next task."""

    def __init__(self) -> None:
        self.sent: dict[str, str] = {"": ""}

    def frames(self, index: int, task: Task) -> bytes:
        kind, argument, artifact, payload = task
        frames = b""
        if artifact not in self.sent:
            self.sent[artifact] = digest = f"{len(self.sent)}"
            frames = pack(Text(digest, artifact))
        meta = {"kind": kind, "argument": argument}
        return frames + pack(Ask(index, 1, self.sent[artifact], str(index), payload, meta))


class StreamFloor:
    """Two workers behind anyio's process streams, ``in_flight`` tasks in each."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.workers: list[tuple[Any, Any, Sending]] = []

    async def __aenter__(self) -> Self:
        import anyio
        from anyio.streams.buffered import BufferedByteReceiveStream

        for _ in range(WORKERS):
            process = await anyio.open_process([sys.executable, __file__], stderr=None, start_new_session=True)
            assert process.stdout is not None
            self.workers.append((process, BufferedByteReceiveStream(process.stdout), Sending()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            await worker[0].aclose()

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        import anyio

        numbered = enumerate(tasks)
        async with anyio.create_task_group() as group:
            for process, answers, sending in self.workers:
                group.start_soon(self._drive, process, answers, sending, numbered, note)

    async def _drive(
        self, process: Any, answers: Any, sending: Sending, numbered: Iterator[tuple[int, Task]], note: Note
    ) -> None:
        under_way = 0
        while True:
            frames = []
            while under_way < self.in_flight and (item := next(numbered, None)):
                frames.append(sending.frames(*item))
                under_way += 1
            if frames:
                await process.stdin.send(b"".join(frames))
            if not under_way:
                return
            size = int.from_bytes(await answers.receive_exactly(HEADER), "big")
            answer = unpack(await answers.receive_exactly(size))
            under_way -= 1
            note(answer.lease, answer.output)


class BareWorker:
    """A child and its two pipes; what does not go through at once is kept."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pipesize=PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.stdin, False)
        self.sending = Sending()
        self.out = memoryview(b"")
        self.inbox = bytearray()
        self.under_way = 0

    def fill(self, numbered: Iterator[tuple[int, Task]], in_flight: int) -> None:
        """Hand over tasks until so many are in flight; what is still to be written goes first."""
        frames = [self.out]
        while self.under_way < in_flight and (item := next(numbered, None)):
            frames.append(memoryview(self.sending.frames(*item)))
            self.under_way += 1
        self.out = memoryview(b"".join(frames)) if len(frames) > 1 else self.out
        self.write()

    def write(self) -> None:
        """Write until the pipe is full."""
        try:
            while self.out:
                self.out = self.out[os.write(self.stdin, self.out) :]
        except BlockingIOError:
            pass

    def read(self) -> Iterator[Answer]:
        """The answers that one read completes."""
        self.inbox += os.read(self.stdout, PIPE)
        while len(self.inbox) >= HEADER:
            end = HEADER + int.from_bytes(self.inbox[:HEADER], "big")
            if len(self.inbox) < end:
                return
            answer: Answer = unpack(bytes(self.inbox[HEADER:end]))
            del self.inbox[:end]
            self.under_way -= 1
            yield answer


class BareFloor:
    """Two workers and one thread that waits for either; no event loop."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight

    async def __aenter__(self) -> Self:
        self.workers = [BareWorker() for _ in range(WORKERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.process.communicate(timeout=10)

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        numbered = enumerate(tasks)
        for worker in self.workers:
            worker.fill(numbered, self.in_flight)
        while any(worker.under_way for worker in self.workers):
            readers = [worker.stdout for worker in self.workers]
            writers = [worker.stdin for worker in self.workers if worker.out]
            readable, writable, _ = select.select(readers, writers, [])
            for worker in self.workers:
                if worker.stdin in writable:
                    worker.write()
                if worker.stdout in readable:
                    for answer in worker.read():
                        note(answer.lease, answer.output)
                    worker.fill(numbered, self.in_flight)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
