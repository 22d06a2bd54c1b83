// Ranks that disagree: what they compare, and the error.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/compare_ranks.h"
#include "llmc/config/compared_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/train/run/input_agreement.h"
#include "llmc/train/run/start_agreement.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Rank `rank` of ranks that start like this; the others answer what it needs.
std::optional<StartFailure> start_of(const std::vector<RankStart>& ranks, std::size_t rank) {
  int num_calls = 0;
  const auto gather = [&](const std::string& own) {
    std::vector<std::string> texts;
    for (const RankStart& other : ranks) {
      const std::string packed = start_agreement_detail::pack_start(other);
      texts.push_back(num_calls == 0 ? content_checksum_of(packed) : packed);
    }
    ++num_calls;
    CHECK(texts[rank] == own);
    return texts;
  };
  return agree_to_start(gather, ranks[rank]);
}

// The text that all ranks get.
std::string refusal(const std::vector<RankStart>& ranks) {
  const auto first = start_of(ranks, 0);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto other = start_of(ranks, rank);
    CHECK(other.has_value() == first.has_value());
    if (first) CHECK(other->text == first->text);
    if (first) CHECK(other->exit_code == first->exit_code);
  }
  return first ? std::to_string(first->exit_code) + ": " + first->text : "";
}

RankStart started(const NamedValues& flags, const std::string& commit = "a",
                  const std::string& target = "host") {
  return {"a run", {{"the commit", commit}, {"the target", target}}, "build", flags};
}

TokenSource source_of(std::vector<std::int32_t> tokens) {
  TokenSource source("text");
  source.add("text", TokenData(std::move(tokens)));
  return source;
}

}  // namespace

TEST_SUITE("rank agreement") {
  TEST_CASE("texts with any bytes survive packing, and damaged lists are errors") {
    const std::vector<std::string> texts = {"", std::string("a\0\n", 3), std::string(1000, 'x')};
    const std::string packed = pack_texts(texts);
    CHECK(unpack_texts(packed) == texts);
    CHECK(unpack_texts("").empty());
    for (const std::size_t size : {std::size_t{1}, std::size_t{12}, packed.size() - 1}) {
      CHECK(contains(complaint([&] { unpack_texts(packed.substr(0, size)); }), "truncated"));
    }
  }

  TEST_CASE("a difference names ranks and values, that of rank 0 last") {
    CHECK(rank_list({3}) == "rank 3");
    CHECK(rank_list({0, 2, 3, 5, 6, 7}) == "ranks 0, 2, 3, 5 to 7");
    const NamedValues lr = {{"--lr", "0.01"}};
    CHECK(difference_text({{}, lr}, "the default") ==
          "--lr is 0.01 on rank 1, the default on rank 0");
    CHECK(difference_text({lr, {}, lr, lr, {{"--lr", ""}}}, "the default") ==
          "--lr is the default on rank 1, '' on rank 4, 0.01 on ranks 0, 2, 3");
    CHECK(difference_text({lr, lr}).empty());
    CHECK(difference_text({{}, {}}).empty());
  }

  TEST_CASE("a difference is short, and shows where long values differ") {
    std::vector<NamedValues> ranks(2);
    for (int i = 0; i < 9; ++i) ranks[1].push_back({"--flag" + std::to_string(i), "1"});
    CHECK(difference_text(ranks).ends_with("--flag3 is 1 on rank 1, missing on rank 0; 5 more"));
    const std::string same(500, 'x');
    ranks = {{{"--prompt", same + "a"}}, {{"--prompt", same + "b"}}};
    const std::string text = difference_text(ranks);
    CHECK(contains(text, "xb on rank 1, ..."));
    CHECK(text.size() < 200);
    ranks.clear();
    for (int i = 0; i < 100; ++i) ranks.push_back({{"--seed", std::to_string(i)}});
    CHECK(difference_text(ranks) ==
          "--seed is 1 on rank 1, 2 on rank 2, 3 on rank 3, other values on other ranks, 0 on rank "
          "0");
  }

  TEST_CASE("ranks that agree may start; others get the same error on every rank") {
    const RankStart plain = started({}), lr = started({{"--lr", "0.01"}});
    CHECK(refusal({plain, plain, plain}) == "");
    CHECK(refusal({lr, lr}) == "");
    CHECK(contains(refusal({plain, lr, plain}),
                   "2: the ranks have different flags: --lr is 0.01 on rank 1, the default on "
                   "ranks 0, 2\n"));
    CHECK(contains(refusal({plain, started({}, "b")}),
                   "2: the ranks run different programs: the commit is b on rank 1, a on rank 0"));
    CHECK(contains(refusal({plain, started({}, "a", "cuda")}),
                   "the target is cuda on rank 1, host on rank 0"));
    RankStart help = plain;
    help.request = "--help";
    CHECK(contains(refusal({help, plain}),
                   "2: the ranks have different command lines: the request is a run on rank 1, "
                   "--help on rank 0\n"));
    RankStart other_build = plain;
    other_build.build = "another";
    CHECK(refusal({plain, other_build}) == "");
  }

  TEST_CASE("the lowest rank that cannot start is reported; named unless all have its error") {
    const RankStart plain = started({});
    RankStart failed = plain, other = plain;
    failed.failure = {2, "there is no flag --x"};
    other.failure = {1, "no GPU"};
    CHECK(refusal({failed, failed}) == "2: there is no flag --x");
    CHECK(refusal({plain, failed, other}) == "2: rank 1: there is no flag --x");
    CHECK(refusal({other, failed}) == "1: rank 0: no GPU");
    CHECK(contains(refusal({started({}, "b"), failed}), "different programs"));
    RankStart failed_elsewhere = failed;
    failed_elsewhere.build = "another";
    CHECK(refusal({failed, failed_elsewhere}) == "2: there is no flag --x");
  }

  TEST_CASE("all rows are compared, except at most ten that have a reason") {
    int num_free = 0;
    for (const Setting<TrainProgram>& row : train_settings()) {
      num_free += row.special.may_differ.empty() ? 0 : 1;
    }
    CHECK(num_free > 0);
    CHECK(num_free <= 10);
    CHECK(resolved_values(train_settings(), default_run_config()).size() + num_free ==
          train_settings().size());
  }

  TEST_CASE("different numbers have different texts") {
    CHECK(exact_text(SettingValue(0.01)) == "0.01");
    CHECK(exact_text(SettingValue(0.1)) != exact_text(SettingValue(0.1 + 1e-17 * 2)));
    CHECK(exact_text(SettingValue(1e-3)) != exact_text(SettingValue(1.0000001e-3)));
    CHECK(exact_text(SettingValue(false)) == "false");
  }

  TEST_CASE("samples of a source have its ends, and all tokens of a short one") {
    using input_agreement_detail::sampled_checksum;
    const std::size_t kSizes[] = {10, 66 * 1024, 200000};
    for (const std::size_t size : kSizes) {
      const std::vector<std::int32_t> tokens(size, 7);
      const std::string sum = sampled_checksum(source_of(tokens));
      CHECK(sum == sampled_checksum(source_of(tokens)));
      std::size_t num_found = 0, num_tried = 0;
      for (std::size_t at = 0; at < size; at += size < 100000 ? size / 10 : 1000) {
        std::vector<std::int32_t> changed = tokens;
        changed[at] = 8;
        ++num_tried;
        if (sampled_checksum(source_of(changed)) != sum) ++num_found;
      }
      for (const std::size_t at : {std::size_t{0}, size - 1}) {
        std::vector<std::int32_t> changed = tokens;
        changed[at] = 8;
        CHECK(sampled_checksum(source_of(changed)) != sum);
      }
      CHECK(num_found > 0);
      CHECK((num_found == num_tried) == (size <= 66 * 1024));
    }
  }
}
