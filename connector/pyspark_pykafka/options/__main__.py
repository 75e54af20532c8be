"""
Prints docs/options.md: ``python -m pyspark_pykafka.options``.
"""

from __future__ import annotations

import sys

from pyspark_pykafka.options.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
