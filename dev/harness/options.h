// The flags that every benchmark takes.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace llmc_dev {

// The values of --shapes.
enum class BenchShapes { small, gpt2, all };

struct Options {
  bool help = false;
  bool json = false;
  bool list = false;                 // print the names of the lines, run nothing
  bool verify_only = false;          // no timing
  std::vector<std::string> filters;  // a line runs if its "op/variant shape dtype" contains all
  BenchShapes shapes = BenchShapes::small;

  bool keeps(const std::string& line_name) const {
    return std::ranges::all_of(filters, [&](const std::string& text) {
      return line_name.find(text) != std::string::npos;
    });
  }
};

inline constexpr const char* kOptionsHelp =
    "  --shapes SET    small: odd shapes that fill no tile (default on the host);\n"
    "                  gpt2: GPT-2 124M and 1558M (default on a GPU); all: both\n"
    "  --filter TEXT   only lines whose 'op/variant shape dtype' contains TEXT;\n"
    "                  repeat the flag to require several texts\n"
    "  --verify        check results, measure no time\n"
    "  --json          one JSON object per line\n"
    "  --list          name the lines and run nothing\n"
    "  --help          this text\n"
    "Exit code: 0 all OK, 1 a FAIL or an error, 2 wrong flags.\n";

// Error for a wrong flag; what() names it and the allowed values.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline BenchShapes parse_shape_set(const std::string& name) {
  if (name == "small") return BenchShapes::small;
  if (name == "gpt2") return BenchShapes::gpt2;
  if (name == "all") return BenchShapes::all;
  throw UsageError("--shapes " + name + ": allowed are small, gpt2 and all");
}

inline Options parse_options(int argc, char** argv, BenchShapes default_shapes) {
  Options options;
  options.shapes = default_shapes;
  const auto value_of = [&](int& i) -> std::string {
    if (i + 1 >= argc) throw UsageError(std::string(argv[i]) + " needs a value");
    return argv[++i];
  };
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
    } else if (flag == "--json") {
      options.json = true;
    } else if (flag == "--list") {
      options.list = true;
    } else if (flag == "--verify") {
      options.verify_only = true;
    } else if (flag == "--filter") {
      options.filters.push_back(value_of(i));
    } else if (flag == "--shapes") {
      options.shapes = parse_shape_set(value_of(i));
    } else {
      throw UsageError("unknown flag " + flag + "; --help lists the flags");
    }
  }
  return options;
}

}  // namespace llmc_dev
