#!/bin/bash
#SBATCH --job-name=flights
#SBATCH --comment=hyperplane:slurm
#SBATCH --output="/shared/logs of 100%%/flights-%j.log"
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=11921M
#SBATCH --time=26:30:00
#SBATCH --partition=short,long
#SBATCH --account=air-traffic
#SBATCH --qos=normal
#SBATCH --constraint=[rack1|rack2]&ib
#SBATCH --exclusive
#SBATCH --comment='of the flights'

export MALLOC_TRIM_THRESHOLD_=67108864
export MALLOC_MMAP_THRESHOLD_=33554432
export MALLOC_ARENA_MAX=3
export ARROW_DEFAULT_MEMORY_POOL=system
export POLARS_MAX_THREADS=3
# The prologue of the settings.
module load python/3.12
export TMPDIR=/scratch/$USER
export DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL=100ms
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL=2s
export DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED=False
export DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL=200ms
export DASK_DISTRIBUTED__P2P__COMM__CONCURRENCY=10
export DASK_DISTRIBUTED__P2P__COMM__BUFFER=150000000
export DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT=300s
export DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=60s
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=0.5
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=0.6
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=0.7
export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=False

exec '/opt/my python/bin/python' -m distributed.cli.dask_worker tcp://SCHEDULER:PORT \
  --name flights-0 \
  --nworkers 5 \
  --nthreads 3 \
  --memory-limit 2400000000B \
  --death-timeout 300 \
  --dashboard-address 127.0.0.1:0 \
  --interface ib0 \
  --local-directory '/scratch/$(whoami)' \
  --lifetime 95100s \
  --no-dashboard
