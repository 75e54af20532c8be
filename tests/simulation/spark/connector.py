"""
The simulated copy of the connector, and stand-ins for Spark's and librdkafka's classes.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pyspark
from tests.simulation.kernel.loading import PACKAGE, ModuleState, SimulatedPackage
from tests.simulation.kernel.modules import WorldProxy, standard_modules
from tests.simulation.kernel.network import Sockets, network_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.kafka import SimulatedCluster
    from tests.simulation.kernel.network import Network
    from tests.simulation.kernel.world import Process, World

#: The names of the brokers' hosts; the number is the node's.
HOST = "broker{}"
PORT = 9092
MAX_BROKERS = 9

_TASK_CONTEXT = -1
_TOPIC_ALREADY_EXISTS = 36
# Not loaded: other programs, another engine, and stores whose clients bring their own threads.
_LEFT_OUT = (
    "cli",
    "testing",
    "librdkafka",
    "__main__",
    "group_member",
    "group_store",
    "zookeeper_session",
    "zookeeper_store",
)


class TaskContext:
    """
    Spark's ``TaskContext`` of a simulated task.
    """

    def __init__(
        self, partition: int, attempt: int, task_attempt: int, batch: str, query: str
    ) -> None:
        self._numbers = (partition, attempt, task_attempt)
        properties = {"streaming.sql.batchId": batch, "sql.streaming.queryId": query}
        # A batch query has neither.
        self._properties = {name: value for name, value in properties.items() if value}

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        """
        Return the partition's number.
        """
        return self._numbers[0]

    def attemptNumber(self) -> int:  # noqa: N802
        """
        Return the attempt of this task, from 0.
        """
        return self._numbers[1]

    def taskAttemptId(self) -> int:  # noqa: N802
        """
        Return the attempt's number, unique in the application.
        """
        return self._numbers[2]

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        """
        Return a local property of the job.
        """
        return self._properties.get(key)


class _PySpark:
    """
    The module ``pyspark`` with another task context.
    """

    def __init__(self, context: object) -> None:
        self.TaskContext = context

    def __getattr__(self, name: str) -> Any:
        return getattr(pyspark, name)


class Connector:
    """
    The loaded copy; :meth:`start` attaches it to a history.
    """

    def __init__(self) -> None:
        self.world = WorldProxy()
        self._sockets = Sockets(self.world)
        hosts = [HOST.format(number) for number in range(1, MAX_BROKERS + 1)]
        self._cluster: SimulatedCluster | None = None
        self._package = SimulatedPackage(
            {
                **standard_modules(self.world),
                **network_modules(self._sockets, hosts),
                "pyspark": _PySpark(SimpleNamespace(get=self._task_context)),
                f"{PACKAGE}.engines.librdkafka.admin": SimpleNamespace(RetryingAdmin=self._admin),
                f"{PACKAGE}.engines.librdkafka.consumer": SimpleNamespace(fetch=_not_simulated),
            }
        )
        for name in _module_names():
            self._package.load(name)
        self._state = ModuleState(self._package.modules())

    def start(self, world: World, network: Network, cluster: SimulatedCluster) -> None:
        """
        Attach the copy to a new history.
        """
        self.world.present = world
        self._sockets.start(network)
        self._cluster = cluster

    def process(self, name: str) -> Process:
        """
        Return a new process that has imported the connector.
        """
        process = self.world().process(name)
        process.state = self._state.new()
        return process

    def module(self, name: str) -> Any:
        """
        Return a module by its name within the package.
        """
        return self._package.load(f"{PACKAGE}.{name}")

    def source(self, options: dict[str, str]) -> Any:
        """
        Return the data source with these options.
        """
        from pyspark.sql.datasource import CaseInsensitiveDict

        return self.module("spark.datasource").DefaultSource(CaseInsensitiveDict(options))

    def set_task_context(self, context: TaskContext) -> None:
        """
        Set the context of the current thread.
        """
        self.world().task.locals[_TASK_CONTEXT] = {"context": context}

    def _task_context(self) -> Any:
        return self.world().task.locals.get(_TASK_CONTEXT, {}).get("context")

    def _admin(self, _: object) -> _Admin:
        assert self._cluster is not None
        return _Admin(self._cluster, self.module("errors"))


def _not_simulated(requested: object, _: object) -> NoReturn:
    """
    Fail where real sockets would be used: no simulated log is in the old format.
    """
    msg = f"{requested} must be read with librdkafka, which is not simulated"
    raise NotImplementedError(msg)


class _Admin:
    """
    Creates topics; librdkafka's retries are not simulated.
    """

    def __init__(self, cluster: SimulatedCluster, errors: Any) -> None:
        self._cluster = cluster
        self._errors = errors

    def create_topic(
        self,
        name: str,
        config: dict[str, str],
        action: str,
        *,
        replication_factor: int,
        validate_only: bool = False,
    ) -> bool:
        """
        Create a topic of one partition; return False if it exists.
        """
        if self._cluster.has_topic(name):
            return False
        if len(self._cluster.node_ids) < replication_factor:
            msg = f"{action}: too few brokers are up"
            raise self._errors.KafkaClientError(
                msg, 38, "INVALID_REPLICATION_FACTOR", retriable=True
            )
        if not validate_only:
            self._cluster.create_topic(
                name,
                1,
                replication=replication_factor,
                compacted=config["cleanup.policy"] == "compact",
            )
        return True


def _module_names() -> Iterator[str]:
    import pyspark_pykafka

    root = Path(pyspark_pykafka.__file__).parent
    for folder, _, files in os.walk(root):
        for file in sorted(files):
            path = Path(folder, file)
            names = path.relative_to(root.parent).with_suffix("").parts
            if path.suffix == ".py" and not set(names) & set(_LEFT_OUT):
                yield ".".join(names[:-1] if names[-1] == "__init__" else names)


@lru_cache(maxsize=1)
def simulated_connector() -> Connector:
    """
    Return the copy, loaded once for all histories of this (real) process.
    """
    return Connector()
