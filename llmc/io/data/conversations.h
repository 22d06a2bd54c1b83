// Reads prompts with completions, and conversations, to fine-tune a model on the answers only.
//
// A file has one object per line, in one of two forms. Other fields are ignored.
//
//   {"prompt": "...", "completion": "..."}
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."},
//   ...]}
//
// A prompt and its completion are used as they are: nothing is inserted between them. A role is
// system, user or assistant, in any order; at least one message is the assistant's. Messages become
// a text by a template, which is by default, with a line break for \n,
//
//   {role}: {content}\n
//
// So a conversation has the following text, where [ ] enclose what counts for the loss and
// <|endoftext|> is the end-of-text token:
//
//   user: Hi\nassistant:[ Hello.<|endoftext|>]\nuser: Bye\nassistant:[ See you.<|endoftext|>]
//
// - An end-of-text token follows each completion and each message of the assistant. It counts.
// - A space directly before {content} belongs to the assistant's message and counts, because
//   GPT-2's tokenizer joins it with the next word. Text of the template between {role} and that
//   space belongs to the prompt. So the prompt for an answer is "user: Hi\nassistant:".
// - Text after the last message of the assistant is left out: nothing in it counts.
//
// What counts and what does not are tokenized separately, as for generation, where the prompt is
// tokenized without its answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/data/hashed_split.h"
#include "llmc/io/data/padded_batches.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// The text of a message is before_role ROLE before_content CONTENT after_content.
struct MessageTemplate {
  std::string before_role{}, before_content = ": ", after_content = "\n";
};

// Parses a format that contains {role} and then {content}, once each. \n, \t and \\ stand for a
// line break, a tab and a backslash. The format is text: special tokens in it are not recognised.
// Throws an error that names `flag`.
MessageTemplate parse_message_template(const std::string& format, const std::string& flag);

struct Conversation {
  // Text that does not count, and the text after it that does.
  struct Turn {
    std::string prompt, completion;
  };

  std::vector<Turn> turns{};  // at least one
  std::string location{};     // FILE:LINE
  // split_hash of the prompt and the completion, or of all messages in the default template.
  std::uint64_t hash = 0;
};

struct Conversations {
  std::string source{};  // for errors
  std::vector<Conversation> items{};
};

// Reads a file, which may be compressed, or all files of a pattern. Throws an error that names the
// file, the line, the problem and what is allowed; an error of the pattern names `flag`.
Conversations read_conversations(const std::string& source, const std::string& flag,
                                 const MessageTemplate& message_template = {});

struct ConversationSplit {
  Conversations train{}, validation{}, test{};
};

// Equal conversations are in the same part. Equal prompts with different completions may be in
// different parts. Throws if a part with a fraction above 0 is empty.
ConversationSplit split_conversations(const Conversations& all, const SplitFractions& fractions);

struct ConversationTokens {
  // At most T tokens each. The target of a token is the token after it if that counts, else -1.
  std::vector<TokenSequence> sequences{};
  std::int64_t num_targets = 0;  // that count
  std::int64_t num_cut = 0;      // sequences that lost their beginning
  std::int64_t num_dropped = 0;  // conversations that have no sequence
};

// A conversation of more than T + 1 tokens, of which the last is only a target, loses its
// beginning. A completion that loses tokens by this, or the token before it, does not count. If
// that would be the last completion, because it has more than T tokens with its end-of-text, the
// conversation is dropped. Warns once about each kind.
//
// Throws an error that names the file and the line if a part has no tokens, and an error if the
// tokenizer has no end-of-text or if all conversations are dropped.
ConversationTokens tokenize_conversations(const Conversations& conversations,
                                          const Tokenizer& tokenizer, std::int64_t T);

}  // namespace llmc
