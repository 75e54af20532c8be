"""
The error of a run that cannot be made.
"""

from __future__ import annotations

from pyspark_pykafka.errors import PykafkaError


class CannotRunError(PykafkaError):
    """
    The run could not be made: no Java, no permission for a topic, or a failed writer or reader.
    """

    condition = "VERIFY_CANNOT_RUN"
