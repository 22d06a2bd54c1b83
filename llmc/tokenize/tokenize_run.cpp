#include "llmc/tokenize/tokenize_run.h"

#include <iterator>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "llmc/base/threads.h"
#include "llmc/config/choices.h"
#include "llmc/io/tokenizer/text_cuts.h"

namespace llmc {

TokenizeCounts TokenizeRun::run() {
  while (read_round()) {
    hash_documents();
    for (Item& item : items_) decide(item);
    tokenize();
    reader_.release_read();
  }
  return counts_;
}

bool TokenizeRun::read_round() {
  items_.clear();
  round_begin_ = reader_.bytes_read();
  Document document;
  while (reader_.bytes_read() - round_begin_ < round_bytes() && reader_.next(document)) {
    items_.emplace_back();
    items_.back().document = document;
    items_.back().number = counts_.read++;
  }
  return !items_.empty();
}

void TokenizeRun::read_text(Item& item) const {
  if (!settings_.skip_bad_lines || !item.document.is_json) {
    item.text = reader_.text_of(item.document, item.storage);
    return;
  }
  try {
    item.text = reader_.text_of(item.document, item.storage);
  } catch (const Error&) {
    item.is_bad = true;
  }
}

void TokenizeRun::hash_documents() {
  for_each_parallel(items_.size(), settings_.threads, [&](std::size_t i) {
    Item& item = items_[i];
    read_text(item);
    item.hash = content_hash(item.text);
    if (settings_.dedup == Dedup::near) item.min_hash = min_hash(item.text);
  });
}

void TokenizeRun::decide(Item& item) {
  if (item.is_bad) {
    if (counts_.bad_lines++ == 0) first_bad_line_ = reader_.place(item.document);
  } else if (item.text.empty()) {
    ++counts_.empty;
  } else if (settings_.dedup != Dedup::none && exact_duplicates_.contains_or_add(item.hash)) {
    ++counts_.exact_duplicates;
  } else if (item.min_hash && near_duplicates_.contains_or_add(*item.min_hash)) {
    ++counts_.near_duplicates;
  } else {
    // Chosen by content, so that a document stays in the same output whatever is added before it.
    const bool held_out =
        streams_.size() > 1 && unit_interval(mix64(item.hash.low, 1)) < settings_.val_fraction;
    const std::size_t output = held_out ? 1 : 0;
    ++counts_.outputs[output].documents;
    counts_.outputs[output].text_bytes += std::ssize(item.text);
    if (streams_[output]->needs(item.number)) item.stream = streams_[output].get();
  }
}

void TokenizeRun::tokenize() {
  std::vector<Part> parts;
  std::int64_t total_bytes = 0;
  for (const Item& item : items_) {
    if (item.stream == nullptr) continue;
    total_bytes += std::ssize(item.text);
    const bool cut = cuts_are_exact(tokenizer_);
    for (const auto text : cut_text(item.text, cut ? kPartBytes : item.text.size())) {
      parts.push_back({&item, text, text.data() == item.text.data(), {}});
    }
  }
  // One document can be longer than a round, so parts are encoded one round's size at a time.
  std::int64_t done_bytes = 0;
  for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    std::int64_t bytes = 0;
    while (end < parts.size() && bytes < round_bytes()) bytes += std::ssize(parts[end++].text);
    encode(std::span(parts).subspan(begin, end - begin));
    done_bytes += bytes;
    show_progress(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  }
  if (parts.empty()) show_progress(1);
}

void TokenizeRun::encode(std::span<Part> parts) {
  for_each_parallel(parts.size(), settings_.threads, [&](std::size_t i) {
    try {
      parts[i].tokens = tokenizer_.encode(parts[i].text);
    } catch (const Error& error) {
      fail(reader_.place(parts[i].item->document) + ": " + error.marked_text());
    }
  });
  for (Part& part : parts) {
    const Item& item = *part.item;
    if (part.first && !settings_.no_end_of_text) {
      const std::int32_t end_of_text = *tokenizer_.end_of_text();
      item.stream->append(item.number, {&end_of_text, 1});
    }
    item.stream->append(item.number, part.tokens);
    part.tokens = {};
  }
}

void TokenizeRun::show_progress(double fraction) {
  const std::int64_t round = reader_.bytes_read() - round_begin_;
  std::int64_t tokens = 0;
  for (const auto& stream : streams_) tokens += stream->tokens();
  progress_.show(
      round_begin_ + static_cast<std::int64_t>(fraction * static_cast<double>(round)),
      std::to_string(counts_.read) + " documents, " + std::to_string(tokens) + " tokens");
}

}  // namespace llmc
