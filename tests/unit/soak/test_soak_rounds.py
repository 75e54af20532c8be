"""
The end of a round that is interrupted.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from tests.soak.plan import plan_round
from tests.soak.rounds import Round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.feeds import Feed
    from tests.soak.rig import Rig
    from tests.soak.workloads import Workload


class RunningFeed:
    """
    A feed whose producer is running.
    """

    is_running = True

    def stop(self) -> None:
        """
        Stop the producer.
        """
        self.is_running = False


class OpenStore:
    """
    A progress store whose client is open.
    """

    is_open = True

    def close(self) -> None:
        """
        Close the client.
        """
        self.is_open = False


class InterruptedRound(Round):
    """
    A round that is interrupted while its queries start.
    """

    def _create(self) -> None:
        self.feeds["a"] = cast("Feed", RunningFeed())
        workloads = [SimpleNamespace(store=OpenStore()), SimpleNamespace(store=None)]
        self.workloads = [cast("Workload", workload) for workload in workloads]

    def _start(self) -> None:
        raise KeyboardInterrupt


def test_interrupted_round_leaves_no_thread_that_keeps_the_process_alive(tmp_path: Path) -> None:
    """
    A round that is interrupted stops its producers and closes its progress stores.
    """
    rig = cast("Rig", SimpleNamespace(drivers={}))
    plan = plan_round(1, 0, ("broker killed",), 120.0)
    interrupted = InterruptedRound(rig, plan, tmp_path, 1.0, 120.0, lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        interrupted.run()
    assert not interrupted.feeds["a"].is_running
    assert not cast("OpenStore", interrupted.workloads[0].store).is_open
