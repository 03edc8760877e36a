"""Python files of the user's own, run as a module for what they define."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from verifolio.errors import InputError


def run_python_file(path: Path) -> ModuleType:
    """The module that a file makes; it may import its neighbours, as it may when Python runs it.

    The module can be found by its name, which pickle, dataclasses and torch's exporters ask for.
    """
    name = f"verifolio_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(str(path), "a Python file", "no such file", "check the path")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, where it hides nothing
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's file raises
        got = f"{type(error).__name__}: {error}".rstrip(": ")
        raise InputError(_place(path, error), "a file that Python can run", got, "correct it") from error
    return module


def _place(path: Path, error: BaseException) -> str:
    """The file, with the line of it that was running."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return str(path) if line is None else f"{path}:{line}"
