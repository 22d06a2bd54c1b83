#!/usr/bin/env bash
# Builds train_gpt2 and the tests for aarch64, with OpenBLAS, and runs the tests in QEMU, on a Debian
# machine with another processor. Takes about 20 minutes on two cores, later runs less.
#
#   scripts/test_aarch64.sh                 all tests
#   scripts/test_aarch64.sh SUITES          some suites, such as 'activation,attention' (* is a wildcard)
#
# Needs once, as root:
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install g++-aarch64-linux-gnu qemu-user-static
# Everything else goes to build/aarch64: a copy of the sources, and the libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "test_aarch64.sh: $1" >&2
  sed -n '/^# Needs/,/^#   apt-get/s/^# \{0,1\}/  /p' "$0" >&2
  exit 2
}

[ $# -le 1 ] || fail "one list of suites is expected, not: $*"
suites=${1-'*'}
compiler=aarch64-linux-gnu-g++ emulator=qemu-aarch64-static
for program in "$compiler" "$emulator" apt-get dpkg; do
  command -v "$program" >/dev/null || fail "$program is missing"
done

base=$PWD/build/aarch64
libraries=$base/libraries source=$base/source
if [ ! -f "$libraries/complete" ]; then
  packages=(libopenblas-pthread-dev libopenblas0-pthread libpcre2-dev libpcre2-8-0 libxxhash-dev libxxhash0
            libgfortran5 libgomp1 zlib1g-dev libzstd-dev)
  rm -rf "$libraries" && mkdir -p "$libraries/archives"
  (cd "$libraries/archives" && apt-get -q download "${packages[@]/%/:arm64}" doctest-dev libcli11-dev nlohmann-json3-dev) ||
    fail "apt cannot download the libraries for arm64"
  for archive in "$libraries"/archives/*.deb; do dpkg -x "$archive" "$libraries"; done
  touch "$libraries/complete"
fi

# Files keep their times, so that only what changed is compiled again.
mkdir -p "$source"
git ls-files -z | tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract -C "$source"
make -C "$source" CXX=$compiler DEPS="$libraries" HOST_ARCH=-march=armv8.2-a CUDA=0 build/host/train_gpt2 build/host/tests

# QEMU does not start other aarch64 programs and ignores `ulimit -v`, so these tests fail there.
unsupported='LLMC_HOST_THREADS sets the number*,ulimit -v bounds*,a launch without memory*'
folder=$libraries/usr/lib/aarch64-linux-gnu
cd "$source"
emulate=("$emulator" -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$folder:$folder/openblas-pthread")
"${emulate[@]}" build/host/train_gpt2 --version
LLMC_DATA=${LLMC_DATA-$source/no-data} "${emulate[@]}" build/host/tests --test-suite="$suites" --test-case-exclude="$unsupported"
