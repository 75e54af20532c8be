"""
The error of a run that could not be carried out.
"""

from __future__ import annotations

from pyspark_pykafka.errors import PykafkaError


class CannotRunError(PykafkaError):
    """
    The run could not be carried out: no Java, a missing permission, or a failed writer or reader.
    """

    condition = "VERIFY_CANNOT_RUN"
