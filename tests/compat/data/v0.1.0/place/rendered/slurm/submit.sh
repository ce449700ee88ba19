#!/bin/bash
# Submits the steps of job 'rendered' to Slurm.
set -euo pipefail
unset CDPATH
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
# These would overrule what the scripts say.
unset SBATCH_ARRAY_INX SBATCH_EXPORT SBATCH_GRES SBATCH_JOB_NAME SBATCH_MEM_PER_CPU
unset SBATCH_MEM_PER_GPU SBATCH_MEM_PER_NODE SBATCH_NO_REQUEUE SBATCH_OUTPUT SBATCH_REQUEUE
unset SBATCH_SIGNAL SBATCH_TIMELIMIT SBATCH_WAIT
mkdir -p -m 700 logs
numbers=()
trap '[ "${#numbers[@]}" -eq 0 ] || scancel "${numbers[@]}"' EXIT

# submit SCRIPT [PLACE]...: after the steps at these places of the list above it.
submit() {
  local script=$1 after='' number place
  shift
  for place; do after+=":${numbers[place]}"; done
  number=$(sbatch --parsable ${after:+"--dependency=afterok$after" --kill-on-invalid-dep=yes} \
    "$script")
  # In a federation the name of a cluster follows.
  number=${number%%;*}
  [[ $number =~ ^[0-9]+$ ]] || { echo "sbatch: no number of a job: $number" >&2; exit 1; }
  numbers+=("$number")
  echo "$number $script"
}

# secret VARIABLE FILE NAME...: the first variable of these names that is not empty, or the file.
secret() {
  local variable=$1 file=$2 name value=''
  shift 2
  for name; do
    value=${!name:-}
    if [ -n "$value" ]; then break; fi
  done
  if [ -z "$value" ] && ! value=$(cat -- "$file" 2>/dev/null); then
    echo "no secret: set the variable $*, or write the file $file" >&2
    exit 2
  fi
  export "$variable=$value"
}
secret HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN /etc/hyperplane/secrets/api_token api_token API_TOKEN
secret HYPERPLANE_CUSTOM_SECRET_KEY_DATABASE_PASSWORD /etc/hyperplane/secrets/database/password DATABASE_PASSWORD

submit 000-clean.sbatch
submit 001-report.sbatch 0
submit 002-years.sbatch 0
submit 003-shares.sbatch 2 1
submit 004-page.sbatch 3
trap - EXIT
