"""``python pod_program.py PROGRAM ARGUMENT...``: run and measure the program of a step in a pod.

The Python is that of a user's image: if it is older than 3.7, or lacks a module, this process
becomes the program without a measurement. So Python 2.7 has to be able to read this file.
"""

import sys

_LOCALE = b"LC_CTYPE="


def load_measured_program():  # type: ignore[no-untyped-def]
    """Return the module that runs and measures a program."""
    # Without the folders of PYTHONPATH, which come before the standard ones: modules of the step
    # may have the names of others. The first standard one is an archive that need not exist.
    names = [each.rpartition("/")[2] for each in sys.path]
    archive = "python{}{}.zip".format(*sys.version_info[:2])
    sys.path[: names.index(archive)] = [__file__.rpartition("/")[0]]
    import measured_program  # type: ignore[import-not-found]

    return measured_program


def keep_locale(variable):  # type: ignore[no-untyped-def]
    """Set a variable to LC_CTYPE of the container, which the start of Python may have replaced."""
    import os

    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        texts = [each for each in file.read().split(b"\0") if each.startswith(_LOCALE)]
    os.environb[variable.encode()] = texts[0][len(_LOCALE) :] if texts else b""


def become(words):  # type: ignore[no-untyped-def]
    """Replace this process with a program, as if it had not been."""
    import os
    import signal

    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    os.execvp(words[0], words)  # noqa: S606 - no shell


if __name__ == "__main__":
    try:
        module = load_measured_program()
        keep_locale(module.LOCALE)
    except Exception:  # noqa: BLE001 - no step fails because it cannot be measured
        become(sys.argv[1:])
    else:
        module.end_as(module.run(sys.argv[1:]))
