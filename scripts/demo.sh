#!/usr/bin/env bash
# The demonstration behind `make demo`: trains a small GPT-2 on the built-in toy language, compares
# its loss with the language's exact entropy and with bigram and trigram models, samples sentences
# from it, counts how many are sentences of the language, and plots the loss. Exits 1 if a goal is
# missed.
#
#   scripts/demo.sh [OUTDIR]      (default: a new folder runs/demo-N)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-}
if [ -z "$out" ]; then
  n=1
  while [ -e "runs/demo-$n" ]; do n=$((n + 1)); done
  out=runs/demo-$n
fi
mkdir -p "$out"
tool=build/host/toy_language

echo "== the language" >&2
"$tool" --tokens 1000000 --val-tokens 100000 --seed 7 --out "$out/language" >&2
value() { python3 -c "import json, sys; print(json.load(open('$out/language/language.json'))['$1'])"; }
entropy=$(value entropy) bigram=$(value bigram_loss) trigram=$(value trigram_loss) words=$(value vocabulary)

echo "== training" >&2
./train_gpt2 --log "$out/log.jsonl" --out "$out/checkpoints" --eval-batches 0 --eval-every 250 \
  --final-samples-out "$out/samples.txt" --final-samples-tokens 4096

echo "== $out" >&2
"$tool" --parse "$out/samples.txt" --sentences 200 | tee "$out/parsed.txt" >&2
scripts/plot "$out/log.jsonl" --out "$out/run.html" --line "entropy=$entropy"
scripts/plot "$out/log.jsonl" --out "$out/loss.svg" --metrics loss \
  --line "entropy=$entropy" --line "trigram=$trigram" --line "bigram=$bigram"

python3 - "$out" "$entropy" "$bigram" "$trigram" "$words" <<'EOF'
import json, re, sys
out, entropy, bigram, trigram, words = sys.argv[1], *map(float, sys.argv[2:])
losses = [line["val_loss"] for line in map(json.loads, open(f"{out}/log.jsonl")) if "val_loss" in line]
parsed, total = map(int, re.search(r"(\d+) of (\d+)", open(f"{out}/parsed.txt").read()).groups())
goals = [("words in the language", words, "at least 200", words >= 200),
         ("bigram model's loss / entropy", bigram / entropy, "at least 1.3", bigram >= 1.3 * entropy),
         ("trigram model's loss / entropy", trigram / entropy, "at least 1.15", trigram >= 1.15 * entropy),
         ("our loss / entropy", losses[-1] / entropy, "at most 1.1", losses[-1] <= 1.1 * entropy),
         ("sampled sentences that parse", parsed / total, "at least 0.95 of 200", total >= 200 and parsed >= 0.95 * total)]
print(f"validation loss {losses[-1]:.4f} nats per token, entropy {entropy:.4f}")
for name, value, goal, met in goals:
    print(f"{'ok    ' if met else 'MISSED'} {name}: {value:.4g} ({goal})")
print(f"plots: {out}/loss.svg, {out}/run.html, samples: {out}/samples.txt, checkpoint: {out}/checkpoints")
sys.exit(not all(met for *_, met in goals))
EOF
