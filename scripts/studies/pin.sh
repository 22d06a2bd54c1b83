#!/bin/sh
# Starts a rank on its cores.
#
#   pin.sh CORES_PER_RANK CORE,CORE,... PROGRAM [ARGUMENT...]
#
# The n-th rank of the machine gets the n-th group of CORES_PER_RANK cores of the list. If the list is too short for all
# ranks, ranks share groups. The launcher tells a rank its number; without one, it is the first.
cores=$1 list=$2
shift 2
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-${LOCAL_RANK:-0}}}}
total=$(echo "$list" | tr ',' '\n' | wc -l)
groups=$((total / cores))
[ "$groups" -gt 0 ] || groups=1
first=$((rank % groups * cores + 1))
own=$(echo "$list" | tr ',' '\n' | sed -n "$first,$((first + cores - 1))p" | paste -s -d , -)
exec taskset -c "$own" "$@"
