"""Every error this library raises on purpose.

::

    AdescentError
    ├── ContractError             what was handed in cannot work; nothing has been lost
    │   ├── OptionError           an option, or two together, that make no sense (also a TypeError)
    │   ├── ProposalError         a proposal of the right type whose content cannot be read
    │   ├── GovernanceError       a frozen artifact was about to be changed
    │   ├── RefError              a Ref that is malformed, not allowed here, or does not resolve
    │   ├── SandboxUnavailable    a level of confinement that was required cannot be reached here
    │   └── VoidScore             a scorer returned something that is no score
    ├── LedgerError               the ledger cannot read or write
    │   ├── CASConflict           somebody else committed the same artifact first
    │   ├── UnknownArtifact       no artifact (or no version of it) by that name
    │   └── LedgerCorrupt         the repository holds something a ledger never writes
    ├── RunDirError               a run directory that cannot be used
    │   ├── RunDirInUse           another run holds its lock
    │   └── RunDirMismatch        it belongs to a run of another configuration
    ├── ActorsNeverWorked         run or propose failed every time it was tried
    ├── BudgetExhausted           a hard budget does not cover what was about to be done
    ├── RunCancelled              the run was cancelled before it had a result
    ├── LoopRunning               the blocking front door was used inside an event loop
    ├── WireError                 parent and worker process do not understand each other
    ├── WrongThread               a handle was used from a thread that does not own it
    └── Transient                 for actors to raise: "try me again" (rate limit, overload)

Errors keep their plain arguments, so they survive a copy or a pickle, and put them into words in ``__str__``.
"""

from __future__ import annotations

__all__ = [
    "ActorsNeverWorked",
    "AdescentError",
    "BudgetExhausted",
    "CASConflict",
    "ContractError",
    "GovernanceError",
    "LedgerCorrupt",
    "LedgerError",
    "LoopRunning",
    "OptionError",
    "ProposalError",
    "RefError",
    "RunCancelled",
    "RunDirError",
    "RunDirInUse",
    "RunDirMismatch",
    "SandboxUnavailable",
    "Transient",
    "UnknownArtifact",
    "VoidScore",
    "WireError",
    "WrongThread",
]


class AdescentError(Exception):
    """The root: catch this to catch everything the library raises on purpose."""


class ContractError(AdescentError):
    """What was handed in cannot work. The message says what to change."""


class OptionError(ContractError, TypeError):
    """An option that does not exist, contradicts another one, or means nothing here."""


class ProposalError(ContractError):
    """A proposal of a type the strategy takes, whose content it cannot read: a failed proposal, as models make them."""


class GovernanceError(ContractError):
    """A frozen artifact was about to be registered, changed or proposed to."""

    def __init__(self, artifact_id: str) -> None:
        super().__init__(artifact_id)
        self.artifact_id = artifact_id

    def __str__(self) -> str:
        return f"{self.artifact_id!r} is frozen: no run may register or change it. Give your artifact another id."


class RefError(ContractError):
    """A Ref that is malformed, is not allowed to resolve here, or does not resolve."""


class SandboxUnavailable(ContractError):
    """A level of confinement that was required cannot be reached here."""

    def __init__(self, level: str, reached: str, missing: str) -> None:
        super().__init__(level, reached, missing)
        self.level = level
        self.reached = reached
        self.missing = missing

    def __str__(self) -> str:
        return f"sandbox level {self.level!r} is required, {self.reached!r} can be reached here: {self.missing}"


class VoidScore(ContractError):
    """A scorer returned something that is no finite number in [0, 1]: counted and reported, never taken for 0."""


class LedgerError(AdescentError):
    """The ledger cannot read or write."""


class CASConflict(LedgerError):
    """The artifact moved on since the base version was read."""

    def __init__(self, artifact_id: str, expected: int, found: int) -> None:
        super().__init__(artifact_id, expected, found)
        self.artifact_id = artifact_id
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.artifact_id!r} is at version {self.found}, not {self.expected}: "
            "read the head again, rebase the change onto it and commit that."
        )


class UnknownArtifact(LedgerError):
    """No artifact, or no such version of it, in the ledger."""

    def __init__(self, artifact_id: str, version: int | None = None) -> None:
        super().__init__(artifact_id, version)
        self.artifact_id = artifact_id
        self.version = version

    def __str__(self) -> str:
        if self.version is None:
            return f"the ledger holds no artifact {self.artifact_id!r}: register it first."
        return f"the ledger holds no version {self.version} of {self.artifact_id!r}: see history()."


class LedgerCorrupt(LedgerError):
    """The repository holds something a ledger never writes."""


class RunDirError(AdescentError):
    """A run directory that cannot be used."""


class RunDirInUse(RunDirError):
    """Another run holds the directory's lock."""

    def __init__(self, path: str, holder: str = "") -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        by = f" by {self.holder}" if self.holder else ""
        return f"run directory {self.path} is in use{by}: wait for that run to end, or choose another directory."


class RunDirMismatch(RunDirError):
    """The directory belongs to a run of another configuration."""

    def __init__(self, path: str, differences: str) -> None:
        super().__init__(path, differences)
        self.path = path
        self.differences = differences

    def __str__(self) -> str:
        return (
            f"run directory {self.path} belongs to another configuration ({self.differences}): "
            "choose another directory, or go back to the configuration it was made with."
        )


class ActorsNeverWorked(AdescentError):
    """An actor failed every time it was tried: the run ended without having learnt anything."""

    def __init__(self, actor: str, attempts: int, causes: tuple[str, ...]) -> None:
        super().__init__(actor, attempts, causes)
        self.actor = actor
        self.attempts = attempts
        self.causes = causes

    def __str__(self) -> str:
        return f"{self.actor} failed in all of its {self.attempts} calls: " + "; ".join(self.causes)


class BudgetExhausted(AdescentError):
    """A hard budget does not cover what was about to be done."""

    def __init__(self, which: str, asked: int, left: int) -> None:
        super().__init__(which, asked, left)
        self.which = which
        self.asked = asked
        self.left = left

    def __str__(self) -> str:
        return (
            f"the budget of {self.which} has {self.left} left and {self.asked} were needed: "
            f"raise Budget({self.which}=…)."
        )


class RunCancelled(AdescentError):
    """The run was cancelled before it had a result."""


class LoopRunning(AdescentError, RuntimeError):
    """The blocking front door was used where an event loop already runs."""

    def __init__(self, function: str, instead: str) -> None:
        super().__init__(function, instead)
        self.function = function
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.function} blocks and an event loop is running here: write `await {self.instead}` instead."


class WireError(AdescentError):
    """A message between parent and worker process cannot be sent, or what arrived is none."""


class WrongThread(AdescentError, RuntimeError):
    """A handle was used from a thread that does not own it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} belongs to the event loop's own thread: enter it through anyio.from_thread.run_sync()."


class Transient(AdescentError):
    """Raised by an actor whose failure may pass: it is called again, after ``retry_after`` seconds if that is given."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message or "a passing failure"
