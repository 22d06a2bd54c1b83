// Finds the machine and software files that are named on a command line.
#pragma once

#include <filesystem>
#include <string>

namespace llmc {

// The path of a machine ("machine") or software file ("software"): `name` itself if it ends in
// .json, else NAME.json of scripts/machines, which is looked for in the current folder and next to
// the program. Throws an Error that lists the names there are.
std::filesystem::path plan_file(const std::string& name, const std::string& kind);

}  // namespace llmc
