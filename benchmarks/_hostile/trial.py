"""One attempt at one level, watched from before it begins until what comes after it has ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from _hostile.attempts import Attempt
from _hostile.scene import Scene, kill, processes_called
from adescent.sandbox import Level, isolates

STEP = 0.02
GONE_WITHIN = 1.0
"""Seconds after the end of a rollout, or its deadline, within which what is contained has gone."""
PATIENCE = 25.0
"""Seconds after which something is wrong with the battery itself."""
QUICK, BEHIND = 40, 4
STOLEN = 2.0
"""Seconds after which a rollout is given up whose order somebody has taken from the pipe."""


@frozen
class Finding:
    """What came of an attempt: the verdict (``stopped``, ``contained``, ``not``, or nothing where it means nothing).

    ``seconds`` is how long it took until an effect was gone; ``tried`` what the techniques say, ``error`` the rollout.
    """

    level: Level
    attempt: str
    words: str
    verdict: str
    seconds: float | None = None
    tried: dict[str, str] = field(factory=dict)
    error: str = ""


class BatteryBroken(Exception):
    """The battery itself has failed, so nothing is known."""


def find_out(scene: Scene, attempt: Attempt) -> Finding:
    """What comes of an attempt in the first of its tries that has an effect, or in the last."""
    finding = Trial(scene, attempt).run()
    for _ in range(attempt.tries - 1):
        if finding.verdict == "stopped":
            finding = Trial(scene, attempt).run()
    return finding


class Trial:
    """One try of an attempt."""

    def __init__(self, scene: Scene, attempt: Attempt) -> None:
        self.scene = scene
        self.attempt = attempt
        self.host = scene.host
        self.seen = False

    def run(self) -> Finding:
        """Begin, watch, and see what comes after it."""
        self.scene.refresh()
        self._open(2 if self.attempt.beside else 1)
        if self.attempt.beside:
            self._roll("neighbour", mine=self.scene.mine, marker=self.scene.neighbour)
            self._watch(lambda: bool(processes_called(self.scene.neighbour)))
        for number in range(QUICK if self.attempt.behind else 0):
            self._roll(f"quick {number}")
        neighbours = processes_called(self.scene.neighbour) if self.attempt.beside else []
        self._roll("attack", attempt=self.attempt.name, neighbour=next(iter(neighbours), 0))
        for number in range(BEHIND if self.attempt.behind else 0):
            self._roll(f"behind {number}", seconds=STOLEN)
        self._until("attack")
        seconds = self._gone_after()
        self._go_on()
        return self._finding(seconds)

    def _open(self, workers: int) -> None:
        if self.host.workers == workers:
            return
        if self.host.workers:
            self._close()
        self.host.tell(do="open", workers=workers)
        self._until("opened")
        self.host.workers = workers

    def _close(self) -> None:
        self.host.tell(do="close")
        self._until("closed")
        self.host.workers = 0

    def _roll(self, role: str, *, seconds: float = PATIENCE, **given: Any) -> None:
        seconds = self.attempt.seconds if role == "attack" else seconds
        known = {**self.scene.given(), "attempt": role.split()[0], **given}
        gold = self.scene.gold_behind if role.startswith("behind") else self.scene.gold
        self.host.tell(do="run", role=role, given=known, gold=gold, seconds=seconds)

    def _until(self, role: str) -> None:
        """Watch until the parent has said that, or has ended."""
        self._watch(lambda: role in self.scene.said or not self.host.is_alive or self._is_to_be_killed(role))

    def _is_to_be_killed(self, role: str) -> bool:
        if not (self.attempt.kills and self.seen and role == "attack"):
            return False
        self.host.kill()
        return True

    def _watch(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                raise BatteryBroken(f"{self._name}: nothing happens; so far: {self.scene.said}")
            self._look()
            if (said := self.host.hear(STEP)) is not None:
                self.scene.said[said.pop("role")] = said

    def _look(self) -> bool:
        effect = self.attempt.effect(self.scene)
        self.seen = self.seen or effect
        return effect

    def _gone_after(self) -> float | None:
        """Seconds until no effect is seen any more; None when one is seen for longer than it may be."""
        began = time.monotonic()
        while self._look():
            if time.monotonic() - began > GONE_WITHIN:
                return None
            time.sleep(STEP / 4)
        return time.monotonic() - began

    def _go_on(self) -> None:
        """The rollouts that follow; and the end of the executor, where an interpreter serves more than one."""
        if self.host.is_alive and self.attempt.later:
            self._roll("next")
            self._until("next")
        if self.host.is_alive and self.attempt.beside:
            self._watch(self._neighbour_has_ended)
        if not self.host.is_alive:
            self.host.kill()
        elif self.attempt.beside or self.attempt.behind or self.attempt.later or not isolates(self.scene.level):
            self._close()

    def _neighbour_has_ended(self) -> bool:
        for pid in processes_called(self.scene.neighbour):
            kill(pid, signal.SIGUSR1)
        return "neighbour" in self.scene.said or not self.host.is_alive

    def _finding(self, seconds: float | None) -> Finding:
        lasts = self._look()
        verdict = "stopped" if not self.seen else "not" if lasts or seconds is None else "contained"
        said = self.scene.said.get("attack", {"error": "", "output": None, "level": self.scene.level})
        tried = (said["output"] or {}).get("tried", {})
        mistakes = [f"{name}: {outcome}" for name, outcome in tried.items() if outcome.startswith("!!")]
        if mistakes or said["error"].startswith("caller") or said["level"] != self.scene.level:
            raise BatteryBroken(f"{self._name}: {mistakes or said}")
        shown = {name: outcome[:200] for name, outcome in tried.items()}
        after = seconds if verdict == "contained" else None
        return Finding(self.scene.level, self.attempt.name, self.attempt.words, verdict, after, shown, said["error"])

    @property
    def _name(self) -> str:
        return f"{self.attempt.name!r} at {self.scene.level}"
