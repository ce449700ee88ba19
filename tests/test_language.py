"""Forbidden words and names: the code and its pages use the words of Dask, Kubernetes and Slurm.

Checked are docstrings, comments, messages and names of the package, its tests and scripts, the
pages of the documentation, the configuration and the Markdown cells of the notebooks. A failure
names the file, the line, the word and what to write instead.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

#: Names that stay: a public class, and two paths of version 0.1.0 that queued batch jobs run.
KEPT_NAMES = frozenset({"Submitted", "again", "around"})

#: Exceptions: path and word in lower case ("*" for all) of quotations and data that are not prose.
QUOTED: frozenset[tuple[str, str]] = frozenset({("tests/test_language.py", "*")})

#: Forbidden words as regular expressions, in which a space matches any white space, and what to
#: write instead.
WORDS = {
    r"somebody(?:'s)?": "name the actor: the user, the caller, another process",
    r"nobody(?:'s)?": "name the actor and what it does not do: 'no process', 'no user'",
    r"who(?:m)?ever": "name the actor: 'the caller', 'any process'",
    r"(?:is|are|be|was|were) told": "say what is passed, set or printed: 'receives', 'is set to'",
    r"ha(?:s|ve) a say": "say which value takes precedence",
    r"st(?:ands?|ood|anding) for": "'means', 'represents' or 'is the value of'",
    r"st(?:ands?|ood) there": "'is there', 'exists' or 'is in the file'",
    r"all the same": "'nevertheless', 'anyway' or nothing",
    r"at that(?= *(?:[.,;:!?)]|$))": "leave it out",
    r"of (?:its|their) own": "'separate', 'own' before the noun, or nothing",
}

#: Words that are not names of classes and modules, because they do not say what the thing is.
PARTICIPLES = frozenset(
    {
    "asked", "built", "chosen", "cleaned", "collected", "counted", "done", "drawn",
    "encoded", "fed", "filled", "followed", "found", "given", "gone", "grouped", "handed", "held",
    "hidden", "joined", "kept", "known", "laid", "lent", "lost", "made", "measured",
    "met", "moved", "named", "needed", "noted", "opened", "paid", "placed", "queued",
    "refused", "rendered", "said", "saved", "scanned", "seen", "sent",
    "shared", "shown", "sized", "stopped", "stored", "stuck", "taken", "told", "unseen",
    "used", "wanted", "written",
    }
)  # fmt: skip
ADVERBS = frozenset(
    {
    "afresh", "again", "anew", "anywhere", "apart", "around", "aside", "away", "beside",
    "besides", "beyond", "elsewhere", "here", "meanwhile", "nowhere", "once", "somewhere",
    "there", "together",
    }
)  # fmt: skip
#: Nouns that only look like participles.
NOUNS = frozenset({"embed", "feed", "need", "seed", "speed"})


class Hit(NamedTuple):
    """A violation with its file and line."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def _files(*patterns: str) -> list[Path]:
    found = {file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()}
    return sorted(file for file in found if "__pycache__" not in file.parts)


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _pattern(word: str) -> re.Pattern[str]:
    """Compile a word; a space also matches a line break and the comment mark after it."""
    spaced = word.replace(" *", "<blanks>").replace(" ", r"\s+(?:[#>*]\s+)?")
    spaced = spaced.replace("<blanks>", " *")
    return re.compile(rf"(?<!\w){spaced}(?!\w)", re.IGNORECASE | re.MULTILINE)


PATTERNS = {_pattern(word): advice for word, advice in WORDS.items()}


def find_words(text: str, path: str, first_line: int = 1) -> Iterator[Hit]:
    """Yield each forbidden word of a text."""
    for pattern, advice in PATTERNS.items():
        for match in pattern.finditer(text):
            word = " ".join(part for part in match[0].split() if part not in "#>*")
            if {(path, word.lower()), (path, "*")} & QUOTED:
                continue
            line = first_line + text.count("\n", 0, match.start())
            yield Hit(path, line, f"{word!r}: write {advice}")


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """First line and text of each comment; consecutive comment lines are one text."""
    start, lines, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and lines:
            yield start, "\n".join(lines)
            lines = []
        if not lines:
            start = token.start[0]
        lines.append(token.string)
        last = token.start[0]
    if lines:
        yield start, "\n".join(lines)


def _identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def _may_have_words(source: str) -> bool:
    """Whether any forbidden word is in a source when quotes, marks and underscores are spaces."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", source)
    words = re.sub(r"""(?:\bf(?=["'])|[\s"'#>*_])+""", " ", words)
    return any(pattern.search(words) for pattern in PATTERNS)


def find_words_in_python(file: Path) -> Iterator[Hit]:
    """Yield the forbidden words of docstrings, comments, texts and names of a Python file."""
    source, path = file.read_text(encoding="utf-8"), _name(file)
    if not _may_have_words(source):  # to parse all files takes ten seconds
        return
    tree = ast.parse(source)
    for line, comment in _comments(source):
        yield from find_words(comment, path, line)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from find_words(node.value, path, node.lineno)
    for line, name in _identifiers(tree):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("_", " ")
        for hit in find_words(words, path, line):
            yield hit._replace(message=f"the name {name}: {hit.message}")


def find_words_in_notebook(file: Path) -> Iterator[Hit]:
    """Yield the forbidden words of Markdown cells; the line is that of the cell."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cells, 1):
        if cell["cell_type"] == "markdown":
            for hit in find_words("".join(cell["source"]), _name(file)):
                yield hit._replace(message=f"cell {number}, {hit.message}")


def _report(hits: list[Hit]) -> str:
    return "\n".join(map(str, sorted(hits)))


PYTHON = _files("hyperplane/**/*.py", "tests/**/*.py", "scripts/**/*.py", "conftest.py")
TEXTS = _files("docs/**/*.md", "README.md", "CONTRIBUTING.md", "config/*.yaml")
NOTEBOOKS = _files("notebooks/**/*.ipynb")
PACKAGE = _files("hyperplane/**/*.py")


@pytest.mark.slow
def test_python_files_have_no_forbidden_word():
    report = _report([hit for file in PYTHON for hit in find_words_in_python(file)])
    assert not report, f"see WORDS in tests/test_language.py\n{report}"


def test_pages_and_configuration_have_no_forbidden_word():
    hits = [hit for file in TEXTS for hit in find_words(file.read_text("utf-8"), _name(file))]
    report = _report(hits)
    assert not report, f"see WORDS in tests/test_language.py\n{report}"


def test_notebooks_have_no_forbidden_word():
    report = _report([hit for file in NOTEBOOKS for hit in find_words_in_notebook(file)])
    assert not report, f"see WORDS in tests/test_language.py\n{report}"


def name_problem(name: str) -> str:
    """Description of what is wrong with the name of a class or module; empty if valid."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    lowered = [word.lower() for word in words]
    if len(lowered) == 1 and lowered[0] not in NOUNS:
        word = lowered[0]
        if word in PARTICIPLES or (word.endswith("ed") and len(word) > 4):
            return f"{name!r} is a bare participle: name the thing, as in StagedFile"
    if lowered and lowered[0] in ADVERBS | {"of"}:
        return f"{name!r} begins with an adverb or preposition: name the thing"
    if len(lowered) > 1 and lowered[-1] in ADVERBS:
        return f"{name!r} ends with an adverb: name the thing"
    return ""


@cache
def _classes(file: Path) -> list[tuple[int, str]]:
    source = file.read_text(encoding="utf-8")
    if not re.search(r"\bclass ", source):  # to parse all files takes a second
        return []
    nodes = ast.walk(ast.parse(source))
    return [(node.lineno, node.name) for node in nodes if isinstance(node, ast.ClassDef)]


def test_classes_and_modules_are_named_with_nouns():
    hits = [
        Hit(_name(file), line, problem)
        for file in PACKAGE
        for line, name in [*_classes(file), (1, file.stem)]
        if name not in KEPT_NAMES and (problem := name_problem(name))
    ]
    assert not (report := _report(hits)), report


def test_no_two_classes_of_the_package_have_one_name():
    places = defaultdict(list)
    for file in PACKAGE:
        for line, name in _classes(file):
            places[name].append(f"{_name(file)}:{line}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    report = "\n".join(
        f"{', '.join(where)}: {name!r} names {len(where)} classes: qualify each, as in "
        "ParquetPartition and CsvByteRange"
        for name, where in sorted(shared.items())
    )
    assert not report, report


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Somebody is told of it.", ["Somebody", "is told"]),
        ("all the\n    same", ["all the same"]),
        ("# nobody\n# has a\n# say", ["nobody", "has a say"]),
        ("a pod, and a large one at that.", ["at that"]),
        ("the file at that path", []),
        ("a process of its own", ["of its own"]),
        ("its own process", []),
    ],
)
def test_forbidden_words_are_found_across_lines(text, words):
    found = [str(hit.message).split("'")[1] for hit in find_words(text, "page.md")]
    assert sorted(found) == sorted(words)


@pytest.mark.parametrize(
    ("name", "is_wrong"),
    [
        ("Told", True),
        ("_Measured", True),
        ("Together", True),
        ("OfThisMachine", True),
        ("elsewhere", True),
        ("StagedFile", False),
        ("JobFailed", False),
        ("SplitPlan", False),
        ("wait_for_workers", False),
    ],
)
def test_name_problem_of_classes_and_modules(name, is_wrong):
    assert bool(name_problem(name)) is is_wrong


@pytest.mark.parametrize(
    "source",
    [
        '"""Somebody reads it."""',
        'def f():\n    raise ValueError("the step is "\n        "told to end")',
        "x = 1  # all the\n# same",
        "def test_nobody_reads(): pass",
        "class IsToldOfIt: pass",
        "def f(who_ever, nobody): pass",
    ],
)
def test_forbidden_words_are_found_in_python(tmp_path, monkeypatch, source):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(source)
    assert len(list(find_words_in_python(file))) == 1
    file.write_text('"""Return the ids of the steps that ran."""\nids = {"of its": 1}')
    assert not list(find_words_in_python(file))
