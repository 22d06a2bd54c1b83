#!/usr/bin/env bash
# Automatic checks of the sources. `make lint` runs all of them.
#
#   scripts/lint.sh all|headers|format|scripts|words|structure|tidy [include flags]
#
# TIDY=1 adds clang-tidy to `all` (minutes). Each check prints ok, skipped or what is wrong; exit
# code 1 if anything is wrong.
set -uo pipefail
cd "$(dirname "$0")/.."
selection=${1:-all}
shift || true
includes=("$@")
[ ${#includes[@]} -gt 0 ] || includes=(-I.)
CXX=${CXX:-g++}
jobs=$(nproc)
bad=0

report() { # name, output of the check, its exit code
  if [ "$3" -eq 0 ]; then echo "ok     lint: $1" || bad=1; else
    echo "FAILED lint: $1"
    sed 's/^/    /' <<<"$2"
    bad=1
  fi
}
is_selected() { [ "$selection" = all ] || [ "$selection" = "$1" ]; }
tracked() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

if is_selected format; then
  # Other versions format some code differently; the version of Debian 12 decides.
  version=$(clang-format --version 2>/dev/null | sed -nE 's/.*version ([0-9]+).*/\1/p')
  if [ "$version" = 14 ]; then
    output=$(tracked '*.h' '*.cu' '*.cpp' | xargs -P "$jobs" -I{} \
      sh -c 'clang-format --dry-run -Werror "$1" >/dev/null 2>&1 || echo "$1: make format changes it"' _ {})
    report "clang-format" "$output" "$([ -z "$output" ]; echo $?)"
  else
    echo "skipped lint: clang-format 14 is not installed (version found: ${version:-none})"
  fi
fi

if is_selected scripts; then
  output=$(tracked 'scripts/*.sh' 'scripts/*.sbatch' 'dev/*.sh' '.ci/run' | while read -r f; do bash -n "$f" 2>&1 || echo "$f: does not parse"; done)
  report "shell scripts parse" "$output" "$([ -z "$output" ]; echo $?)"
  output=$(tracked '*.py' scripts/plot scripts/study | python3 -c '
import ast, sys
for name in sys.stdin.read().split("\n")[:-1]:
    try:
        ast.parse(open(name, encoding="utf-8").read(), name)
    except SyntaxError as error:
        print(f"{name}: {error}")' 2>&1)
  report "Python scripts parse" "$output" "$([ -z "$output" ]; echo $?)"
fi

if is_selected words; then
  output=$(python3 scripts/check_words.py 2>&1)
  report "words of comments, messages, pages and names" "$output" $?
fi

if is_selected structure; then
  output=$(python3 scripts/structure.py 2>&1)
  report "order of folders, includes, conditional compilation" "$output" $?
fi

if is_selected headers; then
  # Headers of the CUDA side need nvcc; building the CUDA target compiles them. Headers for MPI and
  # NCCL need these libraries; their tests compile them. Of the headers for
  # matrix libraries, matrix_library.h includes the one whose library this machine has.
  output=$(tracked 'llmc/*.h' 'data/*.h' 'test/*.h' |
    grep -vE '^llmc/device/cuda/|/gemm_cublaslt(_plan)?\.h$|/matrix_(onednn|openblas)\.h$|/(mpi|nccl)_\w+\.h$|^test/nccl_double/' |
    CXX="$CXX" python3 scripts/check_headers.py -j "$jobs" "${includes[@]}")
  report "every header compiles alone" "$output" "$([ -z "$output" ]; echo $?)"
fi

if [ "$selection" = tidy ] || { [ "$selection" = all ] && [ "${TIDY:-0}" = 1 ]; }; then
  if command -v clang-tidy >/dev/null; then
    flags=(-std=c++20 -x c++ "${includes[@]}")
    shim=$(mktemp -d)
    trap 'rm -rf "$shim"' EXIT
    # Clang before 16 cannot compile libstdc++'s source_location. A substitute lets it read the
    # rest.
    cat >"$shim/source_location" <<'HEADER'
#pragma once
namespace std {
struct source_location {
  static constexpr source_location current() noexcept { return {}; }
  constexpr const char* file_name() const noexcept { return ""; }
  constexpr const char* function_name() const noexcept { return ""; }
  constexpr unsigned line() const noexcept { return 0; }
  constexpr unsigned column() const noexcept { return 0; }
};
}
HEADER
    version=$(clang-tidy --version | sed -nE 's/.*version ([0-9]+).*/\1/p')
    # Clang before 16 also rejects a lambda that captures a structured binding.
    unknown='^$'
    [ "${version:-0}" -ge 16 ] || { flags+=(-isystem "$shim"); unknown='reference to local binding'; }
    # The engine is headers only: one file that includes them all, and each program.
    tracked 'llmc/*.h' | grep -vE '^llmc/device/(cuda|host)/|/gemm_cublaslt(_plan)?\.h$|/(mpi|nccl)_\w+\.h$' | sed 's/.*/#include "&"/' >"$shim/all_headers.cpp"
    output=$({ echo "$shim/all_headers.cpp"; tracked '*.cu' 'data/*.cpp' | grep -v '^test/'; } |
      xargs -P "$jobs" -I{} clang-tidy --quiet --config-file=.clang-tidy {} -- "${flags[@]}" 2>&1 |
      grep -E '(error|warning):' | grep -v "$unknown" | sed "s|$PWD/||g; s|: \./|: |; s|^\./||" | sort -u)
    report "clang-tidy" "$output" "$([ -z "$output" ]; echo $?)"
  else
    echo "skipped lint: clang-tidy is not installed"
  fi
fi
exit $bad
