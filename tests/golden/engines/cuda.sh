#!/usr/bin/env bash
# Cluster gpus: 2 machines, each with 4 processes x 8 threads x 24 GB, 4 GPUs.
# Run it with "scheduler" on one machine that the others can reach, then with "worker" on each
# machine with GPUs. The key permits running code on all of them: only its owner should read it.
set -euo pipefail
: "${TLS_CA:?file with the certificate of the authority}"
: "${TLS_CERT:?file with the certificate of all processes of the cluster}"
: "${TLS_KEY:?file with the key of that certificate}"
tls=(--tls-ca-file "$TLS_CA" --tls-cert "$TLS_CERT" --tls-key "$TLS_KEY")

export DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL=2s
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED=False
export DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL=200ms
export DASK_DISTRIBUTED__P2P__COMM__CONCURRENCY=8
export DASK_DISTRIBUTED__P2P__COMM__BUFFER=1073741824
export DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT=300s
export DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.6
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=0.7
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=0.8
export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95
export DASK_DATAFRAME__BACKEND=cudf
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
export MALLOC_TRIM_THRESHOLD_=67108864
export MALLOC_MMAP_THRESHOLD_=33554432
export MALLOC_ARENA_MAX=8
export ARROW_DEFAULT_MEMORY_POOL=system
export POLARS_MAX_THREADS=8
export CUDF_SPILL=on

case "${1:-}" in
scheduler)
  exec dask scheduler "${tls[@]}" \
    --protocol tls \
    --port 8786 \
    --dashboard-address 127.0.0.1:8787 \
    --idle-timeout 1800s
  ;;
worker)
  : "${SCHEDULER:?address of the scheduler, such as tls://10.0.0.1:8786}"
  # One worker process runs on each of these GPUs.
  export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0,1,2,3}"
  exec dask cuda worker "$SCHEDULER" "${tls[@]}" \
    --protocol tls \
    --nthreads 8 \
    --memory-limit 24000000000 \
    --device-memory-limit 0.75 \
    --dashboard-address 127.0.0.1:0 \
    --death-timeout 1200s \
    --rmm-pool-size 0.5 \
    --set-rmm-allocator-for-libs cupy,torch \
    --enable-cudf-spill \
    --local-directory '/nvme/my scratch; rm -r $HOME'
  ;;
*)
  echo "usage: $0 scheduler|worker" >&2
  exit 2
  ;;
esac
