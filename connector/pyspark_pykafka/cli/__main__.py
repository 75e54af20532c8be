"""
`python -m pyspark_pykafka.cli`, for when the command is not on the PATH.
"""

import sys

from pyspark_pykafka.cli import main

sys.exit(main())
