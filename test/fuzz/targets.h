// All targets of the fuzzer, by name. A target's seeds are in test/fuzz/corpus/NAME.
#pragma once

#include <array>
#include <string_view>

#include "test/fuzz/adapter_config.h"
#include "test/fuzz/bpe_files.h"
#include "test/fuzz/command_line.h"
#include "test/fuzz/compressed_file.h"
#include "test/fuzz/conversations.h"
#include "test/fuzz/documents.h"
#include "test/fuzz/encode.h"
#include "test/fuzz/eval_files.h"
#include "test/fuzz/huggingface_config.h"
#include "test/fuzz/huggingface_weights.h"
#include "test/fuzz/json.h"
#include "test/fuzz/json_lines.h"
#include "test/fuzz/labelled_texts.h"
#include "test/fuzz/llmc_model.h"
#include "test/fuzz/manifest.h"
#include "test/fuzz/megatron.h"
#include "test/fuzz/run_log.h"
#include "test/fuzz/safetensors.h"
#include "test/fuzz/source_list.h"
#include "test/fuzz/token_cache.h"
#include "test/fuzz/token_file.h"
#include "test/fuzz/tokenize_progress.h"
#include "test/fuzz/tokenizer_json.h"
#include "test/fuzz/utf8_stream.h"
#include "test/fuzz/word_list.h"

namespace llmc_fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
};

inline constexpr std::array kTargets = {Target{"token_file", token_file},
                                        Target{"megatron", megatron},
                                        Target{"safetensors", safetensors},
                                        Target{"llmc_model", llmc_model},
                                        Target{"token_cache", token_cache},
                                        Target{"compressed_file", compressed_file},
                                        Target{"manifest", manifest},
                                        Target{"json", json},
                                        Target{"huggingface_config", huggingface_config},
                                        Target{"huggingface_weights", huggingface_weights},
                                        Target{"adapter_config", adapter_config},
                                        Target{"tokenizer_json", tokenizer_json},
                                        Target{"bpe_files", bpe_files},
                                        Target{"word_list", word_list},
                                        Target{"documents", documents},
                                        Target{"json_lines", json_lines},
                                        Target{"eval_files", eval_files},
                                        Target{"labelled_texts", labelled_texts},
                                        Target{"conversations", conversations},
                                        Target{"run_log", run_log},
                                        Target{"tokenize_progress", tokenize_progress},
                                        Target{"source_list", source_list},
                                        Target{"command_line", command_line},
                                        Target{"encode", encode},
                                        Target{"utf8_stream", utf8_stream}};

}  // namespace llmc_fuzz
