"""Secrets are masked in logs, notebooks and texts, in all printed forms."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
import re
import shlex
import stat
import subprocess
import urllib.parse

import markupsafe
import nbformat
import pytest
import requests
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hyperplane.jobs.execution import redaction
from hyperplane.jobs.execution.redaction import SecretMasker, redact_file, redact_text

HARD = 'p@ss "w\\ord" ü/+\'<$&>'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEF\nab\n-----END KEY-----\n"


def run_shell(shell, text, value):
    """Return what a program of a shell prints, in which the variable S has a value."""
    environment = {"S": value, "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    printed = subprocess.run(
        [shell, "-c", text], env=environment, capture_output=True, check=True, text=True
    ).stdout
    return next(line for line in printed.splitlines() if "S=" in line).partition("S=")[2]


def lower_percent(text):
    """Return a text with the hexadecimal numbers of percent-encoding in lower case."""
    return re.sub("%..", lambda found: found[0].lower(), text)


def write_csv(value):
    """Return a value as a cell of a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow([value])
    return file.getvalue()


WRITTEN = {
    "plain": str,
    "json": lambda v: json.dumps({"password": v}),
    "json with all characters": lambda v: json.dumps(v, ensure_ascii=False),
    "repr": repr,
    "ascii": ascii,
    "bytes": lambda v: repr(v.encode()),
    "url": urllib.parse.quote,
    "url, strict": lambda v: urllib.parse.quote(v, safe=""),
    "form": urllib.parse.urlencode,
    "bash": lambda v: "+ login " + shlex.quote(v).replace("'\"'\"'", "'\\''"),
    "html": html.escape,
    "shlex": lambda v: "login " + shlex.quote(v),
    "bash, exported": lambda v: run_shell("bash", "export -p", v),
    "bash, printf": lambda v: run_shell("bash", 'printf "S=%q" "$S"', v),
    "bash, control characters": lambda v: run_shell("bash", 'printf "S=%q" "$S"', f"{v}\n"),
    "sh, exported": lambda v: run_shell("sh", "export -p", v),
    "json of Go": lambda v: (
        json.dumps(v, ensure_ascii=False)
        .replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    ),
    "json of PHP": lambda v: json.dumps(v).replace("/", "\\/"),
    "json of Jinja": lambda v: (
        json.dumps(v)
        .replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("'", "\\u0027")
    ),
    "json of .NET": lambda v: (
        '"'
        + "".join(
            f"\\u{ord(each):04X}" if each in "\"&'+<>`ü" else each.replace("\\", "\\\\")
            for each in v
        )
        + '"'
    ),
    "markupsafe": lambda v: str(markupsafe.escape(v)),
    "yaml": lambda v: yaml.safe_dump(v, width=1000).strip(),
    "csv": write_csv,
    "url, lower case": lambda v: lower_percent(urllib.parse.quote(v, safe="")),
    "url of JavaScript": lambda v: urllib.parse.quote(v, safe="!'()*"),
    "url of requests": lambda v: (
        requests.Request("GET", f"https://h/?p={v}").prepare().url.partition("?")[2]
    ),
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64 for a URL": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
}


FORMS = [
    pytest.param(form, marks=pytest.mark.process) if form.startswith(("bash, ", "sh, ")) else form
    for form in WRITTEN
]


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_masked_in_every_form(form):
    write = WRITTEN[form]
    text = write({"p": HARD}) if form == "form" else write(HARD)
    redacted = redact_text(f"before {text} after", [HARD])
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert "***" in redacted
    left = redacted.replace("before ", "").replace(" after", "").replace("login ", "")
    left = left.strip("+ ").removeprefix("$'").removesuffix("\\n'")
    assert set(left) <= set("*\"'{}:=b passwordp"), left
    assert "w\\ord" not in left


@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "user:"])
def test_basic_authentication_shows_no_password(user):
    for password in ("secret-number-7", "secret-number-77", "secret-number-777"):
        for behind in ("", ":", "::"):
            text = base64.b64encode(f"{user}{password}{behind}".encode()).decode()
            redacted = redact_text(f"Authorization: Basic {text}", [password])
            rest = redacted.split()[-1]
            assert len(rest) == len(text)
            visible = [i for i, character in enumerate(rest) if character != "*"]
            inside = range(len(user) * 8 // 6 + 1, (len(user) + len(password)) * 8 // 6)
            assert not set(visible) & set(inside), (rest, visible)


def test_every_line_of_a_secret_is_masked_except_short_ones():
    log = f"it is:\n{KEY}and MIIEvQIBADANBgkq again\nabout hkiG9w0BAQEF"
    redacted = redact_text(log, [KEY])
    for line in KEY.split():
        assert len(line) < 6 or line not in redacted
    assert redact_text("MIIEvQIBADANBgkq\nab\n", [KEY]) == "*" * 16 + "\nab\n"
    assert redact_text("pass 12345", ["12345", ""]) == "pass 12345"


def test_overlapping_secrets_are_both_masked():
    assert redact_text("x abcdefghijklmn y", ["abcdefgh", "ghijklmn"]) == f"x {'*' * 14} y"
    assert redact_text("aaaaaaaaab", ["aaaaaa"]) == "*********b"


@pytest.mark.slow
@given(
    st.text(min_size=6, max_size=30).filter(lambda v: not set(v) <= {"*"}),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_secret_is_left(value, before, after):
    redacted = redact_text(f"{before}{value}{after}", [value])
    assert value not in redacted
    assert len(redacted.encode()) == len(f"{before}{value}{after}".encode())


def test_secrets_across_blocks_are_masked_and_a_log_keeps_its_length(tmp_path, monkeypatch):
    monkeypatch.setattr(redaction, "_BLOCK_BYTES", 64)
    log = tmp_path / "a.log"
    secret = "hidden-word-of-this-test"
    for shift in range(70):
        raw = b"\xff\x00" + b"." * shift + secret.encode() + b"!" * 100 + secret.encode()
        log.write_bytes(raw)
        redact_file(log, [secret])
        assert log.read_bytes() == raw.replace(secret.encode(), b"*" * len(secret))


def test_a_secret_longer_than_a_block_is_masked(tmp_path):
    log = tmp_path / "a.log"
    secret = "0123456789" * 150_000
    log.write_text(f"a {secret} b")
    redact_file(log, [secret])
    assert log.read_text() == f"a {'*' * 1_500_000} b"


@given(st.lists(st.text("abc", min_size=6, max_size=9), max_size=3), st.text("abc"), st.data())
def test_output_in_blocks_is_masked_as_a_whole_is(secrets, output, data):
    masker, masked, rest = SecretMasker(secrets), b"", output.encode()
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        masked, rest = masked + masker.mask(rest[:size]), rest[size:]
    assert masked + masker.flush() == redact_text(output, secrets).encode()


def test_only_what_may_begin_a_secret_is_held_back():
    masker = SecretMasker(["hidden-word"])
    assert masker.mask(b"it is hi") == b"it is "
    assert masker.mask(b"s, hidden-wor") == b"his, "
    assert masker.mask(b"d\n") == b"***********\n"
    assert masker.mask(b"line\n") == b"line\n"
    assert masker.mask(b"the end: hidden") + masker.flush() == b"the end: hidden"


def test_a_short_secret_that_arrives_by_bytes_is_masked():
    masker = SecretMasker(["aaaaaa"])
    masked = [masker.mask(b"a") for _ in range(6)]
    assert b"".join(masked) + masker.flush() == b"*" * 6


def test_a_secret_that_is_no_text_of_utf_8_is_masked():
    secret = b"hidden-\xff-word"
    masker = SecretMasker([os.fsdecode(secret)])
    assert masker.mask(b"it is " + secret + b".\n") == b"it is *************.\n"


def test_a_missing_log_is_no_error(tmp_path):
    redact_file(tmp_path / "none.log", ["secret-word"])
    assert list(tmp_path.iterdir()) == []


def notebook(path, secret):
    document = nbformat.v4.new_notebook()
    output = nbformat.v4.new_output("stream", text=f"it is\n{secret}\n")
    shown = nbformat.v4.new_output("display_data", {"application/json": {secret: [1, secret]}})
    cell = nbformat.v4.new_code_cell("show()", outputs=[output, shown], metadata={"tags": ["a"]})
    document.cells.append(cell)
    nbformat.write(document, path)
    return document


@pytest.mark.parametrize("secret", [HARD, KEY, "nit is", "cell_t", 'tags": [', "u00fc and more"])
def test_a_redacted_notebook_is_a_valid_notebook(tmp_path, secret):
    path = tmp_path / "a.ipynb"
    notebook(path, secret)
    path.chmod(0o640)
    redact_file(path, [secret])
    document = nbformat.read(path, as_version=4)
    assert set(document.cells[0].outputs[0].text.split("\n")[1]) <= {"*"}
    assert secret not in document.cells[0].outputs[0].text
    assert document.cells[0].source == "show()"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.ipynb"]


def test_a_notebook_without_secrets_is_not_written(tmp_path):
    path = tmp_path / "a.ipynb"
    notebook(path, "nothing to see")
    before = path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino
    redact_file(path, ["another-secret"])
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_an_incomplete_notebook_is_redacted_as_a_log(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text('{"cells": [{"source": "secret-word"')
    redact_file(path, ["secret-word"])
    assert path.read_text() == '{"cells": [{"source": "***********"'


@pytest.mark.parametrize("depth", [600, 900, 5000, 100_000])
def test_a_deeply_nested_notebook_is_redacted_as_a_log(depth, tmp_path):
    """Each part of the reading and the writing has another limit of nesting."""
    path = tmp_path / "a.ipynb"
    text = '{"cells": [{"outputs": [{"data": {"x": %s, "text/plain": "%s"}}]}]}'
    nested = "[" * depth + "1" + "]" * depth
    path.write_text(text % (nested, "secret-word"))
    redact_file(path, ["secret-word"])
    assert path.read_text() == text % (nested, "*" * 11)


def test_only_the_values_that_nbformat_defines_remain(tmp_path):
    path, secret = tmp_path / "a.ipynb", "secret-word"
    output = {"output_type": secret, "data": {secret: {"id": secret}}, "metadata": {secret: secret}}
    cell = {"id": secret, "cell_type": secret, "metadata": {"id": secret}, "outputs": [output]}
    papermill = {"parameters": {"id": secret, "cell_type": secret}}
    kernel = {"name": "python3", "display_name": "Python 3"}
    metadata = {"papermill": papermill, "kernelspec": kernel, secret: 1}
    document = {"cells": [cell], "metadata": metadata, "id": secret, "nbformat": 4}
    path.write_text(json.dumps(document))
    redact_file(path, [secret, "play_n", "format"])
    hidden = "*" * len(secret)
    expected = json.loads(json.dumps(document).replace(secret, hidden))
    expected["cells"][0] |= {"id": secret, "cell_type": secret}
    expected["cells"][0]["outputs"][0]["output_type"] = secret
    assert json.loads(path.read_text()) == expected


@pytest.mark.parametrize(
    "line", ["{:050}", "it's {} & <more> of these", "$x/{:03}+", "aaaaaa", "a'b'c'"]
)
def test_each_line_of_a_long_secret_is_masked_in_blocks(line):
    lines = [line.format(number) for number in range(200)]
    secret = "\n".join(lines)
    masker, output = SecretMasker([secret]), f"{secret}\n{lines[7]} aaaa\n{shlex.quote(lines[9])}\n"
    raw = output.encode() * 3
    masked = b"".join(masker.mask(raw[at : at + 50]) for at in range(0, len(raw), 50))
    masked += masker.flush()
    assert masked == redact_text(output * 3, [secret]).encode()
    assert not any(each.encode() in masked for each in lines)
    assert b" aaaa\n" in masked
