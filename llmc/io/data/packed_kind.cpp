#include "llmc/io/data/packed_kind.h"

#include <array>
#include <filesystem>

#include "llmc/base/shell_word.h"

namespace llmc {

namespace {

struct PackedKind {
  std::string_view magic;
  const char* name;     // "a Parquet file"
  const char* ending;   // of the file that the command writes, which replaces that of the name
  const char* command;  // followed by the names of both files; without `ending`, by the first one
};

using namespace std::string_view_literals;

constexpr std::array<PackedKind, 12> kPackedKinds = {{
    {"PAR1"sv, "a Parquet file", ".jsonl",
     "python3 -c 'import sys, pandas; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True)'"},
    {"\x93NUMPY"sv, "a NumPy array (.npy)", ".bin",
     "python3 -c 'import sys, numpy; "
     "numpy.load(sys.argv[1]).astype(numpy.uint16).tofile(sys.argv[2])'"},
    {"ARROW1"sv, "an Arrow file", ".jsonl",
     "python3 -c 'import sys, pandas; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True)'"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file", "", "h5dump -H"},
    {"\x1f\x8b"sv, "gzip data", "", "gzip -dk"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data", "", "zstd -dk"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data", "", "xz -dk"},
    {"BZh"sv, "bzip2 data", "", "bzip2 -dk"},
    {"\x04\x22\x4d\x18"sv, "lz4 data", "", "lz4 -dk"},
    {"PK\x03\x04"sv, "a zip archive (.zip, .npz)", "", "unzip"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", "", "7z x"},
    {"%PDF-"sv, "a PDF", ".txt", "pdftotext"},
}};

}  // namespace

std::string packed_kind(std::string_view start, const std::string& path) {
  for (const PackedKind& kind : kPackedKinds) {
    if (!start.starts_with(kind.magic)) continue;
    const std::string ending = kind.ending;
    std::string text =
        std::string(kind.name) + (ending.empty() ? ": unpack it with " : ": convert it with ");
    if (kind.magic.starts_with("\x89HDF"))
      text = std::string(kind.name) + ": list its content with ";
    text += std::string(kind.command) + " " + shell_word(path);
    if (ending.empty()) return text;
    text += " " + shell_word(std::filesystem::path(path).replace_extension(ending).string());
    return ending == ".bin" ? text + ", for the token file format nanogpt" : text;
  }
  return {};
}

}  // namespace llmc
