"""Find the parameters that programs in Python, bash and JavaScript read, in their source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hyperplane.jobs.submission.parameters import PARAMETER_PREFIX, variable_name

#: Standard library modules that run programs or text, which may read any variable.
_MODULES_WITH_UNKNOWN_READS = {
    "subprocess", "pty", "runpy", "importlib", "code", "codeop", "ctypes",
}  # fmt: skip
#: Functions through which a program may read names that its source does not show.
_NAMES_WITH_UNKNOWN_READS = {"eval", "exec", "compile", "__import__", "globals", "locals", "vars"}
_OS_NAMES_WITH_UNKNOWN_READS = re.compile(
    r"system|popen|exec\w+|spawn\w+|posix_spawnp?|expandvars|environb|getenvb"
)
_ENVIRON = {"environ", "getenv"}
#: Shell commands that read no variables except those in their arguments.
_ANALYZABLE_COMMANDS = frozenset(
    re.split(
        " ",
        ": [ [[ ] ]] { } break cat cd chmod cmp cp cut date diff dirname basename do done echo "
        "elif else esac exit false fi for function grep gunzip gzip head hostname if in kill let "
        "ln local ls md5sum mkdir mktemp mv paste printf pwd read readonly return rm rmdir seq "
        "shift sha256sum sleep sort tail tar tee test then touch tr trap true uniq unset until "
        "wait wc while",
    )
)
_NODE_CORE_MODULES = frozenset(
    re.split(
        " ",
        "assert buffer crypto events fs http https os path process querystring readline stream "
        "timers url util zlib",
    )
)
_WORD = re.compile(r"\w+")
_MAGICS = "time|timeit|matplotlib|load_ext|autoreload|config|pylab|precision"
_MAGIC = re.compile(rf"^\s*%({_MAGICS})\b(.*)")


@dataclass(frozen=True)
class ParameterReads:
    """Parameters that a program may read.

    Parameters
    ----------
    names : frozenset of str
        Parameters that it reads by name.
    variables : frozenset of str
        Variables of a notebook; parameters become variables there.
    words : frozenset of str
        Words that may name a parameter, spelled as variables.
    complete : bool
        Whether these are all parameters that it may read; False if it runs or imports unknown code.
    modules : frozenset of str
        Python modules that it imports.
    files : frozenset of str
        Words that may be paths of programs that it runs.
    """

    names: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    complete: bool = True
    modules: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    def __or__(self, other: ParameterReads) -> ParameterReads:
        return ParameterReads(
            self.names | other.names,
            self.variables | other.variables,
            self.words | other.words,
            self.complete and other.complete,
            self.modules | other.modules,
            self.files | other.files,
        )

    def mentions(self, parameter: str) -> bool:
        """Whether the program names a parameter, as a variable or an environment variable."""
        variable = variable_name(parameter)
        return parameter in self.variables or bool(
            {variable, PARAMETER_PREFIX + variable} & self.words
        )


#: Result for a program whose source cannot be read.
UNKNOWN = ParameterReads(complete=False)


def find_words(text: str) -> frozenset[str]:
    """Return the words of a text, spelled as variables."""
    return frozenset(variable_name(word) for word in _WORD.findall(text))


def analyze_python(text: str) -> ParameterReads:
    """Return the parameters that a Python program may read.

    Examples
    --------
    >>> reads = analyze_python("import os; print(os.environ.get('SOURCE', 'a'))")
    >>> sorted(reads.names), reads.complete, reads.mentions("source"), reads.mentions("sorce")
    (['source'], True, True, False)
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ParameterReads(words=find_words(text), complete=False)
    names: set[str] = set()
    words: set[str] = set()
    modules: set[str] = set()
    single_uses: set[int] = set()
    complete = True
    nodes = list(ast.walk(tree))
    for node in nodes:
        single_uses |= {id(use) for use in _single_variable_uses(node)}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words |= find_words(node.value) | {variable_name(node.value[:200])}
            names |= _parameter_names(node.value)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            modules |= {base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)} - {""}
            complete &= all(
                not _OS_NAMES_WITH_UNKNOWN_READS.fullmatch(alias.name) for alias in node.names
            )
    for node in nodes:
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
        if isinstance(node, ast.Name) and name in _NAMES_WITH_UNKNOWN_READS:
            complete = False
        elif isinstance(node, ast.Attribute) and _OS_NAMES_WITH_UNKNOWN_READS.fullmatch(str(name)):
            complete &= not (isinstance(node.value, ast.Name) and node.value.id in ("os", "path"))
            complete &= not (isinstance(node.value, ast.Attribute) and name == "expandvars")
        elif name in _ENVIRON and id(node) not in single_uses:
            complete = False  # reads all variables, or one whose name is not a literal
    complete &= not any(module.split(".")[0] in _MODULES_WITH_UNKNOWN_READS for module in modules)
    return ParameterReads(
        frozenset(names),
        words=frozenset(words),
        complete=complete,
        modules=frozenset(modules),
    )


def _single_variable_uses(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes that read one variable with a literal name."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        yield node.func  # getenv("X")
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault"):
            yield node.func.value
    elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
        yield from node.comparators


def _parameter_names(text: str) -> set[str]:
    name = text.removeprefix(PARAMETER_PREFIX)
    return {name.lower()} if re.fullmatch("[A-Z][A-Z0-9_]+", name) else set()


def analyze_cells(cells: list[str]) -> ParameterReads:
    """Return the parameters that the cells of a Python notebook may read, also as variables."""
    combined = ParameterReads()
    for cell in cells:
        text, complete = _strip_magics(cell)
        reads = analyze_python(text)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            tree = ast.Module([], [])
        variables = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if not complete:  # a magic may use a variable in other ways
            variables |= set(_WORD.findall(cell))
            reads = replace(reads, words=reads.words | find_words(cell), complete=False)
        combined |= replace(reads, variables=frozenset(variables))
    return combined


def _strip_magics(cell: str) -> tuple[str, bool]:
    """Return a cell's Python code without magics, and whether it is all that the cell runs."""
    lines, complete = [], True
    for number, line in enumerate(cell.splitlines()):
        magic = _MAGIC.match(line)
        if number == 0 and re.match(r"%%(time|timeit|capture)\b", line):
            continue
        if line.startswith("%%"):
            return "", False
        if magic:
            lines.append(magic[2].strip() if magic[1].startswith("time") else "")
        elif re.match(r"\s*[%!]", line) or line.rstrip().endswith("?"):
            complete = False
        else:
            lines.append(line)
            complete = complete and not re.search(r"=\s*[!%]\s*\w", line)
    return "\n".join(lines), complete


def analyze_bash(text: str) -> ParameterReads:
    """Return the parameters that a shell script may read.

    Examples
    --------
    >>> reads = analyze_bash('echo "${SOURCE:-none}" && sleep 1')
    >>> sorted(reads.names), reads.complete, analyze_bash("make all").complete
    (['source'], True, False)
    """
    text = re.sub(r"\\\n", " ", text)
    code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
    variables = re.findall(r"\$\{?#?([A-Za-z_]\w*)", code)
    names = {name for variable in variables for name in _parameter_names(variable)}
    complete = "${!" not in code and "<<" not in code
    for part in re.split(r"[\n;|&()`]+|\$\(|\b(?:do|then|else|if|while|until)\b|!\s", code):
        words = re.sub(r"^(\s*[A-Za-z_]\w*=(\"[^\"]*\"|'[^']*'|\S*))+", "", part).split()
        complete = complete and (
            not words or words[0].strip("\"'") in _ANALYZABLE_COMMANDS | {"$", "}"}
        )
    files = {word.strip("\"'") for word in re.split(r"[\s;|&()<>=`]+", code)}
    return ParameterReads(
        frozenset(names), words=find_words(code), complete=complete, files=frozenset(files)
    )


def analyze_javascript(text: str) -> ParameterReads:
    """Return the parameters that a JavaScript program may read.

    Examples
    --------
    >>> reads = analyze_javascript("console.log(process.env.SOURCE)")
    >>> sorted(reads.names), reads.complete, analyze_javascript("run(process.env)").complete
    (['source'], True, False)
    """
    direct = re.findall(r"process\.env(?:\.(\w+)|\[\s*['\"`](\w+)['\"`]\s*\])", text)
    unpacked = re.findall(r"\{([^{}]*)\}\s*=\s*process\.env\b(?!\s*[.\[])", text)
    names_read = {attribute or key for attribute, key in direct}
    names_read |= {name for part in unpacked for name in re.findall(r"(?:^|,)\s*(\w+)", part)}
    recognized = len(direct) + len(unpacked)
    imported = re.findall(r"(?:require\(|import\(|from|import)\s*['\"]([^'\"]+)['\"]", text)
    files = {module for module in imported if module.startswith(".")}
    others = {module.removeprefix("node:") for module in imported} - files
    complete = recognized == text.count("process.env") and others <= _NODE_CORE_MODULES
    complete = complete and not any("..." in part for part in unpacked)
    complete = complete and not re.search(r"\beval\(|\brequire\((?!\s*['\"])", text)
    names = frozenset(name for variable in names_read for name in _parameter_names(variable))
    return ParameterReads(
        names, words=find_words(text), complete=bool(complete), files=frozenset(files)
    )
