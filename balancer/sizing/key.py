"""What decides a size: digests of functions, settings, tokenizers and data files."""

import copyreg
import dataclasses
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from balancer.errors import ArgumentError

__all__ = ["data_identity", "files_fingerprint", "identity"]

_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
)
_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_SHARED = ("function", "class", "module", "object")  # described once, however often referred to
_MEMBERS = (FunctionType, bool, int, float, str, bytes, tuple, frozenset, type(None))
_NOT_CODE = ("__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__")


def identity(given: Any) -> str:
    """Digest of what a function computes, or of what a value is; equal in every process.

    A function counts by its bytecode, constants and defaults, and by what it refers to: closure,
    globals, the functions it calls; not by comments, names of variables or where it stands.
    Functions and classes of installed packages count by name and version of the package. Other
    objects, tokenizers for example, count by their class and the state that they pickle.

    Raises:
        ArgumentError: Something it refers to has no state that can be read (an open file, say).

    Example:
        >>> identity(lambda sample: len(sample)) == identity(lambda text: len(text))
        True
        >>> identity(lambda sample: len(sample)) == identity(lambda sample: 2 * len(sample))
        False
    """
    return _Digest().of(given).hex()


def data_identity(dataset: Any) -> str:
    """Digest of the data of a dataset that has a fingerprint, or is a list or tuple in memory.

    Raises:
        ArgumentError: Nothing tells whether the data is the same as before.
    """
    for name in ("fingerprint", "_fingerprint"):  # the second one is that of Hugging Face datasets
        fingerprint = getattr(dataset, name, None)
        if isinstance(fingerprint, str):
            return fingerprint
    if isinstance(dataset, (list, tuple)):
        return identity(dataset)
    raise ArgumentError(
        f"data_fingerprint is not given, and {type(dataset).__name__} has no fingerprint to know "
        "its data by; give a text that changes whenever the data does, for example "
        "files_fingerprint(paths)"
    )


def files_fingerprint(paths: Sequence[str | os.PathLike[str]]) -> str:
    """Digest of names, lengths and times of change of files; their content is not read.

    Raises:
        OSError: A file is not there.
    """
    stats = [(os.path.basename(path), os.stat(path)) for path in paths]
    return identity([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


class _Digest:
    """One walk over an object and what it refers to."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # objects on the way here, which may refer to each other
        self._done: dict[int, tuple[Any, bytes]] = {}

    def of(self, given: Any) -> bytes:
        if id(given) in self._open:
            return b"seen %d" % self._open[id(given)]
        if id(given) in self._done:
            return self._done[id(given)][1]
        self._open[id(given)] = len(self._open)
        try:
            label, parts = self._described(given)
        finally:
            del self._open[id(given)]
        digest = hashlib.sha256(label.encode())
        for part in parts:
            digest.update(hashlib.sha256(part).digest())
        if label in _SHARED:
            self._done[id(given)] = given, digest.digest()
        return digest.digest()

    def _described(self, given: Any) -> tuple[str, Sequence[bytes]]:
        for kinds, describe in _DESCRIBED:
            if isinstance(given, kinds):
                return describe(self, given)
        if dataclasses.is_dataclass(given):
            values = [(f.name, getattr(given, f.name)) for f in dataclasses.fields(given)]
            return "dataclass", [self.of(type(given)), self.of(values)]
        return self._state(given)

    def _function(self, function: FunctionType) -> tuple[str, Sequence[bytes]]:
        if _library(function.__module__):
            return "name", [self._library_name(function)]
        cells = [_content(cell) for cell in function.__closure__ or ()]
        names = sorted(_global_names(function.__code__) & function.__globals__.keys())
        used = [(name, function.__globals__[name]) for name in names]
        return "function", [
            self._code(function.__code__, function.__doc__),
            self.of([function.__defaults__, function.__kwdefaults__, cells, used]),
        ]

    def _code(self, code: CodeType, doc: str | None = None) -> bytes:
        constants = code.co_consts
        if doc is not None and constants and constants[0] == doc:
            constants = (None, *constants[1:])
        parts = [self._code(c) if isinstance(c, CodeType) else self.of(c) for c in constants]
        shape = [code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags & _FLAGS]
        handlers = getattr(code, "co_exceptiontable", b"")
        return hashlib.sha256(b"".join([code.co_code, handlers, self.of(shape), *parts])).digest()

    def _class(self, kind: type) -> tuple[str, Sequence[bytes]]:
        name = self._library_name(kind)
        if _library(kind.__module__):
            return "class", [name]
        members = [(n, _member(m)) for n, m in sorted(vars(kind).items())]
        own = [(n, m) for n, m in members if isinstance(m, _MEMBERS) and n not in _NOT_CODE]
        bases = [base for base in kind.__bases__ if base is not object]
        return "class", [name, self.of(own), self.of(bases)]

    def _module(self, module: ModuleType) -> tuple[str, Sequence[bytes]]:
        name, file = module.__name__, getattr(module, "__file__", None)
        if file is None or _library(name):
            return "module", [f"{name} {_version(name)}".encode()]
        return "module", [name.encode(), Path(file).read_bytes()]

    def _state(self, given: Any) -> tuple[str, Sequence[bytes]]:
        compiled = getattr(given, "py_func", None)
        if isinstance(compiled, FunctionType):  # by numba, whose own state has a random number
            return "compiled", [self.of(compiled)]
        try:
            reducer = copyreg.dispatch_table.get(type(given))
            reduced = reducer(given) if reducer else given.__reduce_ex__(2)
        except Exception as error:
            raise ArgumentError(
                f"cache_key is not given, and the sizes depend on a {type(given).__name__} whose "
                f"state cannot be read ({error}); give cache_key, a text that names the token "
                "rule, its settings and the tokenizer"
            ) from error
        if isinstance(reduced, str):
            wrapped = getattr(given, "__wrapped__", None)
            return "object", [self.of(type(given)), reduced.encode(), self.of(wrapped)]
        items = [list(part) if part is not None else None for part in reduced[3:5]]
        return "object", [self.of(type(given)), self.of(list(reduced[:3])), self.of(items)]

    def _library_name(self, given: Any) -> bytes:
        module = given.__module__ or "builtins"
        return f"{module}.{given.__qualname__} {_version(module)}".encode()


def _plain(_: _Digest, given: Any) -> tuple[str, Sequence[bytes]]:
    return type(given).__name__, [repr(given).encode()]


def _array(_: _Digest, given: Any) -> tuple[str, Sequence[bytes]]:
    values = np.ascontiguousarray(given)
    return "array", [f"{values.dtype} {values.shape}".encode(), values.tobytes()]


_DESCRIBED: tuple[tuple[Any, Callable[[_Digest, Any], tuple[str, Sequence[bytes]]]], ...] = (
    ((type(None), bool, int, float, complex, str, bytes, type(...)), _plain),
    (PurePath, lambda _, path: ("path", [str(path).encode()])),
    ((list, tuple), lambda d, values: (type(values).__name__, [d.of(value) for value in values])),
    ((set, frozenset), lambda d, values: ("set", sorted(d.of(value) for value in values))),
    (dict, lambda d, pairs: ("dict", [d.of(part) for pair in pairs.items() for part in pair])),
    (np.ndarray, _array),
    (functools.partial, lambda d, p: ("partial", [d.of([p.func, p.args, p.keywords])])),
    (FunctionType, lambda d, function: d._function(function)),
    (MethodType, lambda d, m: ("method", [d.of(m.__self__), d.of(m.__func__)])),
    (
        BuiltinFunctionType,
        lambda d, f: (
            "builtin",
            [f.__qualname__.encode()]
            + ([] if isinstance(f.__self__, (ModuleType, type(None))) else [d.of(f.__self__)]),
        ),
    ),
    (type, lambda d, kind: d._class(kind)),
    (ModuleType, lambda d, module: d._module(module)),
    (Mapping, lambda d, pairs: ("mapping", [d.of(dict(pairs))])),
)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _member(member: Any) -> Any:
    """The function of a member of a class, or what else decides what the class does."""
    if isinstance(member, (classmethod, staticmethod)):
        return member.__func__
    return member.fget if isinstance(member, property) else member


def _global_names(code: CodeType) -> set[str]:
    """Names of globals that a function or one inside it may use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _library(module_name: str | None) -> bool:
    """Whether a module is of the standard library or of an installed package."""
    top = (module_name or "builtins").split(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and os.path.realpath(file).startswith(_LIBRARIES)


def _version(module_name: str) -> str:
    top = module_name.split(".")[0]
    version = getattr(sys.modules.get(top), "__version__", "")
    return version if isinstance(version, str) else ""
