"""Properties of the Spark clusters of tests."""

from __future__ import annotations

#: Java compiles the code of a short test with its first compiler only: a start, a job and an end of
#: a session take a third less CPU time.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PROPERTIES: dict[str, str | int | float | bool] = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.showConsoleProgress": False,
}
