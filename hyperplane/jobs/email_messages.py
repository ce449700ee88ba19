"""Send e-mail through the SMTP server of the configuration."""

from __future__ import annotations

import getpass
import smtplib
import socket
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import formatdate, make_msgid, parseaddr
from typing import Any

import tenacity

from hyperplane import config
from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.jobs.connection_deadline import ConnectionDeadline
from hyperplane.jobs.json_posts import LOCAL_HOSTS
from hyperplane.spec.settings import EmailSettings

#: Variables of the submission with the name and the password of the server.
USER, PASSWORD = "SMTP_USER", "SMTP_PASSWORD"
#: Seconds that the server may take for each part of an answer, and for all attempts together.
TIMEOUT, TOTAL_TIMEOUT = 20.0, 120.0
#: Most attempts to connect and to log in.
MAX_ATTEMPTS = 3


class EmailError(HyperplaneError, RuntimeError):
    """A message was not delivered to the server."""


class _TransferError(Exception):
    """An error since the transfer has begun: the message may have arrived."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


class _AddressError(ValueError):
    """The server does not accept the characters of an address; the message is for users."""


class _Server(smtplib.SMTP):
    """A server whose connection ends at a deadline."""

    def __init__(self, deadline: ConnectionDeadline, *arguments: Any, **options: Any) -> None:
        self._deadline = deadline
        super().__init__(*arguments, **options)

    # smtplib has no other place before the first answer, and before TLS begins.
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connection: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._deadline.watch(connection)
        return connection


class _TlsServer(smtplib.SMTP_SSL, _Server):
    """One with TLS from the beginning."""

    def __init__(self, deadline: ConnectionDeadline, *arguments: Any, **options: Any) -> None:
        self._deadline = deadline  # the next constructor does not call that of _Server
        super().__init__(*arguments, **options)


def send(address: str, subject: str, text: str, environment: Mapping[str, str]) -> None:
    """Send a message.

    What comes before the message is tried again: the connection, and a recipient that the server
    refuses for now (4xx). A message whose transfer broke may have arrived. All attempts together
    take at most :data:`TOTAL_TIMEOUT` seconds.

    Parameters
    ----------
    address : str
        The recipient.
    subject, text : str
        Title, one line, and plain text.
    environment : mapping of str to str
        Has ``SMTP_USER`` and ``SMTP_PASSWORD`` if the server wants a login.

    Raises
    ------
    RequestError
        If a login would be sent to another machine without encryption.
    EmailError
        If the server does not accept the message; it has no secrets.
    """
    settings = config.email()
    login = environment.get(USER, ""), environment.get(PASSWORD, "")
    if all(login) and settings.security == "none" and settings.host not in LOCAL_HOSTS:
        advice = f"set it to starttls or tls, or remove {USER} and {PASSWORD}"
        check([Fault("hyperplane.email.security", "none", "encryption for a login", advice)])
    deadline = ConnectionDeadline(TOTAL_TIMEOUT)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: not deadline.is_over and _may_pass(error)),
        wait=tenacity.wait_exponential(multiplier=1, max=10) + tenacity.wait_random(0, 1),
        stop=tenacity.stop_after_attempt(MAX_ATTEMPTS) | tenacity.stop_before_delay(TOTAL_TIMEOUT),
        reraise=True,
    )
    sender = settings.sender or f"{getpass.getuser()}@{socket.getfqdn()}"
    try:
        message = _build(sender, address, subject, text)
        with deadline:
            retrying(_deliver, message, sender, address, settings, login, deadline)
    except (OSError, smtplib.SMTPException, ValueError, _TransferError) as error:
        # The text of an answer may repeat what was sent.
        why = _describe(error.cause if isinstance(error, _TransferError) else error)
        if deadline.is_over:
            why = f"no complete answer in {TOTAL_TIMEOUT:g} s; the message may have arrived"
        raise EmailError(f"{settings.host}:{settings.port}: {why}") from None


def _build(sender: str, address: str, subject: str, text: str) -> EmailMessage:
    message = EmailMessage(policy=SMTP)
    message["Subject"], message["From"], message["To"] = subject, sender, address
    message["Date"], message["Message-ID"] = formatdate(), make_msgid("hyperplane")
    message["Auto-Submitted"] = "auto-generated"  # no answers of holiday programs (RFC 3834)
    message.set_content(text, cte="quoted-printable")  # servers may accept only ASCII
    return message


def _deliver(
    message: EmailMessage,
    sender: str,
    address: str,
    settings: EmailSettings,
    login: tuple[str, str],
    deadline: ConnectionDeadline,
) -> None:
    # Names are encoded for servers that accept only ASCII; addresses cannot be.
    sender, address = (parseaddr(each)[1] or each for each in (sender, address))
    is_ascii = (sender + address).isascii()
    connection = _connect(settings, login, deadline)
    try:
        with connection as server:
            if not (is_ascii or server.has_extn("smtputf8")):
                raise _AddressError(
                    f"the server does not offer SMTPUTF8, which "
                    f"{sender if address.isascii() else address} needs; use an address in ASCII, "
                    "with a domain of the form xn--..."
                )
            # Not send_message, which changes lines that begin with "From ".
            server.sendmail(
                sender,
                [address],
                message.as_bytes(policy=SMTP if is_ascii else SMTPUTF8),
                [] if is_ascii else ["SMTPUTF8", "BODY=8BITMIME"],
            )
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, _AddressError):
        raise  # the transfer has not begun
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise _TransferError(error) from None


def _connect(
    settings: EmailSettings, login: tuple[str, str], deadline: ConnectionDeadline
) -> smtplib.SMTP:
    context = ssl.create_default_context()
    address = settings.host, settings.port
    server = (
        _TlsServer(deadline, *address, timeout=TIMEOUT, context=context)
        if settings.security == "tls"
        else _Server(deadline, *address, timeout=TIMEOUT)
    )
    try:
        if settings.security == "starttls":
            server.starttls(context=context)
        server.ehlo_or_helo_if_needed()
        if all(login):
            server.login(*login)
    except BaseException:
        server.close()
        raise
    return server


def _may_pass(error: BaseException) -> bool:
    """Return whether another attempt may succeed, and repeats no message."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(400 <= code < 500 for code, _ in error.recipients.values())
    if isinstance(error, smtplib.SMTPResponseException):
        return 400 <= error.smtp_code < 500
    if isinstance(error, ssl.SSLError):
        return False
    return isinstance(error, (OSError, smtplib.SMTPServerDisconnected))


def _describe(error: Exception) -> str:
    if isinstance(error, _AddressError):
        return str(error)
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = sorted({code for code, _ in error.recipients.values()})
        return f"the recipient was refused with {', '.join(map(str, codes))}"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"{USER} and {PASSWORD} were refused with {error.smtp_code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the server answered {error.smtp_code}"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "it has no STARTTLS or login; set hyperplane.email.security"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    return type(error).__name__
