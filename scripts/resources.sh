#!/usr/bin/env bash
# Reports the GPU resources of each kernel of the engine, from ptxas and from its launches, next to
# the budgets in dev/resources/sm_ARCH.txt. Exits 1 and names the kernel if one spills or exceeds its
# budget; scripts/resource_budgets.py defines the rules.
#
#   make resources                       makes what this reads, and calls it
#   scripts/resources.sh NVCC ARCH...    reads build/ptx/ARCH/*.ptxas, the reports of ptxas, and $LAUNCHES, the list of
#                                        launches
#   UPDATE=1 scripts/resources.sh ...    rewrites the tables
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2; exit 2; }
nvcc=$1
shift
case ${UPDATE:-0} in
  0) update=() ;;
  1) update=(--update) ;;
  *) echo "resources.sh: UPDATE=$UPDATE; allowed: 0, 1" >&2; exit 2 ;;
esac
LAUNCHES=${LAUNCHES:-build/ptx/90a/launches.list}

toolkit=$("$nvcc" --version | sed -nE 's/.*, V([0-9.]+)$/\1/p')
bad=0
for arch in "$@"; do
  python3 scripts/resource_budgets.py --arch "sm_$arch" --toolkit "$toolkit" --table "dev/resources/sm_$arch.txt" \
    --launches "$LAUNCHES" --complete llmc "${update[@]}" "build/ptx/$arch"/*.ptxas || bad=1
done
exit $bad
