"""
Fixtures of the network tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_broker import ScriptedBroker, scripted_brokers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    """
    Start scripted brokers: each call takes the script of one broker, and returns that broker.
    """
    with scripted_brokers() as start:
        yield start
