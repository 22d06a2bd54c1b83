#include "llmc/train/run/conversation_data.h"

#include <cstdint>
#include <string>
#include <utility>

#include "llmc/io/data/conversations.h"
#include "llmc/train/run/padded_samples.h"

namespace llmc {

namespace {

ConversationSplit read_parts(const InputConfig& config) {
  const MessageTemplate message_template =
      parse_message_template(config.task.message_template, "--chat-template");
  const auto read = [&](const std::string& source, const char* flag) {
    return source.empty() ? Conversations() : read_conversations(source, flag, message_template);
  };
  Conversations all = read(config.data.train, "--train");
  if (!config.task.split.empty() && !all.items.empty()) {
    return split_conversations(all, parse_split_fractions(config.task.split, "--split"));
  }
  return {std::move(all), read(config.data.val, "--val"), read(config.task.test, "--test")};
}

SampleSequences sequences_of(const Conversations& conversations, const Tokenizer& tokenizer,
                             std::int64_t T) {
  if (conversations.items.empty()) return {};
  ConversationTokens tokens = tokenize_conversations(conversations, tokenizer, T);
  return {.name = conversations.source,
          .what = "conversations",
          .detail = ", " + std::to_string(tokens.num_targets) + " tokens of answers",
          .sequences = std::move(tokens.sequences)};
}

}  // namespace

void load_conversation_data(RunData& data, const InputConfig& config, bool training) {
  const ConversationSplit parts = read_parts(config);
  const Tokenizer& tokenizer = *data.tokenizer;
  const std::int64_t T = config.batch.seq_len;
  const PaddingOptions padding{.T = T, .pad_token = tokenizer.end_of_text().value_or(0)};
  SampleParts samples;
  if (training) samples.train = sequences_of(parts.train, tokenizer, T);
  samples.validation = sequences_of(parts.validation, tokenizer, T);
  samples.test = sequences_of(parts.test, tokenizer, T);
  add_padded_samples(data, std::move(samples), padding, config);
}

}  // namespace llmc
