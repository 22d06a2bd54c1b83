#include "llmc/config/names_elsewhere.h"

#include <iterator>
#include <span>
#include <sstream>

#include "llmc/base/suggestions.h"

namespace llmc {

namespace {

// The answer to names in other programs: our flag, or a text about what exists here instead.
struct NamesOfFlag {
  std::string_view answer, names;
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
    {"--attention",
     "--flash-attn --flash --flash-attention --use-flash-attention --use-flash-attn --sdpa "
     "--attn-implementation --attention-backend"},
    {"--recompute",
     "--gradient-checkpointing --activation-checkpointing --recompute-activations "
     "--recompute-granularity --grad-checkpointing --remat"},
    {"--recompute-blocks", "--recompute-num-layers"},
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
    {"--sample-length", "--max-new-tokens --sample-len --num-sample-tokens"},
    {"--sample-every", "--sample-interval --generate-every"},
    {"--prompt", "--sample-prompt --start"},
    {"--out", "--output --output-dir --save-dir --out-dir --save -o"},
    {"--checkpoint-every",
     "--save-every --save-steps --save-interval --ckpt-every --checkpoint-interval"},
    {"--keep-checkpoints", "--save-total-limit --keep-last"},
    {"--resume", "--continue --resume-from-checkpoint --restart"},
    {"--log", "--log-file --logfile --jsonl"},
    {"--qat", "--quant --quantize --quantization --int8"},
    {"--tp", "--tensor-parallel --tensor-parallel-size --tensor-model-parallel-size --tp-size"},
    {"--sequence-parallel", "--sp --use-sequence-parallel --enable-sequence-parallel"},
    {"--pp",
     "--pipeline-parallel --pipeline-parallel-size --pipeline-model-parallel-size "
     "--pipeline-parallel-degree --pp-size"},
    {"--pp-chunks",
     "--num-virtual-stages-per-pipeline-rank --virtual-pipeline-model-parallel-size"},
    {"--pp-schedule", "--pipeline-parallel-schedule-csv --pipeline-schedule"},
    {"--zero", "--zero-stage"},
    {"--shard-group", "--hybrid-shard --hsdp"},
    {"--comm", "--distributed-backend --ddp-backend"},
    {"--dry-run", "--estimate-memory"},
    {"--plan", "--auto-parallel --autotune --tune-layout"},
    {"scripts/export_run.py RUN.jsonl --wandb PROJECT exports the file of --log",
     "--wandb --wandb-project --wandb-log --wandb-run-name --use-wandb --report-to"},
    {"scripts/export_run.py RUN.jsonl --tensorboard DIR exports the file of --log",
     "--tensorboard --tensorboard-dir --tensorboard-logdir --logging-dir --tb"},
    {"other trackers are not supported; --log writes one JSON object per step",
     "--mlflow --comet --neptune --aim --clearml"},
    {"scripts/run.sh -np N ./train_gpt2 ... starts N ranks; --ranks N only plans for N",
     "--world-size --nproc-per-node --num-gpus --gpus --n-gpu --num-processes --nnodes "
     "--num-nodes"},
    {"ranks are data parallel without a flag; scripts/run.sh -np N ./train_gpt2 ... starts N",
     "--ddp --data-parallel --data-parallel-size --dp --dp-size --distributed --use-ddp"},
    {"--zero 3 divides the weights among the ranks; with --shard-group N only within groups of N",
     "--fsdp --fsdp2 --use-fsdp --sharding-strategy --fully-sharded --full-shard"},
    {"--zero 1, 2 or 3 is ZeRO without DeepSpeed, and --help ranks lists the other layouts",
     "--deepspeed --deepspeed-config --ds-config --deepspeed-stage"},
    {"--offload optimizer,gradients,parameters,activations moves these kinds to host memory",
     "--cpu-offload --offload-optimizer --offload-param --optimizer-offload --zero-offload"},
    {"--offload optimizer --optimizer-on cpu keeps its state in host memory, where the CPU updates "
     "it",
     "--optimizer-cpu-offload --cpu-adam --use-cpu-adam"},
    {"context parallelism is not supported; --tp, --pp and --zero divide the work",
     "--cp --context-parallel --context-parallel-size --ring-attention --ulysses"},
    {"--device and the launcher set the place of a rank; MASTER_ADDR and MASTER_PORT the address",
     "--local-rank --node-rank --master-addr --master-port --rdzv-endpoint"},
    {"--lora R trains LoRA adapters of rank R, --ia3 trains IA3, --adapter DIR continues one",
     "--lora-rank --lora-r --use-lora --peft --peft-type --adapter-path"},
    {"--lora R --base-quant w8 trains LoRA on INT8 codes of the model; 4 bits are not supported",
     "--qlora --load-in-8bit-base"},
    {"--freeze PATTERNS freezes parameters, --train-only PATTERNS freezes all others",
     "--frozen --freeze-layers --freeze-base --trainable --unfreeze --layers-to-transform"},
    {"AdamW is the only optimizer; --beta1, --beta2, --eps and --weight-decay configure it",
     "--optimizer --optim --adam --adamw --adam8bit --muon --lion --sgd --adafactor"},
    {"--qat w8 or w8a8 trains with the rounding of INT8; FP8 and 4 bits are not supported",
     "--fp8 --fp8-format --fp8-recipe --transformer-engine --int4 --load-in-4bit --load-in-8bit"},
    {"nothing is compiled at the start: the kernels are compiled with the program",
     "--compile --torch-compile --jit --use-compile --compile-mode"},
    {"the data are read ahead without a flag", "--num-workers --dataloader-num-workers --prefetch"},
    {"the environment variable LLMC_HOST_THREADS sets the number of threads",
     "--threads --n-threads --num-threads --omp-num-threads"},
    {"early stopping is not supported; --keep-best keeps the checkpoint with the lowest loss",
     "--early-stopping --patience --early-stopping-patience --load-best-model-at-end"},
    {"uploads are not supported; each checkpoint is a Hugging Face directory",
     "--push-to-hub --hub-model-id --hub-token"},
    {"a config.json of transformers sets it: --model FILE.json, or --init-from with weights",
     "--activation --activation-function --hidden-act --n-inner --intermediate-size "
     "--ffn-hidden-size "
     "--layer-norm-eps --layer-norm-epsilon --norm-eps --norm-epsilon --tie-word-embeddings "
     "--untie-embeddings --untie-embeddings-and-output-weights"},
    {"the model is a GPT-2; experts are not supported",
     "--moe --num-experts --moe-top-k --num-local-experts"},
};

constexpr NamesOfFlag kInferNames[] = {
    {"--model", "--checkpoint --model-path --init-from --load --model-name-or-path --weights"},
    {"--adapter",
     "--lora --lora-path --peft --adapter-path --adapter-file --lora-weights --peft-model"},
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
    {"beam search is not supported; --temperature 0 always selects the most likely token",
     "--beam --beams --num-beams --beam-size --beam-width --beam-search --length-penalty "
     "--early-stopping"},
    {"--temperature 0 always selects the most likely token; any other value samples",
     "--do-sample --greedy --sample --no-sample"},
    {"n-grams are not banned; --repeat-penalty and --frequency-penalty reduce repeats",
     "--no-repeat-ngram-size --dry-multiplier --encoder-repetition-penalty"},
    {"this sampling method is not supported; --top-k, --top-p, --min-p and --typical are",
     "--mirostat --mirostat-ent --mirostat-lr --tfs --tfs-z --top-a --penalty-alpha "
     "--xtc-threshold"},
    {"speculative decoding is not supported",
     "--speculative --draft --draft-model --model-draft -md --assistant-model --speculative-model"},
    {"grammars are not supported; --stop and --logit-bias restrict the text",
     "--grammar --grammar-file --json-schema --guided-json --guided-regex"},
    {"a server is not supported; --prompts FILE generates for many prompts in batches",
     "--server --host --port --api-key --serve"},
    {"inference runs on one device; --batch sets the sequences that are decoded together",
     "--tp --tensor-parallel --tensor-parallel-size --pp --num-gpus --gpus --tensor-split"},
    {"the whole model runs on --device", "--n-gpu-layers --gpu-layers --device-map --split-mode"},
    {"the scale of an adapter is that of its files, which --adapter DIR reads",
     "--lora-scaled --lora-scale --adapter-scale"},
    {"one adapter is merged; `infer_gpt2 merge BASE ADAPTER OUT` makes a model for the next",
     "--lora-modules --enable-lora --adapters --max-loras"},
    {"the attention kernels of generation have no alternatives",
     "--flash-attn --flash --flash-attention --use-flash-attention -fa --attn-implementation"},
    {"--quant w8 or w8a8 quantizes to INT8; FP8 and 4 bits are not supported",
     "--fp8 --int4 --load-in-4bit --gptq --awq --gguf --bnb-4bit-compute-dtype"},
    {"nothing is compiled at the start: the kernels are compiled with the program",
     "--compile --torch-compile --jit --enforce-eager"},
    {"the environment variable LLMC_HOST_THREADS sets the number of threads",
     "--threads --n-threads --num-threads"},
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
    {"tokenizers are not trained here; --tokenizer reads one",
     "--train-tokenizer --vocab-size --bpe --model-type --character-coverage"},
    {"a text is used byte for byte; change it before", "--lowercase --do-lower-case --normalize"},
    {"one <|endoftext|> precedes each document without a flag", "--append-eod --add-eos --eos"},
};

std::span<const NamesOfFlag> names_of_program(std::string_view program) {
  if (program == "train_gpt2") return kTrainNames;
  if (program == "infer_gpt2") return kInferNames;
  return kTokenizeNames;
}

}  // namespace

namespace {

bool is_flag_of_ours(std::string_view answer) {
  return answer.starts_with("--") && answer.find(' ') == answer.npos;
}

std::vector<std::string> words_of(std::string_view names) {
  std::istringstream words{std::string(names)};
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::vector<std::string> names_elsewhere(std::string_view program, std::string_view flag) {
  for (const NamesOfFlag& row : names_of_program(program)) {
    if (row.answer == flag) return words_of(row.names);
  }
  return {};
}

std::vector<std::string> flags_with_names_elsewhere(std::string_view program) {
  std::vector<std::string> flags;
  for (const NamesOfFlag& row : names_of_program(program)) {
    if (is_flag_of_ours(row.answer)) flags.emplace_back(row.answer);
  }
  return flags;
}

namespace {

// The text about a name in the rows of a program; empty if it has none.
std::string text_about(std::string_view program, std::string_view name) {
  const std::string typed = suggestions_detail::comparable(name);
  for (const NamesOfFlag& row : names_of_program(program)) {
    if (is_flag_of_ours(row.answer)) continue;
    for (const std::string& word : words_of(row.names)) {
      if (suggestions_detail::comparable(word) == typed) return std::string(row.answer);
    }
  }
  return {};
}

}  // namespace

std::string way_here(std::string_view program, std::string_view name) {
  return text_about(program, name);
}

std::string way_in_other_program(std::string_view program, std::string_view name) {
  for (const char* other : {"train_gpt2", "infer_gpt2"}) {
    const std::string text = other == program ? "" : text_about(other, name);
    if (!text.empty()) return std::string("in ") + other + ", " + text;
  }
  return {};
}

}  // namespace llmc
