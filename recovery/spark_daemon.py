"""What forks the Python workers of a Spark on this host: `pyspark.daemon`, from where PySpark is installed.

Spark puts its `pyspark.zip` before all else on the search path. Bytecode is not kept in a zip, so each start would
compile PySpark again: a second of CPU for each worker. `session` names this module where both are the same PySpark.
"""

import importlib.util
import runpy
import sys

if __name__ == "__main__":
    places = [*sys.path]
    sys.path[:] = [place for place in places if not place.endswith("pyspark.zip")]
    if importlib.util.find_spec("pyspark") is None:
        sys.path[:] = places
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
