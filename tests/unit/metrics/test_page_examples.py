"""
The Python blocks of docs/monitoring.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from prometheus_client import CollectorRegistry

from pyspark_pykafka import AuditListener, Auditor, MetricsListener

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each block runs as it is, except for the port, which is a free one; Spark only records calls.
    """
    monkeypatch.setattr("prometheus_client.REGISTRY", CollectorRegistry())
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "flights"}
    names: dict[str, Any] = {name: Mock() for name in ("spark", "writer", "process")}
    names |= {"options": options, "auditor": Auditor("flights", options=options)}

    assert len(BLOCKS) == 5
    for block in BLOCKS:
        exec(block.replace("9400", "0"), names)  # noqa: S102 (our own page)

    names["metrics"].close()
    added = [call.args[0] for call in names["spark"].streams.addListener.call_args_list]
    assert [type(listener) for listener in added] == [MetricsListener, AuditListener]
    names["writer"].foreachBatch.return_value.start.assert_called_once_with()
