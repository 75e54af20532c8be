"""
Print docs/options.md: ``python -m pyspark_pykafka.options``.
"""

from __future__ import annotations

import sys

from pyspark_pykafka.options.docs_page import page


def main() -> None:
    """
    Print the page.
    """
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
