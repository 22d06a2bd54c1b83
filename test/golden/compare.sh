#!/usr/bin/env bash
# Compares the behaviour of the working tree's host programs with those of a commit, bit for bit.
# README.md explains it; `compare.sh --help` lists the options.
exec python3 "$(dirname "${BASH_SOURCE[0]}")/compare.py" "$@"
