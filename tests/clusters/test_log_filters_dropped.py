"""Which messages of Dask are suppressed, and that a program's own handlers get all records."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from types import SimpleNamespace

import dask.config
import pytest
from distributed.client import AllExit
from distributed.core import Status

from hyperplane.clusters.dask import log_filters

LOST = "Removing worker 'x' caused the cluster to lose already computed task(s)"
KILLED = "Worker process still alive after %s seconds, killing"
CANCELLED = "Async instruction for <Task cancelled name=\"execute('slow')\"> ended with Cancelled"


@pytest.fixture
def dask_logger(monkeypatch):
    """Dask's logger with its own handler, and with a file and a stream of the program."""
    written = SimpleNamespace(terminal=io.StringIO(), own=io.StringIO())
    logger = logging.getLogger("distributed")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.INFO)
    written.handlers = [logging.StreamHandler(one) for one in (written.terminal, written.own)]
    form = logging.Formatter(dask.config.get("distributed.admin.log-format"))
    written.handlers[0].setFormatter(form)  # as Dask does when it is imported
    for handler in written.handlers:
        logger.addHandler(handler)
    monkeypatch.setattr(log_filters, "_holders", 0)
    logging.getLogger("distributed.core").manager._clear_cache()
    yield written
    logging.getLogger("distributed.core").manager._clear_cache()


def shown(written):
    """The messages on the terminal."""
    return [line.split(" - ", 3)[-1] for line in written.terminal.getvalue().splitlines()]


def test_the_terminal_is_quiet_until_the_last_cluster_has_closed(dask_logger):
    logger = logging.getLogger("distributed.core")
    log_filters.raise_log_level()
    log_filters.raise_log_level()
    logger.info("one")
    log_filters.restore_log_level()
    logger.info("two")
    logger.warning("three")
    log_filters.restore_log_level()
    logger.info("four")
    assert shown(dask_logger) == ["three", "four"]
    assert dask_logger.own.getvalue() == "one\ntwo\nthree\nfour\n"


def test_shuffles_that_begin_and_end_are_no_warnings_of_a_cluster(dask_logger):
    logger = logging.getLogger("distributed.shuffle._scheduler_plugin")
    texts = (
        "Shuffle a initialized by task 1 executed on b",
        "Shuffle a deactivated due to stimulus 'c'",
    )
    log_filters.raise_log_level()
    for text in (*texts, "Shuffle a failed during barrier phase"):
        logger.warning(text)
    log_filters.restore_log_level()
    logger.warning(texts[0])  # of a cluster of the program
    assert shown(dask_logger) == ["Shuffle a failed during barrier phase", texts[0]]
    assert dask_logger.own.getvalue().count("Shuffle") == 4


def test_levels_that_the_program_sets_are_not_changed(dask_logger):
    terminal, own = dask_logger.handlers
    terminal.setLevel(logging.ERROR)
    log_filters.raise_log_level()
    assert (terminal.level, own.level) == (logging.ERROR, logging.NOTSET)
    log_filters.restore_log_level()
    assert (terminal.level, own.level) == (logging.ERROR, logging.NOTSET)
    terminal.setLevel(logging.NOTSET)
    log_filters.raise_log_level()
    terminal.setLevel(logging.DEBUG)  # the program wants all messages
    log_filters.restore_log_level()
    assert (terminal.level, own.level) == (logging.DEBUG, logging.NOTSET)


def test_closing_leaves_out_what_is_lost_and_killed_on_the_terminal_only(dask_logger):
    with log_filters.drop_closing_messages():
        logging.getLogger("distributed.scheduler").warning(LOST)
        logging.getLogger("distributed.nanny").warning(KILLED, 4.0)
        logging.getLogger("distributed.nanny").warning("Restarting worker")
    logging.getLogger("distributed.nanny").warning(KILLED, 5.0)
    assert shown(dask_logger) == ["Restarting worker", KILLED % 5.0]
    assert dask_logger.own.getvalue().splitlines() == [
        KILLED % 4.0,
        "Restarting worker",
        KILLED % 5.0,
    ]
    logging.getLogger("distributed.scheduler").warning(LOST)
    assert shown(dask_logger)[-1] == LOST


class WorkerDouble:
    """A worker with a status."""

    def __init__(self, status=Status.running):
        self.status = status


def test_a_closing_worker_logs_no_cancelled_tasks(dask_logger):
    worker = WorkerDouble()
    log_filters.dask_setup(worker)
    logger = logging.getLogger("distributed.worker.state_machine")
    logger.warning(CANCELLED)
    worker.status = Status.closing
    logger.warning(CANCELLED)
    logger.warning("Compute Failed")
    worker.status = Status.paused
    logger.warning(CANCELLED)
    assert shown(dask_logger) == [CANCELLED, "Compute Failed", CANCELLED]
    assert dask_logger.own.getvalue().count(CANCELLED) == 3


FAILED = "Compute Failed\nKey:       %s\nState: %s\nTask: %s\nException: %r\nTraceback: %r\n"
FIELDS = ("divide-1", "executing", "<Task 'divide-1' ...>", "ValueError('a\\nb')", "  File")


def test_a_failed_task_is_one_line_and_complete_in_other_logs(dask_logger):
    log_filters.dask_setup(WorkerDouble())
    logging.getLogger("distributed.worker").error(FAILED, *FIELDS)
    assert shown(dask_logger) == ["task divide-1 failed: ValueError('a\\nb')"]
    assert dask_logger.own.getvalue() == FAILED % FIELDS + "\n"


def test_a_worker_of_a_notebook_writes_nothing_about_a_failed_task(dask_logger, monkeypatch):
    monkeypatch.setenv(log_filters.NOTEBOOK_VARIABLE, "1")
    log_filters.dask_setup(WorkerDouble())
    logging.getLogger("distributed.worker").error(FAILED, *FIELDS)
    logging.getLogger("distributed.worker.memory").warning("Pausing worker")
    assert shown(dask_logger) == []
    assert dask_logger.own.getvalue() == FAILED % FIELDS + "\nPausing worker\n"
    monkeypatch.delenv(log_filters.NOTEBOOK_VARIABLE)
    logging.getLogger("distributed.worker.memory").warning("Pausing worker")
    assert shown(dask_logger) == ["Pausing worker"]


def test_warnings_are_notes_in_a_notebook_and_complete_in_other_logs(dask_logger, monkeypatch):
    notes = []
    monkeypatch.setattr(log_filters, "find_kernel_shell", lambda: object())
    monkeypatch.setattr(log_filters, "show_warnings_as_notes", lambda: None)
    monkeypatch.setattr(log_filters, "show_note", lambda text: notes.append(text) or True)
    assert log_filters.worker_variables() == {log_filters.NOTEBOOK_VARIABLE: "1"}
    log_filters.raise_log_level()
    log_filters.raise_log_level()
    nanny = logging.getLogger("distributed.nanny")
    nanny.warning("Worker x exceeded 95%% memory budget. Restarting...")
    nanny.warning("Restarting worker (status=%s)", "running")
    try:
        raise OSError("gone")
    except OSError:
        nanny.exception("not sent")
    with log_filters.drop_closing_messages():
        logging.getLogger("distributed.scheduler").warning(LOST)
        nanny.warning(KILLED, 4.0)
    logging.getLogger("distributed.scheduler").warning(LOST)
    assert notes == [
        "distributed.nanny: not sent: OSError('gone')",
        f"distributed.scheduler: {LOST}",
    ]
    assert shown(dask_logger) == []
    assert "memory budget" in dask_logger.own.getvalue()
    monkeypatch.setattr(log_filters, "find_kernel_shell", lambda: None)
    logging.getLogger("distributed.scheduler").warning(LOST)
    assert shown(dask_logger) == [LOST]
    assert log_filters.worker_variables() == {}


@pytest.mark.parametrize("closes", [True, False])
def test_a_lost_heartbeat_is_shown_if_the_worker_goes_on(dask_logger, monkeypatch, closes):
    """The connection of a scheduler that closes may end before its workers begin to close."""
    monkeypatch.setattr(log_filters, "_HEARTBEAT_SECONDS", 0.05)
    worker = WorkerDouble()
    log_filters.dask_setup(worker)
    message = "Failed to communicate with scheduler during heartbeat."

    async def lose_heartbeat():
        logging.getLogger("distributed.worker").error(message)
        assert shown(dask_logger) == []
        worker.status = Status.closing if closes else Status.running
        await asyncio.sleep(0.5)

    asyncio.run(lose_heartbeat())
    assert shown(dask_logger) == ([] if closes else [message])
    assert message in dask_logger.own.getvalue()


@pytest.mark.slow
def test_several_workers_of_a_process(dask_logger, monkeypatch):
    """One that has closed decides neither about messages of the others nor alone."""
    monkeypatch.setattr(log_filters, "_HEARTBEAT_SECONDS", 0.05)
    workers = [WorkerDouble(), WorkerDouble()]
    for worker in workers:
        log_filters.dask_setup(worker)
    heartbeat = "Failed to communicate with scheduler during heartbeat."

    async def log(*statuses):
        for worker, status in zip(workers, statuses, strict=True):
            worker.status = status
        logging.getLogger("distributed.worker.state_machine").warning(CANCELLED)
        logging.getLogger("distributed.worker").error(heartbeat)
        await asyncio.sleep(0.5)
        found = shown(dask_logger)
        dask_logger.terminal.seek(0)
        dask_logger.terminal.truncate()
        return found

    running, closing, closed = Status.running, Status.closing, Status.closed
    for first, second, expected in (
        (running, running, [CANCELLED, heartbeat]),
        (closed, running, [CANCELLED, heartbeat]),
        (running, closed, [CANCELLED, heartbeat]),
        (closing, running, [heartbeat]),
        (closing, closing, []),
        (closed, closed, []),
    ):
        assert asyncio.run(log(first, second)) == expected


def test_a_lost_heartbeat_that_is_logged_outside_an_event_loop_is_shown(dask_logger):
    worker = WorkerDouble()
    log_filters.dask_setup(worker)
    message = "Failed to communicate with scheduler during heartbeat."
    logging.getLogger("distributed.worker").error(message)
    assert shown(dask_logger) == [message]


def test_a_record_that_cannot_be_formatted_does_not_fail_in_a_filter(dask_logger, capsys):
    worker = WorkerDouble(Status.closing)
    log_filters.dask_setup(worker)
    logger = logging.getLogger("distributed.scheduler")
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, "%d rows", ("many",), None)
    with log_filters.drop_closing_messages():
        assert logger.filter(record)
        dask_logger.handlers[0].handle(record)
    assert shown(dask_logger) == []
    assert capsys.readouterr().err.startswith("--- Logging error ---")  # of the handler


def test_a_cluster_may_be_released_while_another_is_held(dask_logger, monkeypatch):
    # As the garbage collector may do, in the same thread and at any line.
    find, released = log_filters._dask_handlers, []

    def collecting(logger):
        if not released:
            released.append(log_filters._holders)
            log_filters.restore_log_level()
        return find(logger)

    monkeypatch.setattr(log_filters, "_dask_handlers", collecting)
    holding = threading.Thread(target=log_filters.raise_log_level, daemon=True)
    holding.start()
    holding.join(30)
    assert not holding.is_alive()
    assert released == [1]


def test_waits_that_ctrl_c_has_ended_are_dropped_and_other_errors_are_not():
    loop = asyncio.new_event_loop()
    contexts = []
    try:
        log_filters.drop_interrupted_waits(loop)
        loop.default_exception_handler = contexts.append
        loop.call_exception_handler({"message": "never retrieved", "exception": AllExit()})
        loop.call_exception_handler({"message": "other", "exception": ValueError("no")})
        loop.call_exception_handler({"message": "no exception"})
        assert [context["message"] for context in contexts] == ["other", "no exception"]
    finally:
        loop.close()


def test_a_loop_with_a_handler_keeps_it():
    loop = asyncio.new_event_loop()
    try:
        handler = [].append
        loop.set_exception_handler(lambda loop, context: handler(context))
        kept = loop.get_exception_handler()
        log_filters.drop_interrupted_waits(loop)
        assert loop.get_exception_handler() is kept
    finally:
        loop.close()
