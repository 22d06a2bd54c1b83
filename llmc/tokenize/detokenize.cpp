#include "llmc/tokenize/detokenize.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/base/standard_output.h"
#include "llmc/base/utf8.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

namespace {

// The destination of the text: a file that is renamed to --out at the end, or stdout.
class TextSink {
 public:
  explicit TextSink(const TokenizeConfig& settings) {
    if (settings.out.empty()) return;
    std::error_code ignored;
    if (!settings.force && std::filesystem::exists(settings.out, ignored)) {
      fail(settings.out + " already exists", "use --force to replace it");
    }
    file_.emplace(settings.out);
  }

  void write(std::string_view text) {
    errno = 0;
    if (file_) {
      file_->write(text);
    } else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
      fail_stdout(errno);
    }
  }

  void finish() {
    if (file_) {
      file_->commit();
    } else {
      flush_stdout();
    }
  }

 private:
  std::optional<AtomicFile> file_;
};

}  // namespace

void detokenize_files(const TokenizeConfig& settings) {
  const auto tokenizer = make_tokenizer(settings.tokenizer);
  std::vector<TokenData> files;
  for (const std::string& path : settings.inputs) {
    files.push_back(read_token_file(path, settings.bin_format));
    check_tokens(files.back(), tokenizer->vocabulary_size(), path);
  }
  TextSink sink(settings);
  const bool json_lines = std::filesystem::path(settings.out).extension() == ".jsonl";
  const std::string line_begin = "{" + json_quoted(settings.field) + ": ";
  std::int64_t num_invalid = 0;
  std::vector<std::int32_t> document;
  const auto write_document = [&] {
    const std::string text = tokenizer->decode(document);
    document.clear();
    if (!json_lines) return sink.write(text);
    if (text.empty()) return;
    if (!is_utf8(text)) ++num_invalid;
    sink.write(line_begin + json_quoted(text) + "}\n");
  };
  const std::optional<std::int32_t> end_of_text = tokenizer->end_of_text();
  for (const TokenData& tokens : files) {
    for (std::int64_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != end_of_text) {
        document.push_back(tokens[i]);
        continue;
      }
      write_document();
      if (!json_lines) sink.write(kEndOfText);
    }
  }
  write_document();
  sink.finish();
  if (num_invalid > 0) {
    Notice::warn(std::to_string(num_invalid) +
                 " documents have bytes that are not UTF-8, written as U+FFFD");
  }
}

}  // namespace llmc
