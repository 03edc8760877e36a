"""Change code that is loaded already: functions and compiled kernels are replaced where they are."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


class NotInPlaceError(Exception):
    """The change is outside of functions: whoever imported the module holds the old values."""


def swap_functions(path: Path, before: str, after: str) -> None:
    """Every function of a loaded file that a change of its text touches gets its new code."""
    pairs = list(_changed(compile(before, path, "exec"), compile(after, path, "exec")))
    alive: dict[tuple[str, int], list[FunctionType]] = {}
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__code__.co_filename == str(path):
            alive.setdefault(_place(found.__code__), []).append(found)
    for old, _ in pairs:
        if _place(old) not in alive:
            raise NotInPlaceError(old.co_qualname)
    for old, new in pairs:
        for before_it, after_it in _with_inner(old, new):
            for function in alive.get(_place(before_it), ()):
                if before_it.co_freevars != after_it.co_freevars:
                    raise NotInPlaceError(before_it.co_qualname)
                function.__code__ = after_it


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions that differ below the body of a module or class."""
    inner, others = _nested(old), _nested(new)
    if _body(old) != _body(new) or len(inner) != len(others):
        raise NotInPlaceError(old.co_qualname)
    for a, b in zip(inner, others, strict=True):
        if a.co_flags & inspect.CO_OPTIMIZED:
            if _meaning(a) != _meaning(b):
                yield a, b
        else:
            yield from _changed(a, b)


def _with_inner(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A function's code and that of the functions it makes, some of which may have been made already."""
    yield old, new
    inner, others = _nested(old), _nested(new)
    if len(inner) == len(others):
        for a, b in zip(inner, others, strict=True):
            yield from _with_inner(a, b)


def _nested(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]


def _body(code: CodeType) -> tuple[object, ...]:
    plain = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
    return code.co_code, plain, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _meaning(code: CodeType) -> tuple[object, ...]:
    return _body(code), [_meaning(c) for c in _nested(code)]


def swap_kernel(name: str, library: Path, folder: Path) -> None:
    """Load a module that was compiled anew, and put it where the old one is held."""
    old = sys.modules.get(name)
    if old is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    copy = Path(shutil.copyfile(library, folder / library.name))  # the loader knows the old path as loaded
    spec = importlib.util.spec_from_file_location(name, copy)
    if spec is None or spec.loader is None:
        raise NotInPlaceError(name)
    new = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(new)
    for module in list(sys.modules.values()):
        _put(module, old, new)
    sys.modules[name] = new


def _put(module: ModuleType, old: ModuleType, new: ModuleType) -> None:
    for key, value in list(getattr(module, "__dict__", {}).items()):
        if value is old:
            setattr(module, key, new)
