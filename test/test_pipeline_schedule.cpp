// Pipeline schedules: complete, free of deadlocks, within their memory and with the computed bubble
// for every shape; in PyTorch's order; and as CSV.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/pipeline/csv.h"
#include "llmc/pipeline/page.h"
#include "llmc/pipeline/pipeline.h"
#include "llmc/pipeline/schedule.h"
#include "llmc/pipeline/timeline.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;

// All p <= 8, m <= 16, v <= 4, and larger m and v for some p. v > 1: m is a multiple of p.
std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      for (int v = 1; v <= 4; ++v) {
        if (v == 1 || m % p == 0) shapes.push_back({p, m, v});
      }
    }
  }
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {8, 32}) {
      for (int v = 1; v <= 8; ++v) shapes.push_back({p, m, v});
    }
  }
  return shapes;
}

double equal_costs(const PipelinePass& pass) {
  return pass.kind == PassKind::forward ? 1 : 2;
}

// The largest number of forward passes without their backward pass.
int most_in_flight(const std::vector<PipelinePass>& passes) {
  int now = 0, most = 0;
  for (const PipelinePass& pass : passes) {
    now += pass.kind == PassKind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

// Whether each micro-batch of a rank goes forward through ascending chunks and backward through
// descending ones.
bool chunks_in_order(const std::vector<PipelinePass>& passes, const PipelineShape& shape) {
  std::vector<std::vector<int>> forward(shape.micro_batches), backward(shape.micro_batches);
  for (const PipelinePass& pass : passes)
    (pass.kind == PassKind::forward ? forward : backward)[pass.micro_batch].push_back(pass.stage);
  return std::ranges::all_of(forward, [](const auto& x) { return std::ranges::is_sorted(x); }) &&
         std::ranges::all_of(backward, [](const auto& x) {
           return std::ranges::is_sorted(x, std::ranges::greater());
         });
}

// The most gradients that `rank` has sent and that have not arrived, just after it has sent one.
// They arrive when the backward passes begin that need them.
int most_sent_gradients(const PipelineTimeline& timeline, const PipelineShape& shape, int rank) {
  const auto previous = static_cast<std::size_t>((rank + shape.ranks - 1) % shape.ranks);
  const auto arrival = [&](const PipelinePass& pass) {
    for (const TimedPass& t : timeline.ranks[previous]) {
      if (t.pass == PipelinePass{pass.stage - 1, PassKind::backward, pass.micro_batch})
        return t.begin;
    }
    return 0.0;
  };
  std::vector<double> arrivals;
  std::ptrdiff_t most = 0;
  for (const TimedPass& t : timeline.ranks[static_cast<std::size_t>(rank)]) {
    if (t.pass.kind == PassKind::forward || t.pass.stage == 0) continue;
    arrivals.push_back(arrival(t.pass));
    const auto later = [&](double time) { return time >= t.end; };
    most = std::max(most, std::ranges::count_if(arrivals, later));
  }
  return static_cast<int>(most);
}

// The schedules of PyTorch (test/oracle/pipeline_orders.py), with their shapes.
struct PeerSchedule {
  std::string kind;
  PipelineShape shape;
  PipelineSchedule schedule;
};
std::vector<PeerSchedule> peer_schedules() {
  std::istringstream text(read_file(root_dir() + "/test/oracle/fixtures/pipeline_orders.csv"));
  std::vector<PeerSchedule> all;
  for (std::string line; std::getline(text, line);) {
    PeerSchedule& peer = all.emplace_back();
    std::istringstream title(line);
    title >> peer.kind >> peer.shape.ranks >> peer.shape.micro_batches >> peer.shape.chunks;
    std::string rows;
    for (int rank = 0; rank < peer.shape.ranks && std::getline(text, line); ++rank)
      rows += line + "\r\n";
    peer.schedule = parse_pipeline_csv(rows, "peer");
  }
  return all;
}

// The complaint about a schedule in CSV for 2 ranks, 2 micro-batches and one chunk.
std::string complaint_about(const std::string& csv, PipelineShape shape = {2, 2, 1}) {
  return complaint([&] { check_schedule(parse_pipeline_csv(csv, "file.csv"), shape); });
}

}  // namespace

TEST_SUITE_BEGIN("pipeline_schedule");

TEST_CASE("every schedule is complete, within its slots and without deadlock; bubble (p-1)/(v m)") {
  const std::vector<PipelineShape> shapes = all_shapes();
  CHECK(shapes.size() == 318);
  for (const PipelineShape& shape : shapes) {
    CAPTURE(shape.ranks);
    CAPTURE(shape.micro_batches);
    CAPTURE(shape.chunks);
    const PipelineSchedule schedule = pipeline_schedule(shape);
    check_schedule(schedule, shape);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      CHECK(most_in_flight(schedule[rank]) == pipeline_slots(shape, rank));
      CHECK(chunks_in_order(schedule[rank], shape));
    }
    const double bubble = pipeline_timeline(schedule, shape, equal_costs).bubble();
    CHECK(bubble == doctest::Approx(static_cast<double>(shape.ranks - 1) / shape.passes()));
  }
}

TEST_CASE("no schedule has a deadlock under random costs, and no pass starts before its input") {
  std::mt19937 random(7);
  std::exponential_distribution<double> cost;
  const std::vector<PipelineShape> shapes = all_shapes();
  for (int draw = 0; draw < 1000; ++draw) {
    const PipelineShape& shape = shapes[random() % shapes.size()];
    const PipelineTimeline timeline = pipeline_timeline(
        pipeline_schedule(shape), shape, [&](const PipelinePass&) { return cost(random); });
    std::size_t passes = 0;
    for (const auto& rank : timeline.ranks) {
      passes += rank.size();
      for (std::size_t i = 1; i < rank.size(); ++i) CHECK(rank[i].begin >= rank[i - 1].end);
    }
    CHECK(passes == static_cast<std::size_t>(2 * shape.ranks * shape.passes()));
    CHECK(timeline.bubble() >= 0);
  }
}

TEST_CASE("a pipeline counts what its ranks keep, and its messages arrive in their order") {
  std::mt19937 random(8);
  std::exponential_distribution<double> cost;
  for (const PipelineShape& shape : all_shapes()) {
    if (shape.ranks == 1 || shape.passes() > 32) continue;
    CAPTURE(shape.ranks);
    CAPTURE(shape.micro_batches);
    CAPTURE(shape.chunks);
    const Pipeline pipeline = make_pipeline(shape, shape.stages() + 1);
    check_message_order(pipeline.schedule, shape);
    const PipelineTimeline timeline = pipeline_timeline(
        pipeline.schedule, shape, [&](const PipelinePass&) { return cost(random); });
    for (int rank = 0; rank < shape.ranks; ++rank) {
      CHECK(pipeline.slots(rank) == pipeline_slots(shape, rank));
      CHECK(pipeline.batches(rank) <= std::min(shape.micro_batches, pipeline.slots(rank)));
      CHECK(most_sent_gradients(timeline, shape, rank) <= pipeline.sent_gradients(rank));
      CHECK((pipeline.sent_gradients(rank) > 0) == (rank > 0 || shape.chunks > 1));
    }
    CHECK(pipeline.rank_of_layer(0) == 0);
    CHECK(pipeline.rank_of_layer(shape.stages()) == shape.ranks - 1);
  }
}

TEST_CASE(
    "stages in which nothing learns have no backward passes, gradients and kept activations") {
  for (const PipelineShape& shape : all_shapes()) {
    if (shape.ranks == 1 || shape.passes() > 32) continue;
    const std::int64_t layers = 2 * shape.stages();
    const Pipeline whole = make_pipeline(shape, layers);
    for (std::int64_t layer = -1; layer <= layers; ++layer) {
      CAPTURE(shape.ranks);
      CAPTURE(shape.micro_batches);
      CAPTURE(shape.chunks);
      CAPTURE(layer);
      const Pipeline pipeline = without_backward_below(whole, layer);
      const int first =
          static_cast<int>(std::clamp<std::int64_t>(layer / 2, 0, shape.stages() - 1));
      CHECK(pipeline.first_backward == first);
      const PipelineTimeline timeline = timeline_in_steps(pipeline.schedule, shape);
      for (int rank = 0; rank < shape.ranks; ++rank) {
        int backward = 0, sends = 0;
        for (int stage = rank; stage < shape.stages(); stage += shape.ranks) {
          backward += stage >= first ? 1 : 0;
          sends += stage > first ? 1 : 0;
        }
        const auto passes = timeline.ranks[static_cast<std::size_t>(rank)].size();
        CHECK(passes == static_cast<std::size_t>((shape.chunks + backward) * shape.micro_batches));
        CHECK((pipeline.sent_gradients(rank) > 0) == (sends > 0));
        CHECK(most_sent_gradients(timeline, shape, rank) <= pipeline.sent_gradients(rank));
        CHECK(pipeline.slots(rank) <= whole.slots(rank));
        if (backward == 0) CHECK(pipeline.slots(rank) == 1);
      }
    }
  }
}

TEST_CASE("neighbours that compute in another order are refused with rank and cell") {
  const PipelineShape shape{2, 2, 1};
  const auto order_of = [&](const std::string& csv) {
    return complaint([&] { make_pipeline(shape, 2, {}, parse_pipeline_csv(csv, "file.csv")); });
  };
  CHECK(order_of("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n").empty());
  CHECK(contains(order_of("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n"),
                 "rank 1, cell 1F1: rank 0 sends the input of 1F0 before"));
  CHECK(contains(order_of("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n"),
                 "rank 0, cell 0B0: rank 1 sends the input of 0B1 before"));
}

TEST_CASE("a timeline has the times of a hand-made one") {
  const PipelineShape shape{2, 2, 1};
  const PipelineTimeline t = pipeline_timeline(pipeline_schedule(shape), shape, equal_costs);
  const auto times = [&](int rank) {
    std::string text;
    for (const TimedPass& p : t.ranks[rank])
      text += p.pass.name() + " " + std::to_string(std::lround(p.begin)) + " ";
    return text;
  };
  CHECK(times(0) == "0F0 0 0F1 1 0B0 4 0B1 7 ");
  CHECK(times(1) == "1F0 1 1B0 2 1F1 4 1B1 5 ");
  CHECK(t.duration() == 9);
  CHECK(t.bubble() == doctest::Approx(0.5));
}

TEST_CASE("the order of passes is PyTorch's") {
  const std::vector<PeerSchedule> peers = peer_schedules();
  CHECK(peers.size() == 16);
  for (const PeerSchedule& peer : peers) {
    CAPTURE(peer.kind);
    CAPTURE(peer.shape.ranks);
    CAPTURE(peer.shape.micro_batches);
    CAPTURE(peer.shape.chunks);
    CHECK((pipeline_schedule(peer.shape) == peer.schedule));
  }
}

TEST_CASE("a schedule written as CSV is read back; idle steps are empty cells") {
  for (const PipelineShape& shape : all_shapes()) {
    const PipelineSchedule schedule = pipeline_schedule(shape);
    CHECK((parse_pipeline_csv(pipeline_csv(schedule, shape), "file") == schedule));
  }
  CHECK(pipeline_csv(pipeline_schedule({2, 2, 1}), {2, 2, 1}) ==
        "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n");
}

TEST_CASE("another order of passes is accepted") {
  CHECK(complaint_about("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n") == "");              // GPipe
  CHECK(complaint_about(" 0F1 , \"0F0\",0B1,,0B0\r\n1F1,1B1,1F0,1B0\r\n") == "");  // 1 before 0
}

TEST_CASE("a schedule that cannot run is refused with rank and cell") {
  const std::string last = "\n1F0,1B0,1F1,1B1\n";
  CHECK(contains(complaint_about("0F0,0F1,0B0" + last), "rank 0: 0B1 is missing"));
  CHECK(contains(complaint_about("0F0,0B1,0F1,0B0" + last),
                 "rank 0, cell 0B1: a backward pass before its forward pass"));
  CHECK(contains(complaint_about("0F0,0F1,0B0,0B0,0B1" + last), "rank 0, cell 0B0: the pass is"));
  CHECK(contains(complaint_about("0F0,1F1,0B0,0B1" + last),
                 "rank 0, cell 1F1: this rank does not have stage 1"));
  CHECK(contains(complaint_about("0F0,0F2,0B0,0B2" + last),
                 "rank 0, cell 0F2: allowed micro-batches: 0 to 1"));
  CHECK(contains(complaint_about("0F0,0F1,0B0,0B1\n"), "1 rows; allowed: 2"));
  // Rank 0 wants the gradient of 0 before it sends 1; rank 1 wants 1 first.
  const std::string deadlock = complaint_about("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  CHECK(contains(deadlock, "deadlock"));
  CHECK(contains(deadlock, "rank 0, cell 0B0 waits for 1B0"));
  CHECK(contains(deadlock, "rank 1, cell 1F1 waits for 0F1"));
}

TEST_CASE("a cell that is no supported pass is refused with file, rank and cell") {
  CHECK(contains(complaint_about("0F0,0F1\n1F0,,1I0\n"),
                 "file.csv: rank 1, cell 3: '1I0': action 'I' is not supported; allowed: F and B"));
  CHECK(contains(complaint_about("0F0,2SEND_F1\n"), "cell 2: '2SEND_F1': action 'SEND_F' is"));
  for (const std::string cell : {"F0", "0", "0F", "0F1x", "-1F0", "x", "99999999999F0", "0F0 1"}) {
    CAPTURE(cell);
    CHECK(contains(complaint_about(cell + "\n"), "file.csv: rank 0, cell 1: '" + cell + "'"));
  }
}

TEST_CASE("a page has a box for each pass of each timeline, its bubble, and needs no network") {
  const PipelineShape shape{2, 3, 1};
  const PipelineTimeline t = pipeline_timeline(pipeline_schedule(shape), shape, equal_costs);
  const std::string page =
      pipeline_page("a & b", shape, {{"computed", "steps", t}, {"measured <1>", "ms", t}});
  const auto count = [&](const std::string& part) {
    int boxes = 0;
    for (std::size_t at = 0; (at = page.find(part, at)) != page.npos; ++at) ++boxes;
    return boxes;
  };
  CHECK(count("<rect ") == 2 * 12);
  CHECK(count("1B2: ") == 2);
  CHECK(count("bubble 33.3%") == 2);
  CHECK(contains(page, "<h1>a &amp; b</h1>"));
  CHECK(contains(page, "<h2>measured &lt;1&gt;</h2>"));
  CHECK(count("http") == 0);
  for (const std::string label : {">1B2</text>", ">rank 1</text>", ">0</text>", ">6</text>"}) {
    CAPTURE(label);
    CHECK(count(label) == 2);
  }
}

TEST_CASE("the name of a narrow box is written upwards, and short passes widen the page") {
  const PipelineShape shape{2, 40, 1};
  const PipelineTimeline t = pipeline_timeline(
      pipeline_schedule(shape), shape,
      [](const PipelinePass& pass) { return pass.kind == PassKind::forward ? 1.0 : 6.0; });
  const std::string page = pipeline_page("narrow", shape, {{"computed", "ms", t}});
  for (const PipelinePass& pass : {t.ranks[0][3].pass, t.ranks[1].back().pass}) {
    CHECK(contains(page, ">" + pass.name() + "</text>"));
  }
  CHECK(contains(page, "rotate(-90"));
  const std::size_t size = page.find("\" width=\"");
  const double width = std::stod(page.substr(size + 9));
  CHECK(width > 13 * t.duration());  // pixels: the shortest pass, of 1 ms, has 13
}

TEST_CASE("a shape without a schedule is refused with the reason") {
  CHECK(contains(complaint([] {
                   pipeline_schedule({4, 6, 2});
                 }),
                 "allowed with several chunks: a multiple of the 4 ranks"));
  CHECK(contains(complaint([] { pipeline_schedule({2, 0, 1}); }), "allowed: 1 or more of each"));
}

TEST_SUITE_END();
