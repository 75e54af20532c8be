"""
Compiles a decoder or encoder with coverage instrumentation for the fuzzer.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
#: The decoders and the encoder of values, by their modules' names.
RECORDS = "pyspark_pykafka.engines.wire.records._decoder"
JSON = "pyspark_pykafka.formats._json"
AVRO = "pyspark_pykafka.formats._avro"
PROTOBUF = "pyspark_pykafka.formats._protobuf"
ENCODER = "pyspark_pykafka.formats._value_encoder"


def build(name: str, folder: Path) -> Path:
    """
    Compile a module into a folder and return the library.

    ``CC`` is the compiler, and ``CFLAGS`` has further options such as sanitizers.
    """
    source = HERE.parent / "connector" / f"{name.replace('.', '/')}.pyx"
    c_file, c_object, library = (folder / f"{source.stem}.{end}" for end in ("c", "o", "so"))
    translate = [sys.executable, "-m", "cython", str(source), "-o", str(c_file)]
    compiler = os.environ.get("CC", "cc")
    flags = ["-O1", "-g", "-fPIC", "-fwrapv", *os.environ.get("CFLAGS", "").split()]
    include = f"-I{sysconfig.get_path('include')}"
    coverage = "-fsanitize-coverage=trace-pc,trace-cmp"
    compile_object = [compiler, *flags, coverage, include, "-c", str(c_file), "-o", str(c_object)]
    # Linked without the options: the fuzzer brings the sanitizers' runtime.
    link = [compiler, "-O1", "-fPIC", "-shared", str(c_object), str(HERE / "coverage.c")]
    for command in (translate, compile_object, [*link, "-o", str(library)]):
        subprocess.run(command, check=True)
    return library


def load(name: str, library: Path) -> None:
    """
    Import a module from a library instead of the installed one.
    """
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
