#!/usr/bin/env bash
# Fine-tunes a classifier of sentence polarity in seven ways within a time budget, next to naive Bayes, transformers and
# PEFT: a table, a figure, and checks. --help explains the options. Run it again to resume.
#
#   scripts/finetune_sentiment.sh [--budget MINUTES] [--out DIR] [--data DIR] [--reference DIR] [--seeds N]
#                                 [--rates N] [--methods LIST] [--smoke]
set -euo pipefail
command -v python3 >/dev/null || { echo "finetune_sentiment.sh: python3 is missing; run scripts/setup.sh to install it" >&2; exit 1; }
exec python3 "$(dirname "$(readlink -f "$0")")/finetune_sentiment/main.py" "$@"
