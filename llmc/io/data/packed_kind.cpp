#include "llmc/io/data/packed_kind.h"

#include <array>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/shell_word.h"

namespace llmc {

namespace {

struct PackedKind {
  std::string_view magic;
  const char* name;         // and what the command does with the file
  const char* command;      // followed by the name of the file
  const char* ending = "";  // of the file that the command writes, whose name then follows too
};

using namespace std::string_view_literals;

constexpr std::array<PackedKind, 12> kPackedKinds = {{
    {"PAR1"sv, "a Parquet file: convert it",
     "python3 -c 'import sys, pandas; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True)'",
     ".jsonl"},
    {"\x93NUMPY"sv, "a NumPy array (.npy): convert it",
     "python3 -c 'import sys, numpy; "
     "numpy.load(sys.argv[1]).astype(numpy.uint16).tofile(sys.argv[2])'",
     ".bin"},
    {"ARROW1"sv, "an Arrow file: convert it",
     "python3 -c 'import sys, pandas; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True)'",
     ".jsonl"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file: list its content", "h5dump -H"},
    {"\x1f\x8b"sv, "gzip data: unpack it", "gzip -dk"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data: unpack it", "zstd -dk"},
    {"\xfd\x37zXZ\0"sv, "xz data: unpack it", "xz -dk"},
    {"BZh"sv, "bzip2 data: unpack it", "bzip2 -dk"},
    {"\x04\x22\x4d\x18"sv, "lz4 data: unpack it", "lz4 -dk"},
    {"PK\x03\x04"sv, "a zip archive (.zip, .npz): unpack it", "unzip"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive: unpack it", "7z x"},
    {"%PDF-"sv, "a PDF: convert it", "pdftotext", ".txt"},
}};

}  // namespace

std::string packed_kind(std::string_view start, const std::string& path) {
  for (const PackedKind& kind : kPackedKinds) {
    if (!start.starts_with(kind.magic)) continue;
    const std::string ending = kind.ending;
    std::string text = std::string(kind.name) + " with " + kind.command + " " + shell_word(path);
    if (ending.empty()) return text;
    const std::string output = std::filesystem::path(path).replace_extension(ending).string();
    text += " " + shell_word(output == path ? path + ending : output);
    if (ending != ".bin") return text;
    return text + ", and read that with " + quantity("format of token files") + " nanogpt";
  }
  return {};
}

}  // namespace llmc
