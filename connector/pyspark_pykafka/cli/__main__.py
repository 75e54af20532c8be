"""`python -m pyspark_pykafka.cli`, where the command is not on the path."""

import sys

from pyspark_pykafka.cli import main

sys.exit(main())
