#!/usr/bin/env bash
# Seconds of builds from nothing and of builds after an edit, in a clone of the last commit.
#
#   dev/build_times.sh [edits|builds|test|ci]...     (default: builds edits)
#
# edits   train_gpt2 for the host after a change in a kernel, a help text and a file without kernels
# builds  `make CUDA=0` from nothing
# test    `make test CUDA=0` from nothing
# ci      .ci/run from nothing
set -euo pipefail
cd "$(dirname "$0")/.."
clone=$(mktemp -d "${TMPDIR:-/tmp}/build_times.XXXXXX")
trap 'rm -rf "$clone"' EXIT
git clone --quiet . "$clone/project"
[ -d ../shared ] && ln -s "$(cd ../shared && pwd)" "$clone/shared"
cd "$clone/project"
echo "commit $(git rev-parse --short HEAD), $(nproc) cores, $(${CXX:-g++} --version | head -1)"

# seconds NAME COMMAND...: runs the command and prints its time.
seconds() {
  local name=$1 begin
  shift
  begin=$(date +%s.%N)
  "$@" >"$clone/log" 2>&1 || { tail -20 "$clone/log" >&2; exit 1; }
  awk -v name="$name" -v s="$(date +%s.%N)" -v b="$begin" 'BEGIN { printf "%-58s %7.1f s\n", name, s - b }'
}

# A file that exists in this commit, of several names.
first_of() {
  for file in "$@"; do
    if [ -f "$file" ]; then echo "$file" && return; fi
  done
}

edits() {
  make CUDA=0 build/host/train_gpt2 >"$clone/log" 2>&1
  local file number=0
  for file in "$(first_of llmc/ops/activation.cu llmc/ops/gelu.cu llmc/ops/gelu.h)" \
              llmc/ops/attention/flash_attention_forward.h \
              "$(first_of llmc/io/run_log.cpp llmc/io/run_log.h)"; do
    printf '\nnamespace llmc { inline int edit_%d() { return 1; } }\n' $((++number)) >>"$file"
    seconds "train_gpt2 after an edit in $file" make CUDA=0 build/host/train_gpt2
  done
  file=$(first_of llmc/config/train_optimizer_settings.cpp llmc/config/train_optimizer_settings.h)
  sed -i 's/steps of linear warm-up/steps of linear  warm-up/' "$file"
  seconds "train_gpt2 after another help text in $file" make CUDA=0 build/host/train_gpt2
}

[ $# -gt 0 ] || set -- builds edits
for what in "$@"; do
  case $what in
    edits) edits ;;
    builds) seconds "make CUDA=0" make CUDA=0 ;;
    test) make clean >"$clone/log" && seconds "make test CUDA=0" make test CUDA=0 ;;
    ci) make clean >"$clone/log" && seconds ".ci/run" .ci/run ;;
    *) echo "build_times.sh: '$what' is not edits, builds, test or ci" >&2; exit 2 ;;
  esac
done
