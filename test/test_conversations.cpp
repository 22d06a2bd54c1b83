// Prompts with completions, and conversations: their text, and the targets that count.
#include <algorithm>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/io/data/conversations.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/compressed_samples.h"
#include "test/eval_samples.h"
#include "test/small_vocabulary.h"
#include "test/support.h"
#include "test/write_file.h"

TEST_SUITE_BEGIN("conversations");

using namespace llmc;
using namespace llmc_test;

namespace {

using Texts = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kEnd = 256;  // end-of-text of ByteTokenizer

// A file x.jsonl with these lines.
struct ConversationFile {
  explicit ConversationFile(const std::string& text) { write(path(), text); }

  std::string path() const { return directory.file("x.jsonl"); }
  Conversations read(const MessageTemplate& format = {}) const {
    return read_conversations(path(), "--chat", format);
  }

  TemporaryDirectory directory;
};

Conversations conversations_of(const std::string& text, const MessageTemplate& format = {}) {
  return ConversationFile(text).read(format);
}

std::string error_of(const std::string& text) {
  return complaint([&] { conversations_of(text); });
}

std::string pair_line(const std::string& prompt, const std::string& completion) {
  return R"({"prompt": ")" + prompt + R"(", "completion": ")" + completion + "\"}\n";
}

std::string message(const std::string& role, const std::string& content) {
  return R"({"role": ")" + role + R"(", "content": ")" + content + "\"}";
}

std::string messages_line(const Texts& messages) {
  std::string text;
  for (const std::string& one : messages) text += (text.empty() ? "" : ", ") + one;
  return "{\"messages\": [" + text + "]}\n";
}

// The text of a conversation, in which [ ] enclose what counts.
std::string marked_text(const Conversation& conversation) {
  std::string text;
  for (const auto& [prompt, completion] : conversation.turns) {
    text += prompt + "[" + completion + "]";
  }
  return text;
}

// The tokens of a sequence and its last target as a text, in which [ ] enclose each token that is a
// target, and # is end-of-text. Checks that each target is the next token.
std::string marked_tokens(const TokenSequence& sequence) {
  REQUIRE(sequence.tokens.size() == sequence.targets.size());
  const auto character = [](std::int32_t id) {
    return id == kEnd ? std::string("#") : ByteTokenizer().decode(Ids{id});
  };
  std::string text = character(sequence.tokens[0]);
  bool is_target = false;
  for (std::size_t t = 0; t < sequence.targets.size(); ++t) {
    const bool is_last = t + 1 == sequence.targets.size();
    const std::int32_t target = sequence.targets[t];
    if (!is_last && target >= 0) CHECK(target == sequence.tokens[t + 1]);
    if (is_last) CHECK(target == kEnd);
    if ((target >= 0) != is_target) text += is_target ? "]" : "[";
    is_target = target >= 0;
    text += character(is_last ? target : sequence.tokens[t + 1]);
  }
  return text + (is_target ? "]" : "");
}

// The sequences of a text's conversations, and the warnings about them.
struct Tokenized {
  ConversationTokens tokens;
  std::string warnings;
  Texts marked;
};

Tokenized tokenized(const Conversations& conversations, std::int64_t T) {
  Tokenized out;
  std::ostringstream output;
  std::streambuf* const old_buffer = std::cerr.rdbuf(output.rdbuf());
  out.tokens = tokenize_conversations(conversations, ByteTokenizer(), T);
  std::cerr.rdbuf(old_buffer);
  out.warnings = output.str();
  std::int64_t num_targets = 0;
  for (const TokenSequence& sequence : out.tokens.sequences) {
    CHECK(std::ssize(sequence.tokens) <= T);
    out.marked.push_back(marked_tokens(sequence));
    num_targets += std::ranges::count_if(sequence.targets, [](auto t) { return t != -1; });
  }
  CHECK(out.tokens.num_targets == num_targets);
  return out;
}

const std::string kTwoTurns =
    messages_line({message("user", "Hi"), message("assistant", "Hello."), message("user", "Bye"),
                   message("assistant", "See you.")});

}  // namespace

TEST_CASE("a prompt and its completion are used as they are") {
  const Conversations all = conversations_of(pair_line("Q: a?\\n", " b ") + "\n" +
                                             R"({"completion": "d", "id": 1, "prompt": "\u00e9"})");
  REQUIRE(all.items.size() == 2);
  CHECK(marked_text(all.items[0]) == "Q: a?\n[ b ]");
  CHECK(marked_text(all.items[1]) == "\xc3\xa9[d]");
  CHECK(contains(all.items[1].location, "x.jsonl:3"));
}

TEST_CASE("messages become the text that the header documents") {
  const auto text = [](const Texts& messages) {
    return marked_text(conversations_of(messages_line(messages)).items.at(0));
  };
  CHECK(marked_text(conversations_of(kTwoTurns).items.at(0)) ==
        "user: Hi\nassistant:[ Hello.]\nuser: Bye\nassistant:[ See you.]");
  CHECK(text({message("system", "Be brief."), message("user", "a\\nb"),
              message("assistant", "c")}) == "system: Be brief.\nuser: a\nb\nassistant:[ c]");
  CHECK(text({message("assistant", "a"), message("assistant", "b")}) ==
        "assistant:[ a]\nassistant:[ b]");
  // Nothing after the last message of the assistant counts, so it is left out.
  CHECK(text({message("user", "a"), message("assistant", "b"), message("user", "c")}) ==
        "user: a\nassistant:[ b]");
}

TEST_CASE("another template replaces the default one") {
  const MessageTemplate format = parse_message_template(R"(<{role}>\n{content}\\\t</>)", "--t");
  CHECK(marked_text(conversations_of(kTwoTurns, format).items.at(0)) ==
        "<user>\nHi\\\t</><assistant>\n[Hello.]\\\t</><user>\nBye\\\t</><assistant>\n[See you.]");
  const MessageTemplate short_format = parse_message_template("{role}  {content}", "--t");
  CHECK(marked_text(conversations_of(kTwoTurns, short_format).items.at(0)) ==
        "user  Hiassistant [ Hello.]user  Byeassistant [ See you.]");
  const MessageTemplate default_format = parse_message_template(R"({role}: {content}\n)", "--t");
  CHECK(marked_text(conversations_of(kTwoTurns, default_format).items.at(0)) ==
        marked_text(conversations_of(kTwoTurns).items.at(0)));
  for (const auto& [bad, problem] : {std::pair("{role}", "has no {content}"),
                                     {"{content}", "has no {role}"},
                                     {"", "has no {role}"},
                                     {"{content}{role}", "{content} before {role}"},
                                     {"{role}{role}{content}", "{role} twice"},
                                     {"{role}{content}{content}", "{content} twice"},
                                     {R"({role}\x{content})", "a backslash"},
                                     {R"({role}{content}\)", "a backslash"}}) {
    check_message(complaint([&, bad = bad] { parse_message_template(bad, "--t"); }),
                  {"--t '" + std::string(bad) + "'", problem, "write {role} and then {content}"});
  }
}

TEST_CASE("only completions and their end-of-text are targets") {
  const Tokenized pairs =
      tokenized(conversations_of(pair_line("ab", "cd") + pair_line("x", "y")), 16);
  CHECK(pairs.marked == Texts{"ab[cd#]", "x[y#]"});
  CHECK(pairs.tokens.sequences[0].tokens == ByteTokenizer().encode("abcd"));
  CHECK(pairs.tokens.sequences[0].targets[0] == -1);
  CHECK(pairs.tokens.num_targets == 5);
  CHECK(pairs.tokens.num_cut == 0);
  CHECK(pairs.tokens.num_dropped == 0);
  CHECK(pairs.warnings.empty());
  CHECK(tokenized(conversations_of(kTwoTurns), 100).marked ==
        Texts{"user: Hi\nassistant:[ Hello.#]\nuser: Bye\nassistant:[ See you.#]"});
}

TEST_CASE("a prompt and its completion are tokenized separately") {
  const TemporaryDirectory vocabulary;
  SmallVocabulary(kFewMerges).save(vocabulary);
  const auto tokenizer = make_tokenizer(vocabulary.path().string());
  const auto id = [&](const std::string& text) { return tokenizer->encode(text).at(0); };
  REQUIRE(tokenizer->encode("hello").size() == 1);
  const ConversationTokens tokens =
      tokenize_conversations(conversations_of(pair_line("he", "llo")), *tokenizer, 16);
  CHECK(tokens.sequences[0].tokens == Ids{id("he"), id("ll"), id("o")});
  CHECK(tokens.sequences[0].targets == Ids{id("ll"), id("o"), *tokenizer->end_of_text()});
  // The space before the assistant's text joins its first word.
  const ConversationTokens words = tokenize_conversations(
      conversations_of(messages_line({message("user", "a"), message("assistant", "w")})),
      *tokenizer, 64);
  CHECK(words.sequences[0].targets.end()[-2] == id(" w"));
  CHECK(words.num_targets == 2);
  // A text that spells end-of-text does not end the sequence.
  const ConversationTokens spelled =
      tokenize_conversations(conversations_of(pair_line("a", "<|endoftext|>")), *tokenizer, 64);
  CHECK(std::ranges::count(spelled.sequences[0].tokens, *tokenizer->end_of_text()) == 0);
}

TEST_CASE("a conversation that is too long loses its beginning, and is counted") {
  const Conversations pair = conversations_of(pair_line("0123456", "abc"));
  CHECK(tokenized(pair, 10).marked == Texts{"0123456[abc#]"});
  CHECK(tokenized(pair, 10).tokens.num_cut == 0);
  const Tokenized cut = tokenized(pair, 9);
  CHECK(cut.marked == Texts{"123456[abc#]"});
  CHECK(cut.tokens.num_cut == 1);
  CHECK(contains(cut.warnings, "x.jsonl: 1 of 1 examples lose their beginning to fit 9 tokens"));
  CHECK(contains(cut.warnings, "the first is "));
  CHECK(contains(cut.warnings, "x.jsonl:1\n"));
  // One token of the prompt remains in any case.
  CHECK(tokenized(pair, 4).marked == Texts{"6[abc#]"});
}

TEST_CASE("an earlier completion that loses its beginning does not count") {
  const Conversations all = conversations_of(messages_line(
      {message("assistant", "abc"), message("user", "d"), message("assistant", "ef")}));
  const std::string whole = "assistant:[ abc#]\nuser: d\nassistant:[ ef#]";
  const auto size = static_cast<std::int64_t>(whole.size()) - 4;  // without brackets
  CHECK(tokenized(all, size - 1).marked == Texts{whole});
  CHECK(tokenized(all, size - 10).marked == Texts{":[ abc#]\nuser: d\nassistant:[ ef#]"});
  CHECK(tokenized(all, size - 11).marked == Texts{" abc#\nuser: d\nassistant:[ ef#]"});
  CHECK(tokenized(all, size - 13).marked == Texts{"bc#\nuser: d\nassistant:[ ef#]"});
}

TEST_CASE("a conversation whose last completion is too long is dropped, and counted") {
  const Conversations all = conversations_of(pair_line("a", "bcd") + pair_line("a", "bcdefg") +
                                             pair_line("a", "b") + pair_line("a", "bcde"));
  const Tokenized result = tokenized(all, 4);
  CHECK(result.marked == Texts{"a[bcd#]", "a[b#]"});
  CHECK(result.tokens.num_dropped == 2);
  CHECK(result.tokens.num_cut == 0);
  CHECK(
      contains(result.warnings,
               "2 of 4 examples are dropped because their last completion has more than 4 tokens"));
  CHECK(contains(result.warnings, "x.jsonl:2\n"));
  check_message(complaint([&] { tokenize_conversations(all, ByteTokenizer(), 1); }),
                {"x.jsonl", "all 4 examples", "more than 1 tokens", "increase"});
}

TEST_CASE("an error names the file, the line, the problem and what is allowed") {
  const std::string first = pair_line("a", "b");
  const Texts allowed = {"\"completion\": \"...\"", "\"role\": \"assistant\""};
  const auto check = [&](const std::string& line, Texts phrases) {
    phrases.insert(phrases.end(), {"x.jsonl:2"});
    check_message(error_of(first + line), phrases);
  };
  check_message(error_of(""), {"x.jsonl", "no examples"});
  check("{", {"not valid JSON"});
  check("[]", {"not a JSON object"});
  check(pair_line("caf\xe9", "a"), {"not UTF-8"});
  check("{\"text\": \"a\"}", {"neither \"messages\" nor", allowed[0], allowed[1]});
  check(R"({"prompt": "a", "messages": []})", {"both", allowed[0]});
  check(R"({"completion": "a", "messages": []})", {"both", allowed[0]});
  check("{\"prompt\": \"a\"}", {"no \"completion\"", allowed[0]});
  check("{\"completion\": \"a\"}", {"no \"prompt\"", allowed[0]});
  check(R"({"prompt": 1, "completion": "a"})", {"\"prompt\"", "not a string"});
  check(pair_line("", "a"), {"\"prompt\" is empty", "remove the line"});
  check(pair_line("a", " \\n"), {"\"completion\" is empty", "remove the line"});
  check(R"({"messages": "a"})", {"\"messages\" is not a list", allowed[1]});
  check(R"({"messages": []})", {"\"messages\" is empty", allowed[1]});
  check(messages_line({"1"}), {"\"messages\"[0] is not a JSON object"});
  check(messages_line({message("user", "a")}), {"no message with the role assistant", allowed[1]});
  check(messages_line({message("assistant", "a"), message("usr", "b")}),
        {"\"messages\"[1]", "\"role\" is usr; did you mean user?", "system, user and assistant"});
  check(messages_line({message("", "a")}), {"\"role\" is empty", "system, user and assistant"});
  check(messages_line({R"({"content": "a"})"}), {"\"messages\"[0] has no \"role\"", allowed[1]});
  check(messages_line({R"({"role": "user"})"}), {"\"messages\"[0] has no \"content\""});
  check(messages_line({message("assistant", "")}), {"\"messages\"[0]: \"content\" is empty"});
  check(messages_line({R"({"role": "user", "content": [{"type": "text"}]})"}),
        {"\"content\" is not a string"});
  check_message(complaint([] { read_conversations("/nowhere/x*.jsonl", "--chat"); }),
                {"--chat", "no file matches"});
}

TEST_CASE("a tokenizer without end-of-text, and a text that it cannot encode, are errors") {
  const Conversations all = conversations_of(pair_line("the", "king"));
  const auto error_with = [&](const Texts& words) {
    return complaint([&] { tokenize_conversations(all, WordTokenizer(words, "words"), 8); });
  };
  check_message(error_with({"the", "king"}), {"words", "no end-of-text", "<|endoftext|>"});
  check_message(error_with({"the", "<|endoftext|>"}), {"x.jsonl:1", "king"});
  CHECK(error_with({"the", "king", "<|endoftext|>"}).empty());
}

TEST_CASE("compressed files and patterns are read") {
  const TemporaryDirectory directory;
  write(directory.file("b.jsonl.gz"), gzip(pair_line("b", "c")));
  write(directory.file("a.jsonl"), pair_line("a", "c"));
  const Conversations all = read_conversations(directory.file("*.jsonl*"), "--chat");
  REQUIRE(all.items.size() == 2);
  CHECK(marked_text(all.items[0]) == "a[c]");
  CHECK(marked_text(all.items[1]) == "b[c]");
}

TEST_CASE("a split keeps equal conversations together, whatever the template") {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    const std::string number = std::to_string(i % 300);
    lines += i % 2 == 0 ? pair_line("a" + number, "b")
                        : messages_line({message("user", number), message("assistant", "c")});
  }
  const MessageTemplate other = parse_message_template("{role}>{content}", "--t");
  const auto parts_of = [&](const MessageTemplate& format) {
    const Conversations all = conversations_of(lines, format);
    const ConversationSplit split = split_conversations(all, {2, 1, 1});
    std::vector<std::set<std::string>> parts;
    std::size_t count = 0;
    for (const Conversations* part : {&split.train, &split.validation, &split.test}) {
      parts.emplace_back();
      count += part->items.size();
      for (const Conversation& item : part->items) parts.back().insert(marked_text(item));
    }
    CHECK(count == 400);
    CHECK(parts[0].size() + parts[1].size() + parts[2].size() == 300);
    std::vector<std::size_t> sizes;
    for (const auto& part : parts) sizes.push_back(part.size());
    return sizes;
  };
  const std::vector<std::size_t> sizes = parts_of({});
  CHECK(parts_of(other) == sizes);
  CHECK(sizes[0] > 120);
  CHECK(sizes[1] > 45);
  CHECK(sizes[2] > 45);
  // The hash is that of the documented text.
  const Conversations all = conversations_of(pair_line("ab", "cd") + kTwoTurns, other);
  CHECK(all.items[0].hash == split_hash("abcd"));
  CHECK(all.items[1].hash ==
        split_hash("user: Hi\nassistant: Hello.\nuser: Bye\nassistant: See you.\n"));
}

TEST_CASE("sequences of conversations become padded batches") {
  const Tokenized result =
      tokenized(conversations_of(pair_line("ab", "c") + pair_line("d", "e")), 8);
  const PaddedSequences sequences(result.tokens.sequences, {8, kEnd}, "x");
  const PaddedBatch batch = SortedSequences(sequences).batch(0, 2);
  const Ids bytes = ByteTokenizer().encode("abcde");
  CHECK(batch.batch.inputs == Ids{bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], kEnd});
  CHECK(batch.batch.targets == Ids{-1, bytes[2], kEnd, bytes[4], kEnd, -1});
}

TEST_SUITE_END();
