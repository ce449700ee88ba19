#!/bin/bash
#SBATCH --job-name=flights
#SBATCH --comment=hyperplane:slurm
#SBATCH --output="/shared/login1/hyperplane-1000/0123456789/flights/flights-%j.log"
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=11683M
#SBATCH --gres=gpu:2

export MALLOC_TRIM_THRESHOLD_=67108864
export MALLOC_MMAP_THRESHOLD_=33554432
export MALLOC_ARENA_MAX=3
export ARROW_DEFAULT_MEMORY_POOL=system
export POLARS_MAX_THREADS=3
export DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL=2s
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED=False
export DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL=200ms
export DASK_DISTRIBUTED__P2P__COMM__CONCURRENCY=6
export DASK_DISTRIBUTED__P2P__COMM__BUFFER=375000000
export DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT=300s
export DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.6
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=0.7
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=0.8
export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95

exec /opt/python/bin/python -m dask cuda worker tls://SCHEDULER:PORT \
  --name flights-0 \
  --nthreads 3 \
  --memory-limit 6000000000B \
  --death-timeout 300 \
  --dashboard-address 127.0.0.1:0 \
  --protocol tls:// \
  --tls-ca-file /shared/login1/hyperplane-1000/0123456789/flights/ca.pem \
  --tls-cert /shared/login1/hyperplane-1000/0123456789/flights/cert.pem \
  --tls-key /shared/login1/hyperplane-1000/0123456789/flights/key.pem \
  --no-dashboard
