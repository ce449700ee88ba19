"""Batch scripts: quoting, and the beginning of a script that submits others."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

#: Beginning of a bash script that submits other scripts with the function ``submit``, and cancels
#: their jobs if one cannot be submitted. It runs on machines without this package.
SUBMIT_FUNCTION = """\
set -euo pipefail
unset CDPATH
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# These variables would override options of the scripts.
unset SBATCH_ARRAY_INX SBATCH_EXPORT SBATCH_GRES SBATCH_JOB_NAME SBATCH_MEM_PER_CPU
unset SBATCH_MEM_PER_GPU SBATCH_MEM_PER_NODE SBATCH_NO_REQUEUE SBATCH_OUTPUT SBATCH_REQUEUE
unset SBATCH_SIGNAL SBATCH_TIMELIMIT SBATCH_WAIT
mkdir -p -m 700 logs
job_ids=()
trap '[ "${#job_ids[@]}" -eq 0 ] || scancel "${job_ids[@]}"' EXIT

# submit SCRIPT [INDEX]...: its job starts when those of the earlier scripts with these indices,
# counted from 0, have succeeded.
submit() {
  local script=$1 after='' job_id index
  shift
  for index; do after+=":${job_ids[index]}"; done
  job_id=$(sbatch --parsable ${after:+"--dependency=afterok$after" --kill-on-invalid-dep=yes} \\
    "$script")
  # In a federation the name of a cluster follows.
  job_id=${job_id%%;*}
  [[ $job_id =~ ^[0-9]+$ ]] || { echo "sbatch printed no job ID but: $job_id" >&2; exit 1; }
  job_ids+=("$job_id")
  echo "$job_id $script"
}
"""


def quote_word(text: str) -> str:
    r"""Quote text as one bash word on one line.

    Slurm reads scripts line by line before bash does: a line of the text must not look like a Slurm
    directive, and Slurm refuses scripts with DOS line ends.

    Examples
    --------
    >>> print(quote_word("a"), quote_word("it's"), quote_word("two\nlines"))
    a 'it'"'"'s' 'two'$'\n''lines'
    """
    word = shlex.quote(text)
    # shlex puts such words in single quotes, which are closed and opened again.
    return word.replace("\n", r"'$'\n''").replace("\r", r"'$'\r''")


def render_array(name: str, words: Iterable[str]) -> str:
    """Render a bash array of quoted words, one per line."""
    return f"{name}=(\n" + "".join(f"  {word}\n" for word in words) + ")"


def render_script(argv: Sequence[str], folder: str) -> str:
    """Render a script that runs a program in a folder, in place of the shell."""
    enter = f"cd -- {quote_word(folder)} || exit 126"
    return f"#!/bin/bash\n{enter}\nexec {' '.join(map(quote_word, argv))}\n"
