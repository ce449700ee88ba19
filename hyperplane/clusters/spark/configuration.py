"""Configuration folder of a cluster, which its processes and the programs that use it read.

The file ``spark-defaults.conf`` has the secret of the cluster. Nothing else has: neither a command
line, nor a log, nor a page of Spark.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from hyperplane.spec.settings.spark import PropertyValue
from hyperplane.spec.spark_options import MIB, SparkOptions

HOST = "127.0.0.1"
_DEFAULTS = "spark-defaults.conf"
_LOGGING = "log4j2.properties"
#: Files of the user's folder that are not used: they could change addresses of the cluster.
_IGNORED = frozenset({_DEFAULTS, "spark-env.sh"})
#: Warnings only, and none about a library of Hadoop that the package pyspark does not have.
_LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
"""


def build_java_options(folder: Path) -> tuple[str, str]:
    """Return options of each JVM of a cluster: it writes no files outside the cluster's folder."""
    return "-XX:-UsePerfData", f"-Djava.io.tmpdir={temporary_folder(folder)}"


def temporary_folder(folder: Path) -> Path:
    """Return the folder for the temporary files of a cluster's processes."""
    return folder / "tmp"


def configuration_folder(folder: Path) -> Path:
    """Return the value of ``SPARK_CONF_DIR`` for a cluster."""
    return folder / "conf"


def build_properties(
    options: SparkOptions, cores: int, folder: Path, secret: str, dashboard: bool
) -> dict[str, PropertyValue]:
    """Return the properties with which every process of a cluster and every program runs."""
    java = shlex.join(build_java_options(folder))
    return {
        "spark.authenticate": True,
        "spark.authenticate.secret": secret,
        "spark.driver.bindAddress": HOST,
        "spark.driver.defaultJavaOptions": java,
        "spark.driver.host": HOST,
        "spark.executor.cores": cores,
        "spark.executor.defaultJavaOptions": java,
        "spark.executor.memory": f"{options.heap // MIB}m",
        "spark.master.rest.enabled": False,
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": dashboard,
        # The pages have no password; they show a program, but cannot end it.
        "spark.ui.killEnabled": False,
        "spark.ui.port": 0,
    }


def create_folder(folder: Path, former: Path | None) -> None:
    """Create the configuration folder, with links to the other files of the user's folder."""
    conf = configuration_folder(folder)
    for each in (conf, temporary_folder(folder)):
        each.mkdir(mode=0o700)
    if former is not None and former.is_dir():
        for file in former.iterdir():
            if file.name not in _IGNORED:
                (conf / file.name).symlink_to(file.absolute())
    if not (conf / _LOGGING).exists():
        (conf / _LOGGING).write_text(_LOG_SETTINGS, encoding="utf-8")


def write_properties(
    folder: Path, former: Path | None, properties: Mapping[str, PropertyValue]
) -> None:
    """Write the properties after those of the user's file; the last value of a key is in effect."""
    text = ""
    if former is not None:
        file = former / _DEFAULTS
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace") + "\n\n"
    text += "".join(f"{key}={_format(value)}\n" for key, value in properties.items())
    path = configuration_folder(folder) / _DEFAULTS
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)
    draft.replace(path)


def _format(value: PropertyValue) -> str:
    """Return a value as Java's class ``Properties`` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    # A leading space would be skipped; Spark itself removes spaces at both ends.
    return text.replace("\\", "\\\\")
