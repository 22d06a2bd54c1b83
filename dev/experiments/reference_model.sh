#!/usr/bin/env bash
# Trains the model on which inference is measured, and prints its held-out perplexity next to those of
# n-gram models. Exits 1 if it is not below half of the unigram model's.
#
#   dev/experiments/reference_model.sh [OPTIONS] [TEXTS] [VOCABULARY]
#
#   TEXTS        folder of .txt files [../shared/data/text]
#   VOCABULARY   folder with GPT-2's encoder.json and vocab.bpe [../shared/data/gpt2]
#   --out DIR    where everything is written [runs/reference; runs/reference-smoke]; run again to resume
#   --steps N    steps of 4,096 tokens [1220: 5.0 million tokens]
#   --smoke      20 steps on a tenth of the texts, in 15 seconds, to check this script
#
# The tokenizer is GPT-2's, cut after its first 3,840 merges: 4,097 tokens. The model has 5 layers, 4 heads,
# 256 channels and a context of 256: 5.0 million parameters with the tied head, 0.07 million of positions.
# Training takes about 6 x 5.0e6 x 5.0e6 = 1.5e14 operations in its matrix products, and 0.2e14 in
# attention: 47 minutes at 60 GFLOP/s, and 8 minutes at the 350 GFLOP/s measured on two cores of an AMD EPYC.
#
# Documents are pieces of at least 8,000 bytes of a file, cut at line ends. One in 20 is held out, selected
# by a hash of its content. All seeds are fixed. The perplexity goal applies to a run of full length.
# The directory it prints is a model for infer_gpt2 -m, and for transformers. GPT2_DIR, if set, names the other
# model to measure; it is only printed.
set -euo pipefail
invoked=$PWD
cd "$(dirname "$(readlink -f "$0")")/../.."
fail() { echo "reference_model.sh: $1" >&2; exit "${2:-1}"; }
absolute() { case $1 in /*) echo "$1" ;; *) echo "$invoked/$1" ;; esac; }

full_steps=1220 divide=1
steps='' out='' texts='' vocabulary=''
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    --smoke) divide=10 steps=${steps:-20} ;;
    --steps) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--steps '${2:-}'; allowed: 1 or more" 2; steps=$2; shift ;;
    --out) [ -n "${2:-}" ] || fail "--out needs a directory" 2; out=$(absolute "$2"); shift ;;
    -*) fail "$1 is unknown; --help lists the options" 2 ;;
    *) if [ -z "$texts" ]; then texts=$(absolute "$1")
       elif [ -z "$vocabulary" ]; then vocabulary=$(absolute "$1")
       else fail "'$1' is one argument too many; --help lists them" 2; fi ;;
  esac
  shift
done
default_out=$PWD/runs/reference$([ "$divide" = 1 ] || echo -smoke)
steps=${steps:-$full_steps} out=${out:-$default_out} texts=${texts:-$PWD/../shared/data/text} vocabulary=${vocabulary:-$PWD/../shared/data/gpt2}
program() { if [ -x "$1" ]; then echo "./$1"; else echo "build/host/$1"; fi; }
train=$(program train_gpt2) tokenize=$(program tokenize)
for binary in "$train" "$tokenize"; do
  [ -x "$binary" ] || fail "$binary is missing; build it with: make programs CUDA=0"
done
ls "$texts"/*.txt >/dev/null 2>&1 || fail "$texts has no .txt files"
for name in encoder.json vocab.bpe; do
  [ -f "$vocabulary/$name" ] || fail "$vocabulary has no $name"
done
mkdir -p "$out"

echo "== tokenizer: $out/tokenizer" >&2
python3 dev/experiments/small_gpt2.py tokenizer "$vocabulary" "$out/tokenizer"

echo "== documents and tokens of $texts" >&2
python3 dev/experiments/small_gpt2.py documents "$texts" "$out/documents.jsonl" "$divide"
"$tokenize" --force --tokenizer "$out/tokenizer" "$out/documents.jsonl" -o "$out/train.bin" --val "$out/heldout.bin" \
  --val-fraction 0.05 >&2

echo "== training: $steps steps, $out/checkpoints" >&2
"$train" --device host --dtype fp32 --tokenizer "$out/tokenizer" --train "$out/train.bin" --val "$out/heldout.bin" \
  --layers 5 --heads 4 --channels 256 --context 256 --batch-size 16 --grad-accum 1 --steps "$steps" --lr 2e-3 \
  --weight-decay 0.1 --seed 1 --eval-every 100 --eval-batches 4 --sample-every 0 --checkpoint-every 100 \
  --keep-checkpoints 2 --keep-best=false --out "$out/checkpoints" --log "$out/log.jsonl" --resume >&2
model=$(printf '%s/checkpoints/step_%06d' "$out" "$steps")
[ -d "$model" ] || fail "the training did not reach step $steps; run this again to resume"

echo "== held-out perplexity" >&2
"$train" --device host --steps 0 --init-from "$model" --eval "perplexity:$out/heldout.bin" --log "$out/eval.jsonl.new" >&2
mv "$out/eval.jsonl.new" "$out/eval.jsonl"

python3 - "$out" "$model" "$steps" "$full_steps" <<'EOF'
"""Compares the model with n-gram models of the training tokens on the same held-out tokens. Trigram: maximum
likelihood, interpolated with the bigram and so on by Witten and Bell, as in data/ngram.h."""
import array, json, math, os, sys
from collections import Counter
out, model, steps, full_steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
V, BITS = 4097, 13


def read(name):
    tokens = array.array("H")
    tokens.frombytes(open(f"{out}/{name}", "rb").read()[1024:])
    return list(tokens)


def keys(tokens, order):
    """One integer per position that has order - 1 tokens before it."""
    if order == 1:
        return tokens
    return [a << BITS | b for a, b in zip(keys(tokens, order - 1), tokens[order - 1:])]


def totals(counts):
    total, distinct = Counter(), Counter()
    for key, count in counts.items():
        total[key >> BITS] += count
        distinct[key >> BITS] += 1
    return total, distinct


train, heldout = read("train.bin"), read("heldout.bin")
counts = [Counter(keys(train, order)) for order in (1, 2, 3)]
contexts = [totals(c) for c in counts]


def losses(order):
    """Mean nll of the held-out tokens after the first one, which no model predicts."""
    total_nll = 0.0
    for i in range(1, len(heldout)):
        p = 1 / V
        for length in range(min(order - 1, i) + 1):
            context = 0
            for token in heldout[i - length:i]:
                context = context << BITS | token
            total, distinct = (c[context] for c in contexts[length])
            if total == 0:
                break
            count = counts[length][context << BITS | heldout[i]]
            p = (count + distinct * p) / (total + distinct)
        total_nll -= math.log(p)
    return total_nll / (len(heldout) - 1)


result = [line for line in map(json.loads, open(f"{out}/eval.jsonl")) if line.get("eval") == "perplexity"][-1]
if result["examples"] != len(heldout) - 1:
    sys.exit("reference_model.sh: the model and the n-gram models did not score the same tokens")
ours, rows = result["token_perplexity"], [("unigram model", math.exp(losses(1))), ("bigram model", math.exp(losses(2))),
                                          ("trigram model", math.exp(losses(3)))]
print(f"{len(train)} training tokens, {len(heldout) - 1} held-out tokens; perplexity per held-out token:")
for name, perplexity in [*rows, (f"this model, {steps} steps", ours)]:
    print(f"  {name:28}{perplexity:10.2f}")
print(f"model: {model}")
other = os.environ.get("GPT2_DIR")
print(f"other model to measure: {other}" if other else "other model to measure: none (GPT2_DIR names GPT-2's directory)")
goal = rows[0][1] / 2
if steps < full_steps:
    print(f"the goal, a perplexity below half of the unigram model's ({goal:.2f}), applies to {full_steps} steps")
elif ours < goal:
    print(f"ok: below half of the unigram model's perplexity ({goal:.2f})")
else:
    sys.exit(f"reference_model.sh: MISSED: the perplexity is not below half of the unigram model's ({goal:.2f})")
EOF
