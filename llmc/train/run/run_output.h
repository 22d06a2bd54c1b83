// Checks the outputs of a run before its first step. Hours of work must not be lost at the first
// save, and no file of another run, or any other file, may be overwritten.
#pragma once

#include <filesystem>

#include "llmc/base/file.h"
#include "llmc/base/resolved.h"
#include "llmc/config/train_output_settings.h"

namespace llmc {

// For a new run: throws if the log exists and is not empty, because it belongs to another run.
void refuse_used_log(const std::filesystem::path& path);

// Runs all checks above (those of --resume are in resuming.h). The caller has locked the log. Keep
// the returned lock open for the whole run.
FileDescriptor check_run_output(const OutputSettings<Resolved>& settings,
                                const SampleSettings<Resolved>& samples);

}  // namespace llmc
