"""
A task finds its rack where it runs, and fetches from the replica that the leader names for it.
"""

from __future__ import annotations

import logging
import pickle
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from tests.support import fetching
from tests.support.stub_brokers import Behaviour, FetchAnswer, StubCluster

from pyspark_pykafka.engines import client_rack
from pyspark_pykafka.errors import OptionsError
from pyspark_pykafka.offsets import OffsetRange, TopicPartition
from pyspark_pykafka.options import parse_batch_source
from pyspark_pykafka.spark.batch_reader import KafkaBatchReader

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "deploying.md"
BLOCK = re.compile(r"```(?:python|toml)\n(.*?)```", re.DOTALL)
GROUP = "pyspark_pykafka.client_rack"
END = 1000
LEADER, NEAR = 0, 1
ENGINES = pytest.mark.parametrize("engine", ["wire", "librdkafka"])


class Racks(Behaviour):
    """
    The leader refers clients of the rack ``near`` to its follower (KIP-392).
    """

    rack = ""

    def __init__(self, **attributes: Any) -> None:
        self.served: list[tuple[int, str]] = []
        super().__init__(brokers=2, high_watermark=END, **attributes)

    def _on_1(self, node: int, request: Any) -> Any:
        self.rack = request.rack_id
        return super()._on_1(node, request)

    def fetch(self, node: int, topic: str, partition: int, offset: int) -> FetchAnswer:
        if node == LEADER and self.rack == "near":
            return FetchAnswer(0, END, b"", NEAR)
        answer = super().fetch(node, topic, partition, offset)
        if answer.records:
            self.served.append((node, self.rack))
        return answer


@pytest.fixture
def forgotten_racks() -> Iterator[None]:
    """
    Let this process look for its rack again, as a new worker does.
    """
    client_rack._find_rack.cache_clear()
    yield
    client_rack._find_rack.cache_clear()


pytestmark = pytest.mark.usefixtures("forgotten_racks")


def reader(stubs: StubCluster, engine: str, **options: str) -> KafkaBatchReader:
    """
    Return a reader as it arrives in a task.
    """
    source_options = {
        "kafka.bootstrap.servers": stubs.bootstrap,
        "subscribe": "t",
        "engine": engine,
    }
    parsed = parse_batch_source({**source_options, "kafka.log_level": "0", **options})
    sent = pickle.dumps(KafkaBatchReader(parsed, fetching.VALUES))
    arrived: KafkaBatchReader = pickle.loads(sent)  # noqa: S301 (pickled here)
    return arrived


def task(stubs: StubCluster, engine: str, **options: str) -> list[int]:
    """
    Return the offsets that a task reads.
    """
    partition = InputPartition(OffsetRange(TopicPartition("t", 0), 0, END))
    batches = reader(stubs, engine, **options).read(partition)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def served_by(stubs: StubCluster) -> set[tuple[int, str]]:
    """
    Return the brokers that returned records, each with the rack named in the request.
    """
    return set(stubs.get("served"))


def install(folder: Path, package: str, group: str, **entries: str) -> None:
    """
    Write the metadata that an installer writes for a package with these entry points.
    """
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")


@pytest.fixture
def racks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Packages with entry points, installed where the task runs.
    """
    text = (
        "calls = []\n"
        "def here():\n    calls.append(1)\n    return ' near '\n"
        "def nowhere():\n    return None\n"
        "def number():\n    return 7\n"
        "def fails():\n    raise ConnectionError('no metadata service')\n"
        "class Racks:\n    here = staticmethod(here)\n"
    )
    (tmp_path / "our_racks.py").write_text(text)
    (tmp_path / "undeclared.py").write_text("def main():\n    raise LookupError\n")
    names = ("here", "Racks.here", "nowhere", "number", "fails", "missing", "twice")
    install(tmp_path, "our-racks", GROUP, **{name: f"our_racks:{name}" for name in names})
    others = {"twice": "no_such_racks:twice", "absent": "no_such_racks:here"}
    install(tmp_path, "other-racks", GROUP, **others)
    install(tmp_path, "a-program", "console_scripts", undeclared="undeclared:main")
    monkeypatch.delitem(sys.modules, "our_racks", raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@ENGINES
def test_rack_from_the_environment(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A task reads its rack from the environment of the process that it runs in, not the driver's.
    """
    with StubCluster(Racks()) as stubs:
        monkeypatch.setenv("OUR_ZONE", "far")
        on_the_driver = reader(stubs, engine, clientRackEnv="OUR_ZONE")
        assert b"far" not in pickle.dumps(on_the_driver)
        monkeypatch.setenv("OUR_ZONE", "near")

        assert task(stubs, engine, clientRackEnv="OUR_ZONE") == list(range(END))
        assert served_by(stubs) == {(NEAR, "near")}


@ENGINES
@pytest.mark.parametrize("name", ["here", "Racks.here"])
@pytest.mark.usefixtures("racks")
def test_rack_from_an_entry_point(engine: str, name: str) -> None:
    """
    A task calls the function of an installed package for its rack, once per process.
    """
    with StubCluster(Racks()) as stubs:
        for _ in range(2):
            assert task(stubs, engine, clientRackProvider=name) == list(range(END))
        assert served_by(stubs) == {(NEAR, "near")}

    assert sys.modules["our_racks"].calls == [1]


def test_the_package_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The example package on the page about deploying works with the option shown there.
    """
    _, following = PAGE.read_text().split("## Several zones")
    page, *_ = following.split("\n## ")
    module, pyproject, read = BLOCK.findall(page)
    project = tomllib.loads(pyproject)["project"]
    ((group, entries),) = project["entry-points"].items()
    install(tmp_path, project["name"], group, **entries)
    (tmp_path / "zone").write_text("near\n")
    (tmp_path / "racks.py").write_text(module.replace("/etc/zone", str(tmp_path / "zone")))
    monkeypatch.syspath_prepend(tmp_path)
    ((name, provider),) = re.findall(r'"(clientRack\w+)", "(.+?)"', read)

    with StubCluster(Racks()) as stubs:
        assert task(stubs, "wire", **{name: provider}) == list(range(END))
        assert served_by(stubs) == {(NEAR, "near")}


@ENGINES
def test_fixed_rack(engine: str) -> None:
    """
    `kafka.client.rack` is the rack of all executors.
    """
    with StubCluster(Racks()) as stubs:
        assert task(stubs, engine, **{"kafka.client.rack": "near"}) == list(range(END))
        assert served_by(stubs) == {(NEAR, "near")}


@ENGINES
@pytest.mark.usefixtures("racks")
def test_without_a_rack_the_leader_is_read(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    The leader is read if the environment variable is not set, which is logged once as a warning,
    and if the function returns None.
    """
    with StubCluster(Racks()) as stubs, caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert task(stubs, engine, clientRackEnv="MISSING_ZONE") == list(range(END))
        assert caplog.text.count("clientRackEnv is 'MISSING_ZONE', which is not set") == 1
        assert task(stubs, engine, clientRackProvider="nowhere") == list(range(END))
        assert served_by(stubs) == {(LEADER, "")}


def fails_with(name: str) -> str:
    """
    Return the error text of a task that fails before it connects to a broker.
    """
    stubs = StubCluster(Racks())
    stubs.ports = [1]
    with pytest.raises(OptionsError) as error:
        task(stubs, "wire", clientRackProvider=name)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("fails", "our_racks:fails raised ConnectionError: no metadata service"),
        ("number", "our_racks:number returned 7"),
        ("missing", "our_racks:missing raised AttributeError: .*no attribute 'missing'"),
        (
            "absent",
            "no_such_racks:here raised ModuleNotFoundError: No module named 'no_such_racks'",
        ),
    ],
)
@pytest.mark.usefixtures("racks")
def test_functions_that_return_no_rack(name: str, failure: str) -> None:
    """
    The task fails with an error that names the option, the failure and the expected value.
    """
    expected = rf"clientRackProvider is '{name}', whose function {failure}; it must be: a function"

    assert re.search(expected, fails_with(name))


@pytest.mark.parametrize("name", ["undeclared", "our_racks", "here2"])
@pytest.mark.usefixtures("racks")
def test_unknown_entry_points(name: str) -> None:
    """
    A name that no package declares for this option is neither imported nor called, even if it could
    be, and the error lists the declared names.
    """
    error = fails_with(name)

    assert f"clientRackProvider is '{name}', which is declared by no package" in error
    assert f"{GROUP} (Racks.here, absent, fails, here, missing, nowhere, number, twice)" in error
    assert not {"our_racks", "undeclared"} & sys.modules.keys()


def test_no_entry_points() -> None:
    """
    If no package declares an entry point for racks, the error says so.
    """
    assert f"it must be: an entry point of the group {GROUP} (there are none)" in fails_with("here")


@pytest.mark.usefixtures("racks")
def test_an_entry_point_of_two_packages() -> None:
    """
    If two packages declare one name, none of them is called, and the error names both.
    """
    packages = "other-racks (no_such_racks:twice) and our-racks (our_racks:twice)"

    error = fails_with("twice")

    assert f"'twice', which more than one package declares: {packages}; uninstall all but" in error
    assert "our_racks" not in sys.modules
