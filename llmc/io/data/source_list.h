// Parses the values of --train and --val: SOURCE[,SOURCE...]. Each SOURCE is NAME[:WEIGHT].
//
// A comma ends a source, and the last colon of a source begins its weight, with two exceptions.
// After a backslash, a comma, a colon or a backslash stands for itself. If a list, or a source in
// it, is the name of an existing file as written, it stands for that file, whatever characters it
// contains. A weight is a decimal number above 0 and has its exact value: 0.7 and 0.3 are 7 of 10
// and 3 of 10. Either all sources have weights or none has.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/data/interleave.h"

namespace llmc {

struct SourceList {
  std::vector<std::string> names;     // files, prefixes of Megatron's files, or patterns
  std::optional<Interleave> weights;  // none: in proportion to size
};

namespace source_list_detail {

bool exists(const std::string& path);

// Returns the items between the commas of a list, with their backslashes.
std::vector<std::string> split_list(const std::string& text);

// Removes each backslash that escapes a comma, a colon or a backslash.
std::string unescape(std::string_view text);
// Adds them.
std::string escape(std::string_view text);

}  // namespace source_list_detail

// Throws an error that names `flag` and what is wrong with the list.
SourceList parse_source_list(const std::string& text, const std::string& flag,
                             bool weights_allowed);

// Returns the list with replace(NAME) in place of each name. Weights and order stay.
std::string replace_source_names(const std::string& text,
                                 const std::function<std::string(const std::string&)>& replace);

// Returns the files of a source, sorted by name: the files that match a pattern (* ? []), or the
// one file of that name. A pattern skips directories, token caches and temporary files. Throws if
// the name is a directory, if no file matches, or if a directory in which files could match cannot
// be read.
std::vector<std::string> files_of_source(const std::string& name, const std::string& flag);

}  // namespace llmc
