"""
Loads a second copy of the connector, whose standard modules are the simulated ones.

The code is the same, and unchanged: only its import statements find other modules. The copy is
loaded once; the module variables of a simulated process are swapped when another process runs
(:class:`ProcessState`).
"""

from __future__ import annotations

import builtins
import copy
import importlib
import importlib.util
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = "pyspark_pykafka"

# Descriptions of requests, which never change.
_CONSTANT_TYPES = f"{PACKAGE}.engines.wire.protocol"

# State that is swapped: containers, and instances of the connector's classes.
_CONTAINERS = (dict, list, set, deque, Counter, OrderedDict, defaultdict)


class SimulatedPackage:
    """
    The connector's modules, imported on demand.
    """

    def __init__(self, substitutes: Mapping[str, Any]) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._substitutes = {**substitutes, "importlib": _Importlib(self)}

    def load(self, name: str) -> ModuleType:
        """
        Return a module of the simulated copy.
        """
        if name in self._modules:
            return self._modules[name]
        parent, _, child = name.rpartition(".")
        package = self.load(parent) if parent else None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            msg = f"there is no module {name}"
            raise ModuleNotFoundError(msg, name=name)
        module = importlib.util.module_from_spec(spec)
        if spec.origin is not None and spec.origin.endswith(".so"):
            # Compiled modules keep no state, and use none of the simulated standard modules.
            module = importlib.import_module(name)
            self._modules[name] = module
            return module
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        self._modules[name] = module
        # Dataclasses look their module up by its name.
        real = sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del self._modules[name]
            raise
        finally:
            if real is None:
                del sys.modules[name]
            else:
                sys.modules[name] = real
        if package is not None:
            setattr(package, child, module)
        return module

    def modules(self) -> list[ModuleType]:
        """
        Return the modules loaded so far.
        """
        return list(self._modules.values())

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 (as in __import__)
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            package = (globals or {})["__package__"]
            name = importlib.util.resolve_name("." * level + name, package)
        if name in self._substitutes:
            return self._substitutes[name]
        if name != PACKAGE and not name.startswith(f"{PACKAGE}."):
            return builtins.__import__(name, globals, locals, fromlist or (), 0)
        module = self.load(name)
        if not fromlist:
            return self.load(PACKAGE)
        for attribute in fromlist:
            if not hasattr(module, attribute):
                setattr(module, attribute, self.load(f"{name}.{attribute}"))
        return module


class _Importlib:
    """
    A stand-in for ``importlib``, with which the connector imports its own modules by name.
    """

    def __init__(self, package: SimulatedPackage) -> None:
        self._package = package
        self.util = importlib.util

    def import_module(self, name: str) -> Any:
        """
        Import a module, the connector's own from the simulated copy.
        """
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            return self._package.load(name)
        return importlib.import_module(name)


class ProcessState:
    """
    The module variables of one process.
    """

    def __init__(self, places: list[tuple[dict[str, Any], str]], pristine: list[Any]) -> None:
        self._places = places
        self._values = copy.deepcopy(pristine)

    def enter(self) -> None:
        """
        Put this process's values into the modules.
        """
        for (variables, name), value in zip(self._places, self._values, strict=True):
            variables[name] = value

    def leave(self) -> None:
        """
        Save the variables of the modules for the process's next turn.
        """
        self._values = [variables[name] for variables, name in self._places]


class ModuleState:
    """
    Finds the module variables that processes do not share, and creates the states of processes.
    """

    def __init__(self, modules: list[ModuleType]) -> None:
        self._places = list(_mutable_variables(modules))
        self._pristine = [variables[name] for variables, name in self._places]

    def names(self) -> list[str]:
        """
        Return the variables as ``module.variable``.
        """
        return [f"{variables['__name__']}.{name}" for variables, name in self._places]

    def new(self) -> ProcessState:
        """
        Return the state of a new process.
        """
        return ProcessState(self._places, self._pristine)


def _mutable_variables(modules: list[ModuleType]) -> Iterator[tuple[dict[str, Any], str]]:
    for module in modules:
        for name, value in vars(module).items():
            if name.startswith("__") or isinstance(value, (type, ModuleType, FunctionType)):
                continue
            if _is_mutable(value):
                yield vars(module), name


def _is_mutable(value: object) -> bool:
    kind = type(value)
    if isinstance(value, _CONTAINERS):
        # Tables of constants are not copied for each process; state starts empty.
        return not value
    if not kind.__module__.startswith(PACKAGE) or kind.__module__.startswith(_CONSTANT_TYPES):
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    return not (parameters is not None and parameters.frozen) and not isinstance(
        value, (tuple, str, int, bytes, frozenset)
    )
