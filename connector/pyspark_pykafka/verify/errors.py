"""
The error of a run that shows nothing.
"""

from __future__ import annotations

from pyspark_pykafka.errors import PykafkaError


class CannotRunError(PykafkaError):
    """
    The run could not be made: no Java, no right to a topic, a writer or reader that failed.
    """

    condition = "VERIFY_CANNOT_RUN"
