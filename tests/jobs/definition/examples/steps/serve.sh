#!/bin/bash
set -euo pipefail
echo "serving ${HYPERPLANE_JOB_PARAMETER_USERDIR:-.}"
