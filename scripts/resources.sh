#!/usr/bin/env bash
# What each kernel of the programs takes of a GPU, as ptxas reports it: registers a thread, bytes
# spilled to local memory, bytes of stack, static shared memory (the dynamic part is the launcher's).
#
#   scripts/resources.sh "80 90a" [include flags] [-- SOURCE.cu ...]     (default: the mains)
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

for arch in $archs; do
  for source in "${sources[@]}"; do
    echo "$source, sm_$arch"
    echo " registers  spill B  stack B  shared B  kernel"
    "$NVCC" -std=c++20 -O3 --expt-relaxed-constexpr -arch="sm_$arch" -cubin -Xptxas -v -x cu "${includes[@]}" \
      "$source" -o /dev/null 2>&1 | awk '
      /Compiling entry function/ {split($0, q, "\047"); kernel = q[2]; spill = stack = shared = 0}
      /bytes stack frame/ && kernel != "" {stack = $1; spill = $5 + $9}
      /Used [0-9]+ registers/ && kernel != "" {
        shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
        match($0, /Used [0-9]+/)
        printf "%10d %8d %8d %9d  %s\n", substr($0, RSTART + 5, RLENGTH - 5), spill, stack, shared, kernel
        kernel = ""
      }
      /error/ {print}' | c++filt | sed -E 's/  void /  /; s/llmc:://g; s/\(anonymous namespace\):://g; s/\([^()]*(\([^()]*\)[^()]*)*\)$//' | sort -k5
  done
done
