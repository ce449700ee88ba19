"""E-mail about jobs, sent to a real SMTP server in this process."""

from __future__ import annotations

import datetime
import email
import ipaddress
import socket
import ssl
from email.policy import default
from types import SimpleNamespace

import dask.config
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyperplane.errors import RequestError
from hyperplane.jobs import email_messages
from hyperplane.jobs.email_messages import EmailError

LOGIN = {"SMTP_USER": "ada", "SMTP_PASSWORD": "s3cret"}


class Inbox:
    """Handler of the server: keeps messages, and gives the answers that a test has set."""

    def __init__(self):
        self.messages, self.logins, self.answers, self.recipients = [], [], {}, []

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802
        self.recipients.append(address)
        answer = self.answers.pop("RCPT", "250 OK")
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.messages.append(email.message_from_bytes(envelope.content, policy=default))
        return self.answers.pop("DATA", "250 OK")

    def authenticate(self, server, session, envelope, mechanism, data):
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login.decode(), data.password.decode(), session.ssl is not None))
        accepted = self.answers.get("AUTH", "yes") == "yes"
        return AuthResult(success=accepted, handled=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return the file of a certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file


@pytest.fixture
def start(certificate, monkeypatch):
    """Return a function that starts a server with a kind of encryption, and returns its inbox."""
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ends = []

    def start(security, **options):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]  # the server must know it before it starts
        inbox = Inbox()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        more = {"ssl_context": context} if security == "tls" else {}
        if security == "starttls":
            more["tls_context"] = context
        server = Controller(
            inbox, "127.0.0.1", port, authenticator=inbox.authenticate,
            auth_require_tls=security == "starttls", **more, **options,
        )  # fmt: skip
        server.start()
        values = {"host": "127.0.0.1", "port": port, "security": security}
        setting = dask.config.set({f"hyperplane.email.{key}": each for key, each in values.items()})
        ends.extend([server.stop, lambda: setting.__exit__(None, None, None)])
        return inbox

    yield start
    for end in reversed(ends):
        end()


@pytest.mark.parametrize("security", ["starttls", "tls", "none"])
@pytest.mark.parametrize("login", [{}, LOGIN])
def test_a_message_arrives_as_it_was_written(security, login, start):
    inbox = start(security)
    text = "Grüße\n.\nFrom me\n" + "x" * 2000 + "\n"
    with dask.config.set({"hyperplane.email.sender": "jobs@flights.example"}):
        email_messages.send("ada@flights.example", "Job naïve 🚀 failed", text, login)
    (message,) = inbox.messages
    assert message["Subject"] == "Job naïve 🚀 failed"
    assert (message["From"], message["To"]) == ("jobs@flights.example", "ada@flights.example")
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"]
    assert message.get_content().replace("\r\n", "\n") == text
    assert [each[:2] for each in inbox.logins] == ([("ada", "s3cret")] if login else [])
    if login and security == "starttls":
        assert inbox.logins[0][2], "the login was sent before the encryption began"


@pytest.mark.parametrize("address", ["jörg@flights.example", "ada@flüge.example"])
@pytest.mark.parametrize("security", ["starttls", "none"])
def test_addresses_beyond_ascii_are_sent_to_servers_that_accept_them(address, security, start):
    inbox = start(security)
    with dask.config.set({"hyperplane.email.sender": "jobs@flüge.example"}):
        email_messages.send(address, "Job naïve 🚀 failed", "Grüße\n", {})
    (message,) = inbox.messages
    assert (message["From"], message["To"]) == ("jobs@flüge.example", address)
    assert message["Subject"] == "Job naïve 🚀 failed"
    assert message.get_content().strip() == "Grüße"
    assert inbox.recipients == [address]


@pytest.mark.parametrize(
    ("sender", "address"),
    [("jobs@flights.example", "jörg@flights.example"), ("jörg@flights.example", "ada@x.example")],
)
def test_addresses_beyond_ascii_are_errors_with_advice_for_other_servers(sender, address, start):
    inbox = start("none", enable_SMTPUTF8=False)
    with (
        dask.config.set({"hyperplane.email.sender": sender}),
        pytest.raises(EmailError, match=r"SMTPUTF8, which jörg@.* needs; use an address in ASCII"),
    ):
        email_messages.send(address, "s", "t", {})
    assert not inbox.messages


@pytest.mark.parametrize("accepts_utf_8", [True, False])
def test_names_beyond_ascii_are_sent_to_all_servers(accepts_utf_8, start):
    inbox = start("none", enable_SMTPUTF8=accepts_utf_8)
    with dask.config.set({"hyperplane.email.sender": "Jöbs <jobs@flights.example>"}):
        email_messages.send("Jörg <ada@flights.example>", "s", "t", {})
    (message,) = inbox.messages
    assert message["From"] == "Jöbs <jobs@flights.example>"
    assert message["To"] == "Jörg <ada@flights.example>"
    assert inbox.recipients == ["ada@flights.example"]


def test_a_recipient_that_is_refused_for_now_is_tried_again(start):
    inbox = start("none")
    inbox.answers = {"RCPT": "451 4.7.1 greylisted"}
    email_messages.send("bob@flights.example", "s", "t", {})
    assert len(inbox.messages) == 1
    assert inbox.recipients == ["bob@flights.example"] * 2


@pytest.mark.parametrize("answer", ["451 4.3.0 busy", "554 no"])
def test_a_message_that_was_transferred_is_not_sent_again(answer, start):
    inbox = start("none")
    inbox.answers = {"DATA": answer}
    with pytest.raises(EmailError, match=f"the server answered {answer[:3]}"):
        email_messages.send("bob@flights.example", "s", "t", {})
    assert len(inbox.messages) == 1


def test_the_default_sender_is_the_user_on_this_machine(start, monkeypatch):
    inbox = start("none")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.getfqdn", lambda: "laptop.example")
    email_messages.send("bob@flights.example", "s", "t", {})
    assert inbox.messages[0]["From"] == "ada@laptop.example"


def test_a_subject_cannot_add_headers(start):
    inbox = start("none")
    with pytest.raises(EmailError, match="ValueError"):
        email_messages.send("bob@flights.example", "a\nBcc: eve@x.example", "t", {})
    assert not inbox.messages


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"AUTH": "no"}, "SMTP_USER and SMTP_PASSWORD were refused with 535"),
        ({"RCPT": "550 s3cret is no user"}, "the recipient was refused with 550"),
        ({"DATA": "554 s3cret"}, "the server answered 554"),
    ],
)
def test_a_refusal_is_an_error_without_secrets(answers, expected, start):
    inbox = start("starttls")
    inbox.answers = answers
    with pytest.raises(EmailError) as caught:
        email_messages.send("bob@flights.example", "s", "t", LOGIN)
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_login_is_never_sent_unencrypted_to_another_machine():
    with (
        dask.config.set({"hyperplane.email": {"host": "mail.example", "security": "none"}}),
        pytest.raises(RequestError, match=r"hyperplane\.email\.security.*starttls or tls"),
    ):
        email_messages.send("bob@flights.example", "s", "t", LOGIN)


def test_a_certificate_that_is_not_valid_is_refused(start, monkeypatch):
    inbox = start("starttls")
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(EmailError, match="its certificate is not valid"):
        email_messages.send("bob@flights.example", "s", "t", LOGIN)
    assert not inbox.logins
    assert not inbox.messages


def test_a_server_without_starttls_gets_no_login(start):
    inbox = start("none")
    with (
        dask.config.set({"hyperplane.email.security": "starttls"}),
        pytest.raises(EmailError, match=r"no STARTTLS.*hyperplane\.email\.security"),
    ):
        email_messages.send("bob@flights.example", "s", "t", LOGIN)
    assert not inbox.logins


def test_a_server_that_does_not_listen_is_tried_again(monkeypatch):
    tries = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=tries.append))
    with (
        dask.config.set({"hyperplane.email": {"host": "127.0.0.1", "port": 9}}),
        pytest.raises(EmailError, match=r"127\.0\.0\.1:9: ConnectionRefusedError"),
    ):
        email_messages.send("bob@flights.example", "s", "t", {})
    assert len(tries) == email_messages.MAX_ATTEMPTS - 1
