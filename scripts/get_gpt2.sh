#!/usr/bin/env bash
# Downloads OpenAI's GPT-2, weights and vocabulary, to a folder that infer_gpt2 and train_gpt2 read.
# Prints the folder.
#
#   scripts/get_gpt2.sh [124M|355M|774M|1558M] [DIR]    into DIR [models/gpt2-SIZE]; run again to resume
#   GPT2_DIR=DIR scripts/get_gpt2.sh                    checks the copy in DIR; downloads nothing
#   scripts/get_gpt2.sh --vocabulary                    only the vocabulary, for --tokenizer gpt2
#   scripts/get_gpt2.sh --help                          mirrors, time limits, --dry-run, --verify
set -euo pipefail
command -v python3 >/dev/null || { echo "get_gpt2.sh: python3 is missing; run scripts/setup.sh to install it" >&2; exit 1; }
GET_GPT2_NAME=$(basename "$0") exec python3 "$(dirname "$(readlink -f "$0")")/../data/gpt2.py" "$@"
