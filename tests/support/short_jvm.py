"""
Java options for JVMs that live for minutes: their code runs too seldom for the C2 compiler.
"""

from __future__ import annotations

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The settings of a Spark driver with these options.
SHORT_DRIVER = {"spark.driver.extraJavaOptions": OPTIONS}
