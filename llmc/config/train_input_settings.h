// The settings of train_gpt2: data, model, batch, evaluation tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/bare_words.h"
#include "llmc/config/choices.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/model_config.h"
#include "llmc/config/relocation.h"
#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct DataSettings {
  Value<std::string> train,
      val;  // source lists (source_list.h); no val: the end of train; no train: a toy language
  Value<std::string> tokenizer;
  Value<std::int64_t> vocab_size;  // number of tokens
  Value<DocumentFormat::Kind> text_format;
  Value<std::string> text_field;  // key of the text in JSON lines
  Value<std::string> split_on;    // line between the documents of a text; empty: none
  Value<bool> skip_bad_lines;     // skip lines of JSON that are no documents
  Value<BinFormat> bin_format;    // of .bin files without .idx
  Value<std::string> cache_dir;   // directory for tokens of texts; empty: next to each text
  Value<bool> no_cache;
  Value<bool> document_mask;  // attention stays inside documents
};

template <template <class> class Value>
struct ModelSettings {
  Value<std::string> name;       // "d12"
  Value<std::string> init_from;  // file or directory of the initial weights; empty: random ones
  Value<std::int64_t> layers, heads, channels, context;
};

template <template <class> class Value>
struct BatchSettings {
  Value<std::int64_t> batch_size;          // B, sequences in a micro-batch
  Value<std::int64_t> seq_len;             // T, tokens in a sequence
  Value<std::int64_t> grad_accum;          // micro-batches in a step
  Value<std::int64_t> total_batch_tokens;  // tokens in a step; 0: as the other settings imply
  Value<std::int64_t> logits_rows;         // rows of logits that exist at once; 0: all
};

template <template <class> class Value>
struct EvaluationSettings {
  Value<std::vector<std::string>> tasks;  // TASK:FILE each (eval_spec.h)
  Value<std::int64_t> every;              // steps between evaluations; 0: only at the end
  Value<std::int64_t> limit;              // examples per file; 0: all
  Value<std::int64_t> stride;             // tokens between the windows of a perplexity
};

// Returns an error for a value of --eval, or an empty text.
inline std::string eval_spec_error(const std::string& text) {
  try {
    parse_eval_spec(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// The rows; their texts and rules are in train_input_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> data_rows();
Settings<TrainProgram> text_rows();
Settings<TrainProgram> model_rows();
Settings<TrainProgram> batch_rows();
Settings<TrainProgram> evaluation_rows();

}  // namespace llmc
