// Fuzz target for documents of texts and JSON lines, as `tokenize` reads them. The first byte
// selects the format.
#pragma once

#include "llmc/io/data/documents.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void documents(std::string_view input) {
  static const Folder folder;
  using Kind = llmc::DocumentFormat::Kind;
  const std::size_t choice = take_choice(input, 3);
  llmc::DocumentFormat format;
  format.kind = choice == 0 ? Kind::json_lines : Kind::text;
  if (choice == 2) format.separator = "==";
  const std::string path = folder.write("documents", input);
  is_rejected(path, [&] {
    llmc::DocumentReader reader({path}, format);
    llmc::Document document;
    std::string storage;
    std::size_t bytes = 0;
    while (reader.next(document)) {
      bytes += document.bytes.size();
      is_rejected(path + ":", [&] { reader.text_of(document, storage); });
      reader.release_read();
    }
    expect(bytes <= input.size() && reader.bytes_read() == std::ssize(input),
           "every byte is read once");
    expect(choice != 1 || document.bytes == input, "a text without separator is one document");
  });
}

}  // namespace llmc_fuzz
