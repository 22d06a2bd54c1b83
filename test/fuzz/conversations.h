// Fuzz target for prompts with completions and conversations, which are then tokenized. The first
// byte selects the length of the sequences.
#pragma once

#include "llmc/io/data/conversations.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void conversations(std::string_view input) {
  static const Folder folder;
  const auto T = static_cast<std::int64_t>(take_choice(input, 40)) + 1;
  const std::string path = folder.write("x.jsonl", input);
  is_rejected(path, [&] {
    const llmc::ByteTokenizer tokenizer;
    const llmc::Conversations all = llmc::read_conversations(path, "chat");
    const llmc::ConversationTokens tokens = llmc::tokenize_conversations(all, tokenizer, T);
    expect(
        tokens.sequences.size() + static_cast<std::size_t>(tokens.num_dropped) == all.items.size(),
        "each conversation has a sequence or is dropped");
    for (const auto& [ids, targets] : tokens.sequences) {
      expect(!ids.empty() && std::ssize(ids) <= T, "a sequence has 1 to T tokens");
      expect(ids.size() == targets.size(), "each token has a target");
      expect(targets.back() == *tokenizer.end_of_text(), "a sequence ends with end-of-text");
      for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        expect(targets[t] == -1 || targets[t] == ids[t + 1], "a target is the next token");
      }
    }
  });
}

}  // namespace llmc_fuzz
