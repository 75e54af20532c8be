"""
Stub brokers in a process of their own, with responses that a test defines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from tests.support.stub_behaviour import (
    Behaviour,
    FetchAnswer,
    StubGroup,
    StubTransaction,
    record_batch,
)
from tests.support.stub_process import read_value, write_value

from pyspark_pykafka.testing.ports import free_ports

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "Behaviour",
    "FetchAnswer",
    "StubCluster",
    "StubGroup",
    "StubTransaction",
    "record_batch",
]

_ROOT = Path(__file__).parents[2]
_END_SECONDS = 10


class StubCluster:
    """
    Runs a behaviour; its class may be defined in a test module, and is pickled by value.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        names = {name for name in dir(behaviour) if callable(getattr(behaviour, name))}
        # A method that overrides nothing is never called, so the test would prove nothing.
        unused = {name for name in names - set(dir(Behaviour)) if not name.startswith("_")}
        assert not unused, f"{type(behaviour).__name__} overrides no method of a stub: {unused}"
        self._behaviour = behaviour
        self.ports: list[int] = []

    @property
    def bootstrap(self) -> str:
        """
        The address of the first broker.
        """
        return f"127.0.0.1:{self.ports[0]}"

    @property
    def all_brokers(self) -> str:
        """
        The addresses of all brokers.
        """
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def stats(self) -> dict[str, Any]:
        """
        Return the numbers of ``connections``, ``closed`` ones, and ``requests`` by API key.
        """
        return dict(self._command("stats", None))

    def set(self, **attributes: Any) -> None:
        """
        Set attributes of the behaviour; they are in effect when this returns.
        """
        self._command("set", attributes)

    def get(self, attribute: str) -> Any:
        """
        Return an attribute of the behaviour.
        """
        return self._command("get", attribute)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stub_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
        )
        self._pipe.write(_pickled(self._behaviour))
        # The ports come from this process, which hands out no port twice.
        write_value(free_ports(self._behaviour.brokers), self._pipe)
        self.ports = self._receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=_END_SECONDS)

    @property
    def _pipe(self) -> Any:
        return self._process.stdin

    def _receive(self) -> Any:
        try:
            return read_value(self._process.stdout)  # type: ignore[arg-type] # it is a pipe
        except EOFError:
            msg = f"the stub brokers ended with exit code {self._process.wait(_END_SECONDS)}"
            raise RuntimeError(msg) from None

    def _command(self, name: str, value: Any) -> Any:
        write_value((name, value), self._pipe)
        return self._receive()


def _pickled(behaviour: Behaviour) -> bytes:
    """
    Return a pickled behaviour preceded by its length; a class that a test defines goes by value.
    """
    module = sys.modules[type(behaviour).__module__]
    by_value = type(behaviour) is not Behaviour
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps(behaviour)
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return len(data).to_bytes(4, "big") + bytes(data)
