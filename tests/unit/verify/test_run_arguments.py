"""
The settings of the clients of `pykafka verify`.
"""

from __future__ import annotations

import pytest

from pyspark_pykafka.settings.librdkafka_config import admin_config
from pyspark_pykafka.verify.run import RunArguments


@pytest.mark.parametrize(("options", "level"), [({}, 0), ({"kafka.log_level": "6"}, 6)])
def test_log_of_librdkafka_is_off_by_default(options: dict[str, str], level: int) -> None:
    """
    Librdkafka logs nothing unless the options set a level: a run breaks connections on purpose.
    """
    arguments = RunArguments(
        options={"kafka.bootstrap.servers": "127.0.0.1:9092", **options},
        topic_prefix="verify",
        partitions=1,
        replication_factor=-1,
        seconds=1,
        rate=1,
        guarantee="exactly-once",
        deadline_seconds=1,
        keep=False,
    )

    assert int(admin_config(arguments.kafka)["log_level"]) == level
