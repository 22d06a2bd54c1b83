#include "llmc/control/control_link.h"

#include <cstdlib>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/base/text_list.h"

namespace llmc {

std::string pack_table(const std::vector<SeenRank>& table) {
  std::vector<std::string> texts;
  for (const SeenRank& rank : table) {
    texts.push_back(pack_texts({pack_state(rank.state), number_text("%.3f", rank.silent_seconds),
                                rank.is_ended ? "1" : "0"}));
  }
  return pack_texts(texts);
}

std::vector<SeenRank> unpack_table(const std::string& packed) {
  std::vector<SeenRank> table;
  for (const std::string& text : unpack_texts(packed)) {
    const std::vector<std::string> parts = unpack_texts(text);
    require(parts.size() == 3, "a rank has sent something else than the table of ranks");
    table.push_back(
        {unpack_state(parts[0]), std::strtod(parts[1].c_str(), nullptr), parts[2] == "1"});
  }
  return table;
}

}  // namespace llmc
