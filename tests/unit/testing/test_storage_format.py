"""
The storage of nodes is formatted by Kafka's tool once for each version; the tool is a script here.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pyspark_pykafka.testing.kraft import assign_ports, data_folder, prepare_nodes
from pyspark_pykafka.testing.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = "9.9.9"
TOOL = """#!/bin/sh
# Called as: TOOL kafka.tools.StorageTool format -t CLUSTER -c PROPERTIES
data=$(sed -n 's/^log.dirs=//p' "$6")
echo "$data" >> {runs}
mkdir "$data"
echo "cluster.id=$4" > "$data/meta.properties"
for name in {files}; do echo "run $(wc -l < {runs})" > "$data/$name"; done
"""


class Clusters:
    """
    Formats clusters with the script, and counts its runs.
    """

    def __init__(self, folder: Path) -> None:
        self.tool = folder / "tool.sh"
        self.runs = folder / "runs"
        self.writes("bootstrap.checkpoint")
        self.tool.chmod(0o755)

    def writes(self, *files: str) -> None:
        self.tool.write_text(TOOL.format(runs=self.runs, files=" ".join(files)))

    def format(self, brokers: int = 1, setting: str = "num.partitions") -> list[dict[str, str]]:
        """
        Format a cluster with a setting, and return the files of each node by their names.
        """
        nodes = assign_ports(brokers, None)
        with closing(Processes("format")) as processes:
            prepare_nodes([str(self.tool)], processes, VERSION, nodes, lambda _: {setting: "x"})
            folders = [data_folder(processes.folder, node) for node in nodes]
            return [{file.name: file.read_text() for file in it.iterdir()} for it in folders]

    def count_runs(self) -> int:
        return len(self.runs.read_text().splitlines())


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    monkeypatch.setenv("PYKAFKA_CACHE", str(tmp_path))
    (tmp_path / f"kafka-{VERSION}").mkdir()
    return Clusters(tmp_path)


def properties(files: Mapping[str, str]) -> dict[str, str]:
    """
    Return the entries of a node's meta.properties.
    """
    return dict(line.split("=") for line in files["meta.properties"].splitlines())


def test_the_tool_runs_once_for_a_version(clusters: Clusters) -> None:
    """
    Later clusters, of any size, get the checkpoint that the tool wrote for the first one.
    """
    nodes = [*clusters.format(3), *clusters.format(3), *clusters.format(1)]

    assert clusters.count_runs() == 1
    assert {node["bootstrap.checkpoint"] for node in nodes} == {"run 1\n"}


def test_nodes_have_ids_of_their_own(clusters: Clusters) -> None:
    """
    Without the tool, too, each cluster and each folder has its id, and each node its number.
    """
    clusters.format()
    first, second = ([properties(node) for node in clusters.format(3)] for _ in range(2))

    assert [node["node.id"] for node in first] == ["1", "2", "3"]
    assert len({node["cluster.id"] for node in first}) == 1
    assert first[0]["cluster.id"] != second[0]["cluster.id"]
    assert len({node["directory.id"] for node in [*first, *second]}) == 6


@pytest.mark.parametrize(
    "name",
    [
        "unstable.feature.versions.enable",
        "inter.broker.protocol.version",
        "controller.quorum.voters",
    ],
)
def test_a_setting_that_the_tool_reads_needs_the_tool(clusters: Clusters, name: str) -> None:
    """
    A cluster with such a setting gets a checkpoint of its own, which no other cluster gets.
    """
    before, other, after = clusters.format(), clusters.format(setting=name), clusters.format()

    checkpoints = [node["bootstrap.checkpoint"] for node in [*before, *other, *after]]
    assert checkpoints == ["run 1\n", "run 2\n", "run 1\n"]


def test_a_format_with_unknown_files_is_not_kept(clusters: Clusters) -> None:
    """
    If a version's tool writes other files, it runs for each cluster.
    """
    clusters.writes("bootstrap.checkpoint", "other")
    assert "other" in clusters.format()[0]
    assert "other" in clusters.format()[0]
    assert clusters.count_runs() == 2


def test_a_cache_that_cannot_be_written_is_no_error(clusters: Clusters, tmp_path: Path) -> None:
    """
    The tool runs for each cluster then.
    """
    (tmp_path / f"kafka-{VERSION}").rmdir()

    clusters.format()
    clusters.format()

    assert clusters.count_runs() == 2
