// Names of files in the recorded settings of a run that is continued from another directory, or
// whose --out was moved. A name keeps its form if it leads to a file from the current directory
// too.
#pragma once

#include <string>

#include "llmc/config/setting.h"

namespace llmc {

// Whether a name leads to a file: a path, a pattern, or the prefix of Megatron's files.
bool leads_to_file(const std::string& name);

// Returns the name for a file of the run. A file in the former --out is in the new one now. Another
// relative name becomes absolute if nothing of that name is here and the former directory exists.
std::string relocate_path(const std::string& name, const Relocation& relocation);

// The same for the list of --train or --val: names are replaced, weights and order stay.
std::string relocate_sources(const std::string& text, const Relocation& relocation);

// The same for files with labels, "negative=a.txt,positive=b.txt", or one file without a label.
std::string relocate_label_files(const std::string& text, const Relocation& relocation);

// The same for the part after the first colon: TASK:FILE, or words:FILE.
std::string relocate_after_colon(const std::string& text, const Relocation& relocation);

// The same for --tokenizer: bytes and token ids are no files.
std::string relocate_tokenizer(const std::string& name, const Relocation& relocation);

}  // namespace llmc
