#!/usr/bin/env bash
# Installs what the build needs and builds the programs, in the top folder of the repository inside an image of Debian or
# Ubuntu, as root. Dockerfile and train.def run it.
#
#   scripts/containers/install.sh
#
# From the environment: HOST_ARCH, the flag for the instruction set (default: -march=x86-64-v3 on x86-64, so that other
# machines than the builder's can run the image); CUDA, CUDA_ARCH and MAKEFLAGS as for make. A base image with nvcc gives
# programs for GPUs.
set -euo pipefail
cd "$(dirname "$0")/../.."
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates g++ git make
DEBIAN_FRONTEND=noninteractive scripts/setup.sh
if [ -z "${HOST_ARCH:-}" ] && [ "$(uname -m)" = x86_64 ]; then HOST_ARCH=-march=x86-64-v3; fi
make all ${HOST_ARCH:+HOST_ARCH="$HOST_ARCH"}
# The image keeps the programs, not the objects that they were linked from.
find build \( -name '*.o' -o -name '*.a' -o -name '*.gch' -o -name '*.d' \) -delete
rm -rf /var/lib/apt/lists/*
