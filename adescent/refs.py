"""Actors by name: a `Ref` says which attribute of which module, with what settings; a `Resolver` makes the object.

A callable cannot be sent to another process, hashed, or written to a journal; a name with a JSON config can. What a
name may reach is a trust boundary, because resolving imports and calls::

    target                       resolves when
    adescent.rewards:contains    it is registered there, with @nameable
    my_pkg.evals:strict          a host said allow=("my_pkg.evals:",) and that module itself defines `strict`
    os:system                    never: under no allowed prefix, so it is not even imported

Names that could mean more than one public attribute of one module (dotted, private, non-ASCII) are refused outright.
"""

from __future__ import annotations

import importlib
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

from attrs import field, frozen

from adescent.canonical import MAX_DEPTH, canonical_json, check_json, digest_of
from adescent.errors import ContractError, RefError

__all__ = ["Ref", "Resolver", "nameable"]

REF_KEY = "$ref"

_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_TARGET = re.compile(rf"({_MODULE}):([A-Za-z]\w*)", re.ASCII)
_ALLOWED = re.compile(rf"({_MODULE})(?:\.|:(?:[A-Za-z]\w*)?)", re.ASCII)
_SCALARS = (type(None), bool, int, float, str)

_registered: dict[str, Any] = {}

Named = TypeVar("Named", bound=Callable[..., Any])


class FrozenConfig(Mapping[str, Any]):
    """A config that stays as it is: keys sorted, lists as tuples, dicts as `FrozenConfig`; it can be pickled."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = {key: entries[key] for key in sorted(entries)}

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(self._entries)


def _checked_target(target: object) -> str:
    module, attribute = _split_target(target)
    return f"{module}:{attribute}"


def _frozen_config(config: object) -> FrozenConfig:
    if not isinstance(config, Mapping):
        raise RefError(f"config must be a dict of keyword arguments, not {type(config).__name__}.")
    return _freeze_mapping(config, "config", 0, spelled_out=False)


@frozen(cache_hash=True)
class Ref:
    """An actor (or a part of one) by name, fit to be sent, stored, hashed and compared.

    `target` is `"module:attribute"`: ASCII names, one public attribute at the module's top level. `config` becomes its
    keyword arguments: JSON scalars (finite floats, 64-bit signed integers, text without lone surrogates), lists and
    dicts of them, and Refs, at most 64 levels deep; it is copied and frozen, and `plain_config()` gives an ordinary
    dict back. With `call=False` the attribute itself is meant, and there can be no config.

    Two Refs are equal when their canonical JSON is: `1`, `1.0` and `True` are three values; the order of keys does not
    count. Raises RefError with the path of the offending field, such as `config.judges[2].temperature`.
    """

    target: str = field(converter=_checked_target, eq=False)
    config: Mapping[str, Any] = field(factory=dict, converter=_frozen_config, eq=False)
    call: bool = field(default=True, eq=False)
    _canonical: bytes = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if type(self.call) is not bool:
            raise RefError(f"call must be True or False, not {self.call!r}.")
        if self.config and not self.call:
            raise RefError(f"{self.target} with call=False is the attribute itself: leave its config out, or call it.")
        object.__setattr__(self, "_canonical", canonical_json(self.to_json()))

    @property
    def digest(self) -> str:
        """32 hexadecimal digits, the same in every process: what caches and run directories know this Ref by."""
        return digest_of(self.to_json())

    def plain_config(self) -> dict[str, Any]:
        """The config as fresh lists and dicts; nested Refs stay Refs."""
        return {key: _thaw(value, lambda nested: nested) for key, value in self.config.items()}

    def to_json(self) -> dict[str, Any]:
        """`{"$ref": target, "config": {...}, "call": bool}`, nested Refs in the same form."""
        config = {key: _thaw(value, Ref.to_json) for key, value in self.config.items()}
        return {REF_KEY: self.target, "config": config, "call": self.call}

    @classmethod
    def from_json(cls, data: object) -> Ref:
        """Read what `to_json` wrote; `config` and `call` may be left out. Raises RefError on anything else."""
        return _read_ref(data, "ref", 0)

    def innermost_first(self) -> Iterator[Ref]:
        """Every Ref nested in this one's config, each after those nested in it; this one last."""
        yield from _nested(self.config)
        yield self


def _split_target(target: object) -> tuple[str, str]:
    match = _TARGET.fullmatch(target) if isinstance(target, str) else None
    if match is None:
        raise RefError(
            f"{target!a} is no target: write 'package.module:attribute', in ASCII, with one public attribute "
            "of the module's top level (no dots, no leading underscore)."
        )
    module, attribute = match.groups()
    _refuse_dunder_modules(module)
    return module, attribute


def _refuse_dunder_modules(module: str) -> None:
    # Importing a package's __main__ would run the program; the script's own is another one in every process.
    for part in module.split("."):
        if part == "__main__":
            raise RefError(
                "__main__ is a different program where the work runs: move the function to a module and name that."
            )
        if part.startswith("__"):
            raise RefError(f"{module!a} is no module to name: name the package itself, without {part}.")


def _freeze(value: object, path: str, depth: int, *, spelled_out: bool) -> object:
    """The immutable form of a config value; `spelled_out`: nested Refs come as dicts (JSON), not as Refs."""
    if depth > MAX_DEPTH:
        raise RefError(f"{path} is nested more than {MAX_DEPTH} levels deep, or holds itself: flatten it.")
    if isinstance(value, Mapping):
        if spelled_out and REF_KEY in value:
            return _read_ref(value, path, depth)
        return _freeze_mapping(value, path, depth, spelled_out=spelled_out)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):  # a named tuple would lose its names
        return tuple(_freeze(x, f"{path}[{i}]", depth + 1, spelled_out=spelled_out) for i, x in enumerate(value))
    if isinstance(value, Ref):
        _freeze(value.config, f"{path}.config", depth + 1, spelled_out=False)  # counts its levels too
        return value
    return _checked_scalar(value, path)


def _freeze_mapping(value: Mapping[Any, object], path: str, depth: int, *, spelled_out: bool) -> FrozenConfig:
    for key in value:
        if type(key) is not str:
            raise RefError(f"{path} has the key {key!a}: JSON keys are strings.")
        if key == REF_KEY:
            raise RefError(
                f"{path} has the key {REF_KEY!r}, which is how a nested Ref is written down: put a Ref there."
            )
        _checked_scalar(key, f"the key {key!a} of {path}")
    return FrozenConfig(
        {key: _freeze(item, f"{path}.{key}", depth + 1, spelled_out=spelled_out) for key, item in value.items()}
    )


def _checked_scalar(value: object, path: str) -> object:
    # Exact types: a subclass (an enum, a numpy float) would come back from JSON as something else than went in.
    if type(value) not in _SCALARS:
        raise RefError(
            f"{path} is a {type(value).__name__}: a config holds None, bool, int, float, str, lists and dicts of them, "
            "and Refs. Name an object with a nested Ref."
        )
    check_json(value, path, error=RefError)
    return value


def _thaw(value: object, of_ref: Callable[[Ref], Any]) -> Any:
    if isinstance(value, Ref):
        return of_ref(value)
    if isinstance(value, FrozenConfig):
        return {key: _thaw(item, of_ref) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_thaw(item, of_ref) for item in value]
    return value


def _nested(value: object) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield from value.innermost_first()
    elif isinstance(value, (FrozenConfig, tuple)):
        for item in value.values() if isinstance(value, FrozenConfig) else value:
            yield from _nested(item)


def _read_ref(data: object, path: str, depth: int) -> Ref:
    if not isinstance(data, Mapping) or REF_KEY not in data:
        raise RefError(f"{path} is not the JSON of a Ref: it needs {REF_KEY!r}, and may have 'config' and 'call'.")
    unknown = [key for key in data if key not in (REF_KEY, "config", "call")]
    if unknown:
        raise RefError(
            f"{path} has the unknown key {unknown[0]!a}: a Ref is written with {REF_KEY!r}, 'config' and 'call'."
        )
    config = data.get("config", {})
    if not isinstance(config, Mapping):
        raise RefError(f"{path}.config must be a dict, not {type(config).__name__}.")
    return Ref(
        data[REF_KEY], _freeze_mapping(config, f"{path}.config", depth + 1, spelled_out=True), data.get("call", True)
    )


def nameable(target: Named) -> Named:
    """Register a function or class of this package so that Refs may name it anywhere; use it bare, outermost.

    Register nothing that takes a command line, a path to run or a name to import: a Ref may come from a queue that
    others can write to. Raises RefError outside `adescent.*` (hosts pass `allow=`) and for what no target can spell.
    """
    module, name = target.__module__, target.__qualname__
    if not _is_ours(module):
        raise RefError(
            f"{module}:{name} is outside adescent: pass allow=({module + ':'!r},) to resolve it, without a decorator."
        )
    _split_target(f"{module}:{name}")
    _registered[f"{module}:{name}"] = target
    return target


class Resolver:
    """Makes objects of Refs, inside the trust boundary; every distinct Ref once, however often and deep it occurs.

    `allow` widens the boundary beyond the registered targets of `adescent.*`; an entry is one of

    * `"my_pkg.evals:"`: every public attribute that this module itself defines,
    * `"my_pkg.evals:strict"`: this attribute only,
    * `"my_pkg."`: the same for every module below the package, at any depth (not for `my_pkg` itself).

    "Defines" means that the attribute's `__module__` is that module: what it merely imported does not resolve.
    A resolver may be shared by threads. Raises RefError for an entry of another form.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow = _checked_allow(allow)
        self._admitted: set[Ref] = set()
        self._made: dict[Ref, Any] = {}
        self._lock = threading.RLock()

    @property
    def allow(self) -> tuple[str, ...]:
        """The entries that widen the boundary, as they were given."""
        return self._allow

    def check(self, ref: Ref) -> None:
        """Raise RefError when a target in the tree of ``ref`` is outside the boundary. Imports nothing."""
        if not isinstance(ref, Ref):
            raise RefError(f"a {type(ref).__name__} was to be resolved: write Ref('package.module:attribute', config).")
        if ref not in self._admitted:
            for each in ref.innermost_first():
                self._admit(each)
            self._admitted.add(ref)

    def resolve(self, ref: Ref) -> Any:
        """The object behind `ref`, its nested Refs made first and passed in their places.

        Imports modules and calls factories, so it may block. The boundary is checked for the whole tree before the
        first import; what failed is tried again on the next call. Raises RefError (from the cause) when a target is
        not allowed, is missing, or does not take its config; a ContractError of a factory passes as it is.
        """
        if isinstance(ref, Ref) and ref in self._made:
            return self._made[ref]
        self.check(ref)
        with self._lock:
            for each in ref.innermost_first():
                if each not in self._made:
                    self._made[each] = self._make(each)
            return self._made[ref]

    def _admit(self, ref: Ref) -> None:
        module, _ = _split_target(ref.target)
        if not _is_ours(module) and not self._is_allowed(ref.target):
            raise RefError(
                f"{ref.target} may not be resolved here, and its module was not imported: "
                f"if you trust all that {module} defines, pass allow=({module + ':'!r},)."
            )

    def _is_allowed(self, target: str) -> bool:
        return any(target.startswith(entry) if entry[-1] in ".:" else target == entry for entry in self._allow)

    def _make(self, ref: Ref) -> Any:
        found = self._find(ref.target)
        if not ref.call:
            return found
        return _called(
            ref.target, found, {key: _thaw(item, self._made.__getitem__) for key, item in ref.config.items()}
        )

    def _find(self, target: str) -> Any:
        module_name, attribute = _split_target(target)
        module = _imported(module_name, target)
        if self._is_allowed(target):
            return _defined_in(module, module_name, attribute)
        if target not in _registered:
            names = sorted(name for name in _registered if name.startswith(f"{module_name}:"))
            raise RefError(
                f"{target} is not registered to be named; of its module, {', '.join(names) or 'nothing'} is."
            )
        return _registered[target]


def _is_ours(module: str) -> bool:
    return module == "adescent" or module.startswith("adescent.")


def _checked_allow(allow: Iterable[object]) -> tuple[str, ...]:
    if isinstance(allow, str):
        raise RefError(f"allow must be a tuple of prefixes: write allow=({allow!a},).")
    entries = tuple(allow)
    for entry in entries:
        match = _ALLOWED.fullmatch(entry) if type(entry) is str else None
        if match is None:
            raise RefError(
                f"allow has the entry {entry!a}: write 'package.module:' for what a module defines, "
                "'package.module:attribute' for one attribute, or 'package.' for the modules below a package."
            )
        _refuse_dunder_modules(match[1])
    return tuple(map(str, entries))


def _imported(module: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a script without a guard exits when it is imported
        raise RefError(
            f"{target}: importing {module} failed with {type(error).__name__}: {error}. "
            "It must be importable where the work runs (installed, or on sys.path)."
        ) from error


def _defined_in(module: ModuleType, module_name: str, attribute: str) -> Any:
    # vars(), not getattr(): a module's own __getattr__ may import what is outside the boundary.
    try:
        found = vars(module)[attribute]
    except KeyError:
        raise RefError(
            f"{module_name} defines no {attribute!r}: check the spelling and the installed version."
        ) from None
    home = getattr(found, "__module__", None)
    if home != module_name:
        raise RefError(
            f"{module_name}:{attribute} is not defined in {module_name} but in {home or 'no module that it tells'}: "
            "name a function or class where it is defined, and allow that module."
        )
    return found


def _called(target: str, factory: Any, config: dict[str, Any]) -> Any:
    if not callable(factory):
        raise RefError(f"{target} is no callable: use Ref({target!r}, call=False) if the object itself is meant.")
    _check_arguments(target, factory, config)
    try:
        made = factory(**config)
    except ContractError:
        raise
    except (Exception, SystemExit) as error:
        raise RefError(f"{target} raised {type(error).__name__} when called with its config: {error}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise RefError(f"{target} is an async function, not a factory of one: use Ref({target!r}, call=False).")
    return made


def _check_arguments(target: str, factory: Callable[..., Any], config: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins tell none; the call itself will tell
        return
    try:
        signature.bind(**config)
    except TypeError as error:
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = {name for name, p in signature.parameters.items() if p.default is p.empty and p.kind not in optional}
        hint = f" If it is the callable itself, not a factory of one, use Ref({target!r}, call=False)."
        raise RefError(
            f"{target} takes ({', '.join(map(str, signature.parameters.values()))}) and cannot be called with "
            f"the config keys {sorted(config)}: {error}.{hint if required - config.keys() else ''}"
        ) from error
