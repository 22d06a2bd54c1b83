// The program `tokenize`, from the first check to the last file.
#pragma once

#include "llmc/config/tokenize_settings.h"

namespace llmc {

// Writes --out, --val and OUT.json. The summary goes to stdout, everything else to stderr. Throws
// if inputs or settings are wrong; finished files then stay, and the same call resumes after them.
void tokenize_files(const TokenizeConfig& settings);

}  // namespace llmc
