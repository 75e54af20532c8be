"""
Compiles the text of a ``.proto`` file with ``protoc`` from the package grpcio-tools.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pyspark_pykafka.formats.protobuf_definitions import ProtobufSchemaError
from pyspark_pykafka.formats.protobuf_known_files import files_for_protoc

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPILE_SECONDS = 60
_MAX_ERROR = 500


def compile_proto(text: str, imports: Mapping[str, str]) -> bytes:
    """
    Return the FileDescriptorSet of a ``.proto`` text; ``imports`` maps paths to imported texts, and
    need not contain known files.

    Raises :class:`ProtobufSchemaError` if the package grpcio-tools is missing, or if ``protoc``
    reports an error or takes too long.
    """
    if find_spec("grpc_tools") is None:
        msg = (
            "it is the text of a .proto file, which needs protoc; install "
            "'pyspark-pykafka[protobuf]' on the driver, or set the schema to the file that "
            "protoc --include_imports --descriptor_set_out=... writes"
        )
        raise ProtobufSchemaError(msg)
    with tempfile.TemporaryDirectory(prefix="pykafka-proto-") as name:
        folder = Path(name)
        file_name = _unused_file_name(imports)
        for path, content in ((file_name, text), *imports.items()):
            _write(folder / "files", path, content)
        (folder / "known").write_bytes(files_for_protoc(imports))
        return _run_protoc(folder, file_name)


def _unused_file_name(imports: Mapping[str, str]) -> str:
    name = "schema.proto"
    while name in imports:
        name = f"_{name}"
    return name


def _write(folder: Path, path: str, content: str) -> None:
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or "\\" in path or "\0" in path:
        msg = f"its import '{path[:200]}' is not a path below the root of the imports"
        raise ProtobufSchemaError(msg)
    target = folder / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")


def _run_protoc(folder: Path, name: str) -> bytes:
    output = folder / "set"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{folder / 'files'}"),
        f"--descriptor_set_in={folder / 'known'}",
        *("--include_imports", f"--descriptor_set_out={output}", name),
    ]
    try:
        # A separate process, so that a crash in protoc's native code does not end this one.
        result = subprocess.run(
            command, capture_output=True, timeout=_COMPILE_SECONDS, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired as cause:
        msg = f"protoc did not finish within {_COMPILE_SECONDS} seconds"
        raise ProtobufSchemaError(msg) from cause
    if result.returncode:
        text = result.stderr.decode(errors="replace").replace(f"{folder / 'files'}/", "")
        reason = text.strip().replace("\n", "; ")[:_MAX_ERROR]
        msg = f"protoc rejects it: {reason or 'it gives no reason'}"
        raise ProtobufSchemaError(msg)
    return output.read_bytes()
