#include "llmc/config/names_elsewhere.h"

#include <iterator>
#include <span>
#include <sstream>

namespace llmc {

namespace {

struct NamesOfFlag {
  std::string_view flag, names;
};

constexpr NamesOfFlag kTrainNames[] = {
    {"--train", "--train-data --data --dataset --input --input-bin --train-file -i"},
    {"--val", "--val-data --valid --validation --validation-file --eval-data"},
    {"--tokenizer", "--tokenizer-name --vocab --encoding"},
    {"--model", "--model-size --model-type --size -e"},
    {"--init-from",
     "--pretrained --load --from-pretrained --checkpoint --finetune-from --model-name-or-path "
     "--model-path"},
    {"--layers", "--n-layer --n-layers --num-layers --depth"},
    {"--heads", "--n-head --n-heads --num-heads --num-attention-heads"},
    {"--channels", "--n-embd --n-embed --hidden-size --d-model --dim --width"},
    {"--context", "--n-ctx --context-length --n-positions --max-position-embeddings"},
    {"--batch-size", "--micro-batch-size --per-device-train-batch-size --device-batch-size -b"},
    {"--seq-len", "--block-size --sequence-length --max-seq-len --max-length --seq-length -t"},
    {"--grad-accum", "--gradient-accumulation-steps --grad-accum-steps --accumulate"},
    {"--total-batch-tokens", "--total-batch-size --tokens-per-step --global-batch-size -d"},
    {"--eval", "--eval-tasks --tasks --evaluate --benchmark"},
    {"--steps", "--max-steps --max-iters --num-iterations --iters --iterations --train-steps -x"},
    {"--epochs", "--num-epochs --num-train-epochs --max-epochs"},
    {"--lr", "--learning-rate --max-lr --peak-lr -l"},
    {"--warmup", "--warmup-steps --warmup-iters --lr-warmup-iters"},
    {"--schedule", "--lr-scheduler --lr-scheduler-type --lr-schedule --lr-decay-style"},
    {"--final-lr-fraction", "--min-lr --learning-rate-decay-frac --final-learning-rate-fraction"},
    {"--beta1", "--adam-beta1"},
    {"--beta2", "--adam-beta2"},
    {"--eps", "--adam-epsilon --epsilon"},
    {"--weight-decay", "--wd --decay"},
    {"--grad-clip", "--max-grad-norm --clip-grad --gradient-clipping --clip-norm"},
    {"--dropout", "--dropout-rate --p-drop"},
    {"--device", "--gpu --cpu --cuda --backend"},
    {"--dtype", "--precision --bf16 --fp16 --mixed-precision --amp"},
    {"--seed", "--random-seed"},
    {"--eval-every", "--eval-interval --val-loss-every --eval-steps --eval-iters --val-every"},
    {"--eval-batches", "--val-max-steps --eval-max-batches"},
    {"--sample-every", "--sample-interval --generate-every"},
    {"--prompt", "--sample-prompt --start"},
    {"--out", "--output --output-dir --save-dir --out-dir --save -o"},
    {"--checkpoint-every",
     "--save-every --save-steps --save-interval --ckpt-every --checkpoint-interval"},
    {"--keep-checkpoints", "--save-total-limit --keep-last"},
    {"--resume", "--continue --resume-from-checkpoint --restart"},
    {"--log", "--log-file --logfile --jsonl"},
    {"--qat", "--quant --quantize --quantization --int8"},
    {"--ranks", "--world-size --nproc-per-node --num-gpus --gpus"},
    {"--tp", "--tensor-parallel --tensor-parallel-size --tensor-model-parallel-size --tp-size"},
    {"--sequence-parallel", "--sp --use-sequence-parallel --enable-sequence-parallel"},
    {"--pp",
     "--pipeline-parallel --pipeline-parallel-size --pipeline-model-parallel-size "
     "--pipeline-parallel-degree --pp-size"},
    {"--pp-chunks",
     "--num-virtual-stages-per-pipeline-rank --virtual-pipeline-model-parallel-size"},
    {"--pp-schedule", "--pipeline-parallel-schedule-csv --pipeline-schedule"},
    {"--zero", "--zero-stage --fsdp --sharding-strategy"},
    {"--shard-group", "--hybrid-shard --hsdp"},
    {"--comm", "--distributed-backend --ddp-backend"},
    {"--dry-run", "--estimate-memory --plan"},
};

constexpr NamesOfFlag kInferNames[] = {
    {"--model", "--checkpoint --model-path --init-from --load --model-name-or-path --weights"},
    {"--tokenizer", "--tokenizer-name --vocab"},
    {"--prompt", "--text --input --start"},
    {"--file", "--prompt-file --input-text"},
    {"--prompts", "--prompts-file --input-file --batch-file --dataset"},
    {"--tokens", "--max-new-tokens --n-predict --max-tokens --num-tokens --length --max-length"},
    {"--samples", "--num-return-sequences --num-samples --best-of"},
    {"--batch", "--batch-size --parallel --max-num-seqs --max-batch-size"},
    {"--chunk", "--chunk-size --ubatch-size --max-num-batched-tokens --prefill-chunk"},
    {"--stop", "--stop-string --stop-strings --stop-sequence --reverse-prompt --antiprompt"},
    {"--ignore-eos", "--no-stop"},
    {"--slide", "--context-shift --sliding-window"},
    {"--temperature", "-t"},
    {"--top-k", "-k"},
    {"--top-p", "--nucleus"},
    {"--typical", "--typical-p --locally-typical"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--repeat-last-n", "--penalty-last-n"},
    {"--logit-bias", "--bias --bad-words-ids"},
    {"--seed", "--random-seed"},
    {"--device", "--gpu --cpu --cuda --backend"},
    {"--dtype", "--precision --bf16 --fp16"},
    {"--kv-dtype", "--kv-cache-dtype --cache-type-k --cache-type-v"},
    {"--quant", "--quantize --quantization --load-in-8bit --int8"},
    {"--calibrate", "--calibration-data --calib"},
    {"--smoothing", "--smoothquant"},
    {"--json", "--output-json --print-json"},
    {"--jsonl", "--json-lines --output-jsonl"},
    {"--stream", "--streaming"},
    {"--display-prompt", "--echo --verbose-prompt"},
    {"--interactive", "--interactive-first --chat --conversation"},
    {"--seq-len", "--max-seq-len --block-size --ctx-size"},
    {"--limit", "--eval-limit --num-examples"},
    {"--stride", "--eval-stride --ppl-stride"},
    {"--base", "--base-model --reference"},
    {"--base-log", "--kl-divergence-base"},
    {"--save-log", "--save-all-logits"},
    {"--prompt-tokens", "--n-prompt"},
    {"--gen-tokens", "--n-gen"},
    {"--positions", "--n-depth"},
    {"--repetitions", "--reps --repeat"},
    {"--format", "--output-format"},
};

constexpr NamesOfFlag kTokenizeNames[] = {
    {"--tokenizer", "--tokenizer-name --vocab --encoding --model -t"},
    {"--out", "--output --output-file --output-prefix --save"},
    {"--force", "--overwrite -f"},
    {"--decode", "--detokenize -d"},
    {"--format", "--input-format --type"},
    {"--field", "--text-field --json-key --json-keys --key"},
    {"--split-on", "--separator --delimiter --split"},
    {"--no-end-of-text", "--no-eos --no-eot"},
    {"--dedup", "--deduplicate"},
    {"--shard-tokens", "--shard-size --max-shard-tokens"},
    {"--val", "--validation --val-out --valid"},
    {"--val-fraction", "--val-split --test-size --val-ratio"},
    {"--threads", "--workers --num-workers --num-proc -j"},
};

std::span<const NamesOfFlag> names_of_program(std::string_view program) {
  if (program == "train_gpt2") return kTrainNames;
  if (program == "infer_gpt2") return kInferNames;
  return kTokenizeNames;
}

}  // namespace

std::vector<std::string> names_elsewhere(std::string_view program, std::string_view flag) {
  for (const NamesOfFlag& row : names_of_program(program)) {
    if (row.flag != flag) continue;
    std::istringstream words{std::string(row.names)};
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

std::vector<std::string> flags_with_names_elsewhere(std::string_view program) {
  std::vector<std::string> flags;
  for (const NamesOfFlag& row : names_of_program(program)) flags.emplace_back(row.flag);
  return flags;
}

}  // namespace llmc
