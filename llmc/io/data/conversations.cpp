#include "llmc/io/data/conversations.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/suggestions.h"
#include "llmc/io/data/json_objects.h"
#include "llmc/io/data/source_list.h"

namespace llmc {

namespace {

constexpr const char* kConversationHint =
    R"(write {"prompt": "...", "completion": "..."}, or {"messages": [{"role": "user", )"
    R"("content": "..."}, {"role": "assistant", "content": "..."}]} on each line)";

struct Message {
  std::string role, content;
};

// A text of an object, `name` in errors, that is not empty.
std::string filled_text(const Json& object, const std::string& key, const std::string& location) {
  const std::string& text = json_text_field(object, key, location, kConversationHint);
  if (text.find_first_not_of(" \t\r\n\v\f") == text.npos) {
    fail(location + ": \"" + key + "\" is empty", "remove the line, or write a text");
  }
  return text;
}

Message read_message(const Json& object, const std::string& location) {
  if (!object.is_object()) fail(location + " is not a JSON object", kConversationHint);
  const std::string role = json_text_field(object, "role", location, kConversationHint);
  static const std::vector<KnownName> kRoles = {
      {"system", "system"}, {"user", "user"}, {"assistant", "assistant"}};
  if (std::ranges::find(kRoles, role, &KnownName::name) == kRoles.end()) {
    fail(location + ": \"role\" is " + (role.empty() ? "empty" : printable(role)) +
             did_you_mean(nearest_answers(role, kRoles)),
         "use one of the roles system, user and assistant");
  }
  return {role, filled_text(object, "content", location)};
}

std::vector<Message> read_messages(const Json& list, const std::string& location) {
  const std::string name = location + ": \"messages\"";
  if (!list.is_array()) fail(name + " is not a list", kConversationHint);
  std::vector<Message> messages;
  for (const Json& object : list) {
    const std::string item = name + "[" + std::to_string(messages.size()) + "]";
    messages.push_back(read_message(object, item));
  }
  if (std::ranges::find(messages, "assistant", &Message::role) == messages.end()) {
    fail(name + (messages.empty() ? " is empty" : " has no message with the role assistant"),
         kConversationHint);
  }
  return messages;
}

std::string text_of_messages(const std::vector<Message>& messages) {
  const MessageTemplate format;
  std::string text;
  for (const auto& [role, content] : messages) {
    text += format.before_role + role + format.before_content + content + format.after_content;
  }
  return text;
}

std::vector<Conversation::Turn> turns_of(const std::vector<Message>& messages,
                                         const MessageTemplate& format) {
  std::vector<Conversation::Turn> turns;
  std::string prompt;
  for (const auto& [role, content] : messages) {
    prompt += format.before_role + role + format.before_content;
    if (role != "assistant") {
      prompt += content + format.after_content;
      continue;
    }
    const bool has_space = prompt.ends_with(' ');
    if (has_space) prompt.pop_back();
    turns.push_back({std::move(prompt), (has_space ? " " : "") + content});
    prompt = format.after_content;
  }
  return turns;
}

Conversation read_conversation(const Json& object, const std::string& location,
                               const MessageTemplate& format) {
  const Json* list = json_member(object, "messages");
  const bool is_pair =
      json_member(object, "prompt") != nullptr || json_member(object, "completion") != nullptr;
  if (is_pair && list != nullptr) {
    fail(location + " has both \"messages\" and a prompt or completion", kConversationHint);
  }
  if (!is_pair && list == nullptr) {
    fail(location + " has neither \"messages\" nor \"prompt\" and \"completion\"",
         kConversationHint);
  }
  Conversation conversation{.location = location};
  if (is_pair) {
    conversation.turns.push_back(
        {filled_text(object, "prompt", location), filled_text(object, "completion", location)});
    const auto& [prompt, completion] = conversation.turns.front();
    conversation.hash = split_hash(prompt + completion);
  } else {
    const std::vector<Message> messages = read_messages(*list, location);
    conversation.turns = turns_of(messages, format);
    conversation.hash = split_hash(text_of_messages(messages));
  }
  return conversation;
}

// The tokens of a conversation, and where its completions begin and end.
struct CompletionTokens {
  struct Range {
    std::size_t begin, end;
  };

  std::vector<std::int32_t> tokens;
  std::vector<Range> completions;
};

void append_tokens(const std::string& text, const std::string& what, const std::string& location,
                   const Tokenizer& tokenizer, std::vector<std::int32_t>& tokens) {
  std::vector<std::int32_t> more;
  try {
    more = tokenizer.encode(text);
  } catch (const Error& error) {
    fail(location + ": " + error.marked_text());
  }
  if (more.empty()) {
    fail(location + ": the " + what + " '" + printable(text) + "' has no tokens",
         "remove the line, or write another text");
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
}

CompletionTokens completion_tokens(const Conversation& conversation, const Tokenizer& tokenizer,
                                   std::int32_t end_of_text) {
  CompletionTokens out;
  for (const auto& [prompt, completion] : conversation.turns) {
    append_tokens(prompt, "prompt", conversation.location, tokenizer, out.tokens);
    const std::size_t begin = out.tokens.size();
    append_tokens(completion, "completion", conversation.location, tokenizer, out.tokens);
    out.tokens.push_back(end_of_text);
    out.completions.push_back({begin, out.tokens.size()});
  }
  return out;
}

// The last T + 1 of the tokens as inputs and targets; none if the last completion does not fit.
std::optional<TokenSequence> last_tokens(const CompletionTokens& all, std::int64_t T) {
  const std::size_t size = all.tokens.size();
  const std::size_t first = size - std::min(size, static_cast<std::size_t>(T) + 1);
  if (all.completions.back().begin <= first) return std::nullopt;
  const auto begin = all.tokens.begin() + static_cast<std::ptrdiff_t>(first);
  TokenSequence sequence{.tokens = {begin, all.tokens.end() - 1}, .targets = {}};
  sequence.targets.assign(sequence.tokens.size(), -1);
  for (const auto& completion : all.completions) {
    if (completion.begin <= first) continue;
    for (std::size_t i = completion.begin; i < completion.end; ++i) {
      sequence.targets[i - 1 - first] = all.tokens[i];
    }
  }
  return sequence;
}

// Conversations with one problem.
struct ProblemCount {
  std::int64_t count = 0;
  std::string first{};

  void add(const std::string& location) {
    if (count++ == 0) first = location;
  }

  void warn(const Conversations& all, const std::string& problem) const {
    if (count == 0) return;
    Notice::warn("warning: " + all.source + ": " + std::to_string(count) + " of " +
                 std::to_string(all.items.size()) + " examples " + problem + "; the first is " +
                 first);
  }
};

}  // namespace

MessageTemplate parse_message_template(const std::string& format, const std::string& flag) {
  constexpr std::string_view kRole = "{role}", kContent = "{content}";
  const auto fail_format = [&](const std::string& problem) {
    fail_usage(flag + " '" + format + "' " + problem,
               R"(write {role} and then {content}, such as '{role}: {content}\n'; \n, \t and \\ )"
               "stand for a line break, a tab and a backslash");
  };
  std::string text;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '\\') {
      text += format[at];
      continue;
    }
    const std::size_t escape = std::string_view("nt\\").find(format.c_str()[++at]);
    if (escape == std::string_view::npos) {
      fail_format("has a backslash before another character than n, t or a backslash");
    }
    text += "\n\t\\"[escape];
  }
  const std::size_t role = text.find(kRole), content = text.find(kContent);
  for (const auto& [name, at] : {std::pair(kRole, role), std::pair(kContent, content)}) {
    if (at == text.npos) fail_format("has no " + std::string(name));
    if (text.find(name, at + 1) != text.npos) fail_format("has " + std::string(name) + " twice");
  }
  if (content < role) fail_format("has {content} before {role}");
  return {.before_role = text.substr(0, role),
          .before_content = text.substr(role + kRole.size(), content - role - kRole.size()),
          .after_content = text.substr(content + kContent.size())};
}

Conversations read_conversations(const std::string& source, const std::string& flag,
                                 const MessageTemplate& message_template) {
  Conversations all{.source = source};
  for (const std::string& file : files_of_source(source, flag)) {
    for_each_json_object(
        file, 0, [&](const Json& object, std::int64_t, const std::string& location) {
          all.items.push_back(read_conversation(object, location, message_template));
        });
  }
  return all;
}

ConversationSplit split_conversations(const Conversations& all, const SplitFractions& fractions) {
  std::vector<std::uint64_t> hashes;
  for (const Conversation& item : all.items) hashes.push_back(item.hash);
  const SplitIndices indices = split_by_hash(hashes, fractions, all.source);
  const auto part = [&](const std::vector<std::size_t>& items) {
    Conversations selected{.source = all.source};
    for (const std::size_t i : items) selected.items.push_back(all.items[i]);
    return selected;
  };
  return {part(indices.train), part(indices.validation), part(indices.test)};
}

ConversationTokens tokenize_conversations(const Conversations& conversations,
                                          const Tokenizer& tokenizer, std::int64_t T) {
  require(T >= 1, "sequences need a length");
  const std::optional<std::int32_t> end_of_text = tokenizer.end_of_text();
  if (!end_of_text) {
    fail("the tokenizer " + tokenizer.name() + " has no end-of-text, which ends a completion",
         "choose a tokenizer with the token " + std::string(kEndOfText));
  }
  ConversationTokens out;
  ProblemCount cut, dropped;
  for (const Conversation& conversation : conversations.items) {
    const CompletionTokens all = completion_tokens(conversation, tokenizer, *end_of_text);
    std::optional<TokenSequence> sequence = last_tokens(all, T);
    if (!sequence) {
      dropped.add(conversation.location);
      continue;
    }
    if (std::ssize(all.tokens) > T + 1) cut.add(conversation.location);
    out.num_targets += std::ranges::count_if(sequence->targets, [](auto t) { return t >= 0; });
    out.sequences.push_back(std::move(*sequence));
  }
  out.num_cut = cut.count;
  out.num_dropped = dropped.count;
  if (out.sequences.empty()) {
    fail(conversations.source + ": all " + std::to_string(conversations.items.size()) +
             " examples end with a completion of more than " + std::to_string(T) + " tokens",
         "increase " + quantity("sequence length"));
  }
  const std::string size = std::to_string(T) + " tokens";
  cut.warn(conversations, "lose their beginning to fit " + size);
  dropped.warn(conversations, "are dropped because their last completion has more than " + size);
  return out;
}

}  // namespace llmc
