#!/usr/bin/env bash
# Reports the GPU resources of each kernel of the engine, from ptxas and from its launches, next to
# the budgets in dev/resources/sm_ARCH.txt. Exits 1 and names the kernel if one spills or exceeds its
# budget; scripts/resource_budgets.py defines the rules.
#
#   make resources                        builds $LAUNCHES, which lists the launches, and calls this
#   scripts/resources.sh "80 90a" [include flags] [-- SOURCE.cu ...]
#   UPDATE=1 scripts/resources.sh ...     rewrite the tables
#
# The default sources are $UNITS, which have the kernels of llmc, and dev/launches.cu, which has their
# alternatives: a kernel in llmc that they do not compile is an error. $OPS_LIST is the header with the list of
# ops that dev/launches.cu reads.
set -euo pipefail
cd "$(dirname "$0")/.."
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$NVCC" ] || { echo "resources.sh: nvcc is missing; put it on PATH, or set NVCC to its path" >&2; exit 2; }
archs=${1:-80 90a}
shift || true
includes=() sources=() complete=()
while [ $# -gt 0 ]; do
  if [ "$1" = -- ]; then shift; sources=("$@"); break; fi
  includes+=("$1"); shift
done
[ ${#includes[@]} -gt 0 ] || includes=(-I.)
if [ ${#sources[@]} -eq 0 ]; then
  OPS_LIST=${OPS_LIST:-build/host/ops.h}
  [ -f "$OPS_LIST" ] || { echo "resources.sh: $OPS_LIST is missing; run make build/host/launches" >&2; exit 2; }
  read -ra sources <<<"${UNITS:-}"
  [ ${#sources[@]} -gt 0 ] || { echo "resources.sh: UNITS is empty; run make resources" >&2; exit 2; }
  sources=(dev/launches.cu "${sources[@]}") includes+=(-include "$OPS_LIST") complete=(--complete llmc)
fi
case ${UPDATE:-0} in
  0) update=() ;;
  1) update=(--update)
    [ ${#complete[@]} -gt 0 ] || { echo "resources.sh: UPDATE=1 with other sources would lose budgets" >&2; exit 2; } ;;
  *) echo "resources.sh: UPDATE=$UPDATE; allowed: 0, 1" >&2; exit 2 ;;
esac

LAUNCHES=${LAUNCHES:-build/host/launches}
[ -x "$LAUNCHES" ] || { echo "resources.sh: $LAUNCHES is missing; run make build/host/launches" >&2; exit 2; }

toolkit=$("$NVCC" --version | sed -nE 's/.*, V([0-9.]+)$/\1/p')
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
"$LAUNCHES" >"$reports/launches" || { echo "resources.sh: $LAUNCHES failed" >&2; exit 1; }
# Compile every source for every architecture, as many at the same time as there are cores. The longest,
# dev/launches.cu, comes first.
compile() { # architecture, source: the report is $reports/ARCH/SOURCE
  local report=$reports/$1/$(basename "$2")
  "$NVCC" -std=c++20 -O3 --expt-relaxed-constexpr -arch="sm_$1" -cubin -Xptxas -v -x cu \
    "${includes[@]}" "$2" -o /dev/null >"$report" 2>&1 || mv "$report" "$report.failed"
}
for arch in $archs; do mkdir "$reports/$arch"; done
for source in "${sources[@]}"; do
  for arch in $archs; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    compile "$arch" "$source" &
  done
done
wait

bad=0
for arch in $archs; do
  for failed in "$reports/$arch"/*.failed; do
    [ -e "$failed" ] || continue
    grep -E 'error|fatal' "$failed" >&2 || cat "$failed" >&2
    echo "resources.sh: $(basename "$failed" .failed) does not compile for sm_$arch" >&2
    exit 1
  done
  python3 scripts/resource_budgets.py --arch "sm_$arch" --toolkit "$toolkit" --table "dev/resources/sm_$arch.txt" \
    --launches "$reports/launches" "${update[@]}" "${complete[@]}" "$reports/$arch"/* || bad=1
done
exit $bad
