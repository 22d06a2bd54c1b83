// Converts texts to token files on all cores. The memory does not depend on the length of the
// input, except for the hashes of documents and for the text of a single long document.
//
// The work is done in rounds of a few MB of documents. They are read and hashed in parallel. Which
// documents are kept, and in which stream, is decided one by one in their order. Their texts, long
// ones cut into parts, are tokenized in parallel, and the tokens are written in order. So the
// result depends only on the inputs and settings, not on threads or rounds.
//
// A run that resumes reads all documents again, because duplicates depend on all earlier documents,
// but tokenizes only those with missing tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/byte_progress.h"
#include "llmc/config/tokenize_settings.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/tokenize/near_duplicates.h"
#include "llmc/tokenize/token_shards.h"
#include "llmc/tokenize/tokenize_job.h"

namespace llmc {

class TokenizeRun {
 public:
  // `streams`: the outputs for the kept documents, the held-out ones last.
  TokenizeRun(const TokenizeConfig& settings, const Tokenizer& tokenizer, DocumentReader& reader,
              std::vector<std::unique_ptr<TokenShards>>& streams)
      : settings_(settings),
        tokenizer_(tokenizer),
        reader_(reader),
        streams_(streams),
        near_duplicates_(settings.dedup_threshold),
        progress_(reader.total_bytes()) {
    counts_.outputs.resize(streams.size());
  }

  // Processes all documents. The last file of each stream stays unfinished.
  TokenizeCounts run();

  // "FILE:LINE" of the first line that was skipped.
  const std::string& first_bad_line() const { return first_bad_line_; }

  double seconds() const { return progress_.seconds(); }

 private:
  static constexpr std::size_t kPartBytes = std::size_t{1} << 20;
  static constexpr std::int64_t kRoundBytes = std::int64_t{4} << 20;  // per thread

  struct Item {
    Document document;
    std::int64_t number = 0;  // index among all documents
    std::string storage;
    std::string_view text;
    ContentHash hash;
    std::optional<MinHash> min_hash;
    bool is_bad = false;            // a line that is no document, and is skipped
    TokenShards* stream = nullptr;  // null: dropped, or written by an earlier run
  };

  struct Part {
    const Item* item;
    std::string_view text;
    bool first;  // the first part of its document
    std::vector<std::int32_t> tokens;
  };

  std::int64_t round_bytes() const { return kRoundBytes * settings_.threads; }

  bool read_round();

  // Sets the text of an item; marks it as bad if --skip-bad-lines allows that.
  void read_text(Item& item) const;

  void hash_documents();

  // Chooses the stream of an item, if any, and counts the item.
  void decide(Item& item);

  void tokenize();

  void encode(std::span<Part> parts);

  // Shows the progress after `fraction` of the round.
  void show_progress(double fraction);

  const TokenizeConfig& settings_;
  const Tokenizer& tokenizer_;
  DocumentReader& reader_;
  std::vector<std::unique_ptr<TokenShards>>& streams_;
  ExactDuplicates exact_duplicates_;
  NearDuplicates near_duplicates_;
  TokenizeCounts counts_;
  ByteProgress progress_;
  std::vector<Item> items_;  // the items of this round
  std::int64_t round_begin_ = 0;
  std::string first_bad_line_;
};

}  // namespace llmc
