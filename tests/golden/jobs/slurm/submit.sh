#!/bin/bash
# Submits the steps of job 'brisk_otter' to Slurm.
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
  job_id=$(sbatch --parsable ${after:+"--dependency=afterok$after" --kill-on-invalid-dep=yes} \
    "$script")
  # In a federation the name of a cluster follows.
  job_id=${job_id%%;*}
  [[ $job_id =~ ^[0-9]+$ ]] || { echo "sbatch printed no job ID but: $job_id" >&2; exit 1; }
  job_ids+=("$job_id")
  echo "$job_id $script"
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
secret HYPERPLANE_CUSTOM_SECRET_KEY_DATABASE_PASSWORD /etc/hyperplane/secrets/database/password DATABASE_PASSWORD
secret HYPERPLANE_CUSTOM_SECRET_KEY_API_TOKEN /etc/hyperplane/secrets/API_TOKEN API_TOKEN

submit 000-clean-the-data.sbatch
submit 002-parts.sbatch
submit 001-years.sbatch 0
submit 003-report.sbatch 2 1
trap - EXIT
