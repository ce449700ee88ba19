"""Threads that send notifications, and the end of their process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from job_cases import wait_until

from hyperplane.jobs import notification_sender, notifications
from hyperplane.jobs.notification_sender import NotificationSender

#: Sends more notifications than at once, most of them after its last line.
PROGRAM = """
import threading, time
from hyperplane.jobs import notification_sender, notifications
from hyperplane.jobs.connection_deadline import ConnectionDeadline

ended = threading.Event()

def notify(notification, environment, targets):
    ended.wait(60)
    time.sleep(0.1)
    with ConnectionDeadline(60):
        print(f"{notification}\\n", end="", flush=True)

notifications.notify = notify
sender = notification_sender.NotificationSender()
for number in range(3 * notification_sender._MAX_AT_ONCE):
    sender.send(number, {}, ["x"])
ended.set()
"""


def test_a_few_notifications_are_sent_at_once_and_each_once(monkeypatch):
    begun, sent, released = [], [], threading.Event()

    def notify(notification, environment, targets):
        begun.append(notification)
        released.wait(60)
        sent.append((notification, environment, targets))

    monkeypatch.setattr(notifications, "notify", notify)
    sender = NotificationSender()
    assert not sender.is_busy
    most = notification_sender._MAX_AT_ONCE
    for number in range(3 * most):
        sender.send(number, {"TOKEN": "t"}, ["webhook"])
    wait_until(lambda: len(begun) == most)
    assert sender.is_busy
    assert not sent
    released.set()
    sender.close()
    assert not sender.is_busy
    assert sorted(sent) == [(n, {"TOKEN": "t"}, ("webhook",)) for n in range(3 * most)]
    assert begun[most:] == sorted(begun[most:])


@pytest.mark.process
def test_a_process_that_ends_sends_all_before():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    most = 3 * notification_sender._MAX_AT_ONCE
    assert sorted(done.stdout.splitlines()) == sorted(f"{number}" for number in range(most))
