"""Where rollouts run: the executor of a run, checked against its actors and its sandbox before anything begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from adescent.config import RunConfig
from adescent.errors import ContractError
from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.executors.signatures import is_async
from adescent.policies import Executor
from adescent.refs import Ref, Resolver
from adescent.workspec import SandboxSpec

__all__ = ["Placement", "placed"]


@frozen(eq=False)
class Placement:
    """The executor of a run; the ``sandbox`` its specs are sent with, or None where they bring none."""

    executor: Executor
    sandbox: SandboxSpec | None

    @property
    def fingerprint(self) -> str:
        """That of the sandbox rollouts are confined by, or ``""``: figures of another one are never taken for these."""
        confined_by = self.sandbox or getattr(self.executor, "sandbox", None)
        return "" if confined_by is None else str(confined_by.fingerprint())


def placed(config: RunConfig, resolver: Resolver, at_once: int) -> Placement:
    """The executor that was asked for, or the default for ``at_once`` rollouts and evaluations.

    One that takes no callables runs its actors elsewhere, and perhaps code that nobody trusts: its Refs are checked
    against what may resolve, and nothing of them is imported here. Raises ContractError for an actor it does not take
    and for a sandbox it knows nothing of, RefError for a Ref that may not resolve or, where the executor is the
    default, does not.
    """
    executor = config.policies.executor
    sandbox = config.policies.sandbox
    if sandbox is not None and not getattr(executor, "confines", False):
        _refuse_to_confine(executor, sandbox)
        sandbox = None
    if executor is None:
        run = resolver.resolve(config.run) if isinstance(config.run, Ref) else config.run
        return Placement(InlineExecutor() if is_async(run) else ThreadExecutor(at_once), sandbox)
    if not executor.takes_callables:
        for name, actor in _actors_elsewhere(config):
            if not isinstance(actor, Ref):
                raise ContractError(_by_name(executor, name, actor))
            resolver.check(actor)
    return Placement(executor, sandbox)


def _refuse_to_confine(executor: Executor | None, sandbox: SandboxSpec) -> None:
    if sandbox.asks_for_something:
        given = "the default executor" if executor is None else type(executor).__name__
        raise ContractError(
            f"Policies(sandbox=…) is given and {given} confines nothing: use Policies(executor=ProcessExecutor(n), "
            "sandbox=…), with run= and reward= as Refs, or leave the sandbox out."
        )


def _actors_elsewhere(config: RunConfig) -> Iterator[tuple[str, Any]]:
    yield "run", config.run
    yield "reward", config.reward
    if config.oracle is not None:
        yield "oracle", config.oracle


def _by_name(executor: Executor, name: str, actor: Any) -> str:
    return (
        f"{type(executor).__name__} takes actors as Refs and {name}= is a {type(actor).__name__}: "
        f"{_ref_to(name, actor)}; or use an InlineExecutor or ThreadExecutor, which take functions."
    )


def _ref_to(name: str, actor: Any) -> str:
    """What to write instead of an object that another process cannot get at."""
    module, attribute = str(getattr(actor, "__module__", "")), str(getattr(actor, "__qualname__", ""))
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    if module != "__main__" and getattr(sys.modules.get(module), attribute, None) is actor:
        allowed = "" if ours else f" and allow=({module + ':'!r},)"
        return f"write {name}=Ref('{module}:{attribute}', call=False){allowed}"
    if ours:
        return f"write {name}=Ref('{module}:…', {{…}}) with the function that made it, and its settings"
    return (
        f"define it at the top of a module and write {name}=Ref('my_module:my_{name}', call=False) "
        "and allow=('my_module:',)"
    )
