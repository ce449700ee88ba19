"""Configuration folder of a cluster, which its processes and the programs that use it read.

The file ``spark-defaults.conf`` has the secret of the cluster. Workers on other machines and
executors get it in their environment. No command line, log or page of Spark contains it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings.spark import PropertyValue, SparkSettings
from hyperplane.spec.spark_options import MIB, SparkOptions

LOOPBACK = "127.0.0.1"
#: Options of each JVM: it writes no file with counters to the temporary directory.
_NO_COUNTERS = "-XX:-UsePerfData"
_DEFAULTS = "spark-defaults.conf"
#: Beginnings of the names of properties that act in workers, and not in programs.
_OF_WORKERS = ("spark.shuffle.service.", "spark.worker.")
#: A line of a file of Java's class ``Properties``: the name, and the value.
_LINE = re.compile(r"((?:\\.|[^\\\s=:])+)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: File with the settings of logs.
LOGGING = "log4j2.properties"
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


#: Every connection is encrypted with keys of the secret. With the other cipher, AES/GCM/NoPadding,
#: Spark 3.5 loses all messages of a connection after the first one (SPARK-56227).
_ENCRYPTION: dict[str, PropertyValue] = {
    "spark.network.crypto.authEngineVersion": 2,
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
    "spark.network.crypto.enabled": True,
    "spark.network.crypto.saslFallback": False,
}


def build_java_options(folder: Path) -> tuple[str, str]:
    """Return options of each JVM of a cluster: it writes no files outside the cluster's folder."""
    return _NO_COUNTERS, f"-Djava.io.tmpdir={temporary_folder(folder)}"


def temporary_folder(folder: Path) -> Path:
    """Return the folder for the temporary files of a cluster's processes."""
    return folder / "tmp"


def configuration_folder(folder: Path) -> Path:
    """Return the value of ``SPARK_CONF_DIR`` for a cluster."""
    return folder / "conf"


def build_security(encrypted: bool) -> dict[str, PropertyValue]:
    """Return the properties of connections of all processes, without the secret."""
    return {"spark.authenticate": True, **(_ENCRYPTION if encrypted else {})}


def build_properties(
    plan: ClusterPlan, folder: Path, secret: str, encrypted: bool, remote: bool = False
) -> dict[str, PropertyValue]:
    """Return the properties with which every process of a cluster and every program runs.

    With ``remote`` the executors are on other machines, which do not have the folder.
    """
    settings = plan.settings
    assert isinstance(settings, SparkSettings)  # noqa: S101 - of the engines of Spark
    heap = SparkOptions.of(plan.options).heap
    java = shlex.join(build_java_options(folder))
    return {
        **build_security(encrypted),
        "spark.authenticate.secret": secret,
        "spark.driver.defaultJavaOptions": java,
        "spark.executor.cores": plan.worker.nthreads,
        "spark.executor.defaultJavaOptions": _NO_COUNTERS if remote else java,
        "spark.executor.memory": f"{heap // MIB}m",
        "spark.master.rest.enabled": False,
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": settings.dashboard,
        # The pages have no password; they show a program, but cannot end it.
        "spark.ui.killEnabled": False,
        "spark.ui.port": 0,
    }


def build_addresses(master: str) -> dict[str, PropertyValue]:
    """Return the properties of programs that connect to a master on their machine.

    Examples
    --------
    >>> build_addresses("spark://10.0.0.7:7077")["spark.driver.host"]
    '10.0.0.7'
    """
    host = master.partition("://")[2].rpartition(":")[0]
    return {
        "spark.driver.bindAddress": host,
        "spark.driver.host": host,
        "spark.master": master,
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
    if not (conf / LOGGING).exists():
        (conf / LOGGING).write_text(_LOG_SETTINGS, encoding="utf-8")


def read_properties(conf: Path) -> dict[str, PropertyValue]:
    """Return the properties of the user's file, as Spark reads them; none if there is no file."""
    file = conf / _DEFAULTS
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, PropertyValue]:
    r"""Return the properties of a file of Java's class ``Properties``.

    Examples
    --------
    >>> parse_properties("# comment\nspark.worker.a  1\nspark.worker.b=x\\\n  y\n")
    {'spark.worker.a': '1', 'spark.worker.b': 'xy'}
    """
    found: dict[str, PropertyValue] = {}
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip(" \t\f")
        if whole.startswith(("#", "!")):
            continue
        # A line that ends with an odd number of backslashes continues.
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        if match := _LINE.fullmatch(whole):
            name, value = (_ESCAPE.sub(_unescape, part) for part in match.groups())
            found[name] = value.strip()
    return found


def _unescape(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)


def select_worker_properties(given: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Return the properties that act in workers, such as that of the external shuffle service.

    Examples
    --------
    >>> select_worker_properties({"spark.shuffle.service.enabled": True, "spark.app.name": "a"})
    {'spark.shuffle.service.enabled': True}
    """
    return {name: value for name, value in given.items() if name.startswith(_OF_WORKERS)}


def write_properties(
    folder: Path, former: Path | None, properties: Mapping[str, PropertyValue]
) -> None:
    """Write the properties after those of the user's file; the last value of a key is in effect."""
    text = ""
    if former is not None:
        file = former / _DEFAULTS
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace") + "\n\n"
    text += format_properties(properties)
    path = configuration_folder(folder) / _DEFAULTS
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as written:
        written.write(text)
    draft.replace(path)


def format_properties(properties: Mapping[str, PropertyValue]) -> str:
    """Return properties as the lines of a file that Spark reads."""
    return "".join(f"{key}={_format(value)}\n" for key, value in properties.items())


def _format(value: PropertyValue) -> str:
    """Return a value as Java's class ``Properties`` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    # A leading space would be skipped; Spark itself removes spaces at both ends.
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
