#!/usr/bin/env bash
# What each kernel of the programs takes of a GPU, as ptxas reports it, beside what it may take: the
# budgets in dev/resources/sm_ARCH.txt. Exits 1, naming the kernel, where one spills or is over its
# budget; scripts/resource_budgets.py says how that is judged.
#
#   scripts/resources.sh "80 90a" [include flags] [-- SOURCE.cu ...]     (default: the mains)
#   UPDATE=1 scripts/resources.sh ...     write the tables anew, from what was compiled
set -euo pipefail
cd "$(dirname "$0")/.."
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$NVCC" ] || { echo "resources.sh: nvcc is missing; kernels are compiled for a GPU with it" >&2; exit 2; }
archs=${1:-80 90a}
shift || true
includes=() sources=()
while [ $# -gt 0 ]; do
  if [ "$1" = -- ]; then shift; sources=("$@"); break; fi
  includes+=("$1"); shift
done
[ ${#includes[@]} -gt 0 ] || includes=(-I.)
if [ ${#sources[@]} -eq 0 ]; then
  shopt -s nullglob
  sources=(*.cu)
fi
[ ${#sources[@]} -gt 0 ] || { echo "resources.sh: there is no program to compile" >&2; exit 2; }
case ${UPDATE:-0} in
  0) update=() ;;
  1) update=(--update) ;;
  *) echo "resources.sh: UPDATE=$UPDATE; allowed: 0, 1" >&2; exit 2 ;;
esac

toolkit=$("$NVCC" --version | sed -nE 's/.*, V([0-9.]+)$/\1/p')
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
bad=0
for arch in $archs; do
  files=()
  for source in "${sources[@]}"; do
    file=$reports/$(basename "$source")
    if ! "$NVCC" -std=c++20 -O3 --expt-relaxed-constexpr -arch="sm_$arch" -cubin -Xptxas -v -x cu \
         "${includes[@]}" "$source" -o /dev/null >"$file" 2>&1; then
      grep -E 'error|fatal' "$file" >&2 || cat "$file" >&2
      echo "resources.sh: $source does not compile for sm_$arch" >&2
      exit 1
    fi
    files+=("$file")
  done
  python3 scripts/resource_budgets.py --arch "sm_$arch" --toolkit "$toolkit" --table "dev/resources/sm_$arch.txt" \
    "${update[@]}" "${files[@]}" || bad=1
done
exit $bad
