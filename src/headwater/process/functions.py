"""The functions that a user gives to a pipeline: how they count in a fingerprint, travel to workers, and are blamed."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import linecache
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import headwater

_under_way: ContextVar[tuple[int, ...]] = ContextVar("functions being described", default=())
_HOUSE = Path(headwater.__file__).parent


def described(function: Callable[..., Any], describe: Callable[[Any], Any]) -> list[Any]:
    """The function by its source, its defaults and what it closes over; never by an address.

    What it calls or reads elsewhere does not count: that is for the user to say with a new name of the view.
    """
    if id(function) in _under_way.get():
        return ["itself", getattr(function, "__qualname__", "")]
    token = _under_way.set((*_under_way.get(), id(function)))
    try:
        return _described(function, describe)
    finally:
        _under_way.reset(token)


def _described(function: Callable[..., Any], describe: Callable[[Any], Any]) -> list[Any]:
    if isinstance(function, functools.partial):
        keywords = sorted(function.keywords.items())
        return ["partial", described(function.func, describe), describe([list(function.args), keywords])]
    if inspect.ismethod(function):
        return ["method", described(function.__func__, describe), describe(function.__self__)]
    code = getattr(function, "__code__", None)
    if code is None:  # a class, a builtin, or an object that can be called
        kind = function if isinstance(function, type) else type(function)
        if kind.__module__ == "builtins":
            return ["builtin", getattr(function, "__qualname__", kind.__qualname__)]
        own = [] if isinstance(function, type) else sorted(vars(function).items())
        return ["object", kind.__qualname__, _hashed(source(kind) or kind.__module__), describe(own)]
    of: Any = function
    given = [list(of.__defaults__ or ()), sorted((of.__kwdefaults__ or {}).items()), _closed_over(of)]
    text = source(function) or repr(_bytecode(code))
    return ["function", of.__qualname__, _hashed(text), describe(given)]


def _closed_over(function: Any) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not bound yet
            found.append(None)
    return found


def source(function: Any) -> str | None:
    """Its text, indentation aside; None where it is not at hand."""
    try:
        return textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError, IndentationError):
        return None


def _bytecode(code: CodeType) -> tuple[Any, ...]:
    """What is left where the source is not at hand; a code among the constants has an address in its repr."""
    constants = tuple(_bytecode(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return code.co_code.hex(), constants, code.co_names, code.co_varnames


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# --- travelling ---


def dumped(carrier: object) -> bytes:
    """Pickled for workers: what a user's own modules define goes along as it is, not by the name of its module.

    A worker has the installed packages and Headwater, but it cannot import the file that `headwater run` was given, nor
    modules that lie beside it.
    """
    cloudpickle: Any = importlib.import_module("pyspark.cloudpickle")  # it has no types
    # By name, because one module may be there twice: a process of multiprocessing has its main module as two names.
    own = {module.__name__: module for module in list(sys.modules.values()) if _is_users(module)}
    known = set(cloudpickle.list_registry_pickle_by_value())
    mine = [module for name, module in own.items() if name not in known]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(carrier))
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", None)
    if not file or not name or sys.modules.get(name) is not module:
        return False
    path = Path(file)
    return not any(path.is_relative_to(place) for place in (*_installed(), _HOUSE))


@functools.lru_cache(maxsize=1)
def _installed() -> tuple[Path, ...]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    places = {sysconfig.get_path(kind) for kind in kinds}
    packages = {place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
    return tuple(Path(place) for place in places | packages)


# --- blaming ---


def blamed(error: BaseException, function: Callable[..., Any], *, own_file: str) -> tuple[str, ...]:
    """The frames of a traceback from the user's own on, the innermost last: `shop.py:12 in add: return 1 / 0`.

    `own_file` is the file that called the function. An error in the call itself has no frame of the user's: then the
    function's own first line stands for it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    inner = next((number for number, frame in enumerate(frames) if frame.filename != own_file), len(frames))
    found = tuple(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[inner:])
    code = getattr(function, "__code__", None)
    if found or code is None:
        return found
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return (f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}: {line}",)
