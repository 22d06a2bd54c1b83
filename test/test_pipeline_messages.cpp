// Timelines of pipelines whose stages and messages take any time, against closed forms, against the
// longest paths of a graph of all passes and messages, and against the planned traffic.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "llmc/pipeline/pipeline.h"
#include "llmc/pipeline/timeline.h"
#include "llmc/plan/step_traffic.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;

// ---- longest paths -------------------------------------------------------------------------

struct Edge {
  int from, to;
};

// When each node of a graph without cycles ends, if it begins as soon as those before it have
// ended. Empty if the graph has a cycle.
std::vector<double> longest_paths(const std::vector<double>& durations,
                                  const std::vector<Edge>& edges) {
  const std::size_t n = durations.size();
  std::vector<std::vector<int>> after(n);
  std::vector<int> missing(n);
  for (const Edge& edge : edges) {
    after[edge.from].push_back(edge.to);
    ++missing[edge.to];
  }
  std::vector<int> ready;
  for (std::size_t i = 0; i < n; ++i) {
    if (missing[i] == 0) ready.push_back(static_cast<int>(i));
  }
  std::vector<double> begins(n), ends(n);
  std::size_t num_ended = 0;
  for (; !ready.empty(); ++num_ended) {
    const int node = ready.back();
    ready.pop_back();
    ends[node] = begins[node] + durations[node];
    for (const int next : after[node]) {
      begins[next] = std::max(begins[next], ends[node]);
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  return num_ended == n ? ends : std::vector<double>();
}

// A planted mistake: no backward pass of `stage` waits for its message; or each message takes its
// time twice.
struct Fault {
  int ignored_stage = -1;
  bool counts_links_twice = false;
};

// The graph of a schedule: a node per pass, and one per message. Messages take time.
class PassGraph {
 public:
  PassGraph(const PipelineSchedule& schedule, const PipelineShape& shape, const PassCosts& costs,
            const Fault& fault = {}) {
    for (const auto& order : schedule) {
      for (const PipelinePass& pass : order) {
        node_of_[key(pass)] = add(costs.pass(pass));
        const PipelinePass receiver = next_of(pass);
        if (shape.ranks > 1 && receiver.stage >= 0 && receiver.stage < shape.stages())
          message_of_[key(pass)] = add(costs.message * (fault.counts_links_twice ? 2 : 1));
      }
    }
    for (const auto& order : schedule) add_order(order, costs.overlaps_messages);
    for (const auto& order : schedule) {
      for (const PipelinePass& pass : order) add_input(pass, shape.stages() - 1, fault);
    }
    ends_ = longest_paths(durations_, edges_);
  }

  bool has_cycle() const { return ends_.empty(); }
  double pass_end(const PipelinePass& pass) const { return ends_[node_of_.at(key(pass))]; }
  double message_end(const PipelinePass& pass) const { return ends_[message_of_.at(key(pass))]; }
  std::size_t num_messages() const { return message_of_.size(); }

 private:
  using Key = std::tuple<int, PassKind, int>;
  static Key key(const PipelinePass& pass) { return {pass.stage, pass.kind, pass.micro_batch}; }
  static PipelinePass next_of(const PipelinePass& pass) {
    const int step = pass.kind == PassKind::forward ? 1 : -1;
    return {pass.stage + step, pass.kind, pass.micro_batch};
  }
  int add(double duration) {
    durations_.push_back(duration);
    return static_cast<int>(durations_.size()) - 1;
  }

  // A rank computes one pass after the other and sends on two links, one for each direction.
  void add_order(const std::vector<PipelinePass>& order, bool overlaps) {
    int computing = -1;
    std::map<PassKind, int> sending;
    for (const PipelinePass& pass : order) {
      const int node = node_of_[key(pass)];
      if (computing >= 0) edges_.push_back({computing, node});
      computing = node;
      const auto message = message_of_.find(key(pass));
      if (message == message_of_.end()) continue;
      edges_.push_back({node, message->second});
      if (sending.contains(pass.kind)) edges_.push_back({sending[pass.kind], message->second});
      sending[pass.kind] = message->second;
      if (!overlaps) computing = message->second;
    }
  }

  void add_input(const PipelinePass& pass, int last_stage, const Fault& fault) {
    const bool is_forward = pass.kind == PassKind::forward;
    if (is_forward && pass.stage == 0) return;
    if (!is_forward && pass.stage == last_stage) {
      edges_.push_back(
          {node_of_[{pass.stage, PassKind::forward, pass.micro_batch}], node_of_[key(pass)]});
      return;
    }
    if (!is_forward && pass.stage == fault.ignored_stage) return;
    const Key sender{pass.stage + (is_forward ? -1 : 1), pass.kind, pass.micro_batch};
    const auto message = message_of_.find(sender);
    edges_.push_back(
        {message == message_of_.end() ? node_of_[sender] : message->second, node_of_[key(pass)]});
  }

  std::vector<double> durations_, ends_;
  std::vector<Edge> edges_;
  std::map<Key, int> node_of_, message_of_;
};

// The largest difference between the ends of passes and messages of a timeline and of a graph.
double largest_difference(const PipelineTimeline& timeline, const PassGraph& graph) {
  double largest = 0;
  std::size_t num_messages = 0;
  for (const auto& rank : timeline.ranks) {
    for (const TimedPass& t : rank)
      largest = std::max(largest, std::abs(t.end - graph.pass_end(t.pass)));
  }
  for (const auto& rank : timeline.messages) {
    num_messages += rank.size();
    for (const TimedMessage& t : rank)
      largest = std::max(largest, std::abs(t.end - graph.message_end(t.pass)));
  }
  CHECK(num_messages == graph.num_messages());
  return largest;
}

// ---- random pipelines ----------------------------------------------------------------------

// Every pass takes a time of its own, as long as the object exists.
class RandomPipeline {
 public:
  explicit RandomPipeline(std::mt19937& random) {
    std::exponential_distribution<double> time;
    const int p = 2 + static_cast<int>(random() % 7), v = 1 + static_cast<int>(random() % 4);
    const int m = static_cast<int>(random() % 16) + 1;
    shape = {p, v == 1 ? m : p * (1 + m % 3), v};
    schedule = pipeline_schedule(shape);
    const double mean = std::vector{0.01, 0.3, 3.0}[random() % 3];
    message = mean * time(random);
    times_.resize(static_cast<std::size_t>(2 * shape.stages() * shape.micro_batches));
    for (double& t : times_) t = time(random);
  }

  PassCosts costs(bool overlaps) const {
    return {
        .pass =
            [this](const PipelinePass& pass) {
              const int row = 2 * pass.stage + (pass.kind == PassKind::forward ? 0 : 1);
              return times_[static_cast<std::size_t>(row * shape.micro_batches + pass.micro_batch)];
            },
        .message = message,
        .overlaps_messages = overlaps};
  }

  PipelineShape shape;
  PipelineSchedule schedule;
  double message = 0;

 private:
  std::vector<double> times_;
};

// All p <= 8, m <= 16 with one chunk; all p <= 8, v <= 4 and multiples m <= 4 p of p.
std::vector<PipelineShape> equal_shapes() {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) shapes.push_back({p, m, 1});
    for (int v = 2; v <= 4; ++v) {
      for (int multiple = 1; multiple <= 4; ++multiple) shapes.push_back({p, multiple * p, v});
    }
  }
  return shapes;
}

double duration_of(const RandomPipeline& pipeline, const PassCosts& costs) {
  return OrderedSchedule(pipeline.schedule, pipeline.shape).duration(costs);
}

bool equal_passes(const PipelineTimeline& a, const PipelineTimeline& b) {
  const auto equal = [](const TimedPass& x, const TimedPass& y) {
    return x.pass == y.pass && x.begin == y.begin && x.end == y.end;
  };
  return std::ranges::equal(a.ranks, b.ranks, [&](const auto& x, const auto& y) {
    return std::ranges::equal(x, y, equal);
  });
}

}  // namespace

TEST_SUITE_BEGIN("pipeline_messages");

TEST_CASE("with equal stages, a timeline takes (p-1)/(v m) more than its passes") {
  std::mt19937 random(11);
  std::exponential_distribution<double> time;
  for (const PipelineShape& shape : equal_shapes()) {
    CAPTURE(shape.ranks);
    CAPTURE(shape.micro_batches);
    CAPTURE(shape.chunks);
    const PipelineSchedule schedule = pipeline_schedule(shape);
    const auto duration = [&](double forward, double backward) {
      return pipeline_timeline(schedule, shape,
                               [&](const PipelinePass& pass) {
                                 return pass.kind == PassKind::forward ? forward : backward;
                               })
          .duration();
    };
    const int passes = shape.passes(), fill = shape.ranks - 1;
    // Sums of integers are exact.
    CHECK(duration(1, 2) == 3 * (passes + fill));
    const double f = time(random), b = time(random), ideal = passes * (f + b);
    // Each of the 2 (passes + fill) sums of the longest path is rounded by half an epsilon, and
    // few others are.
    const double bubble = static_cast<double>(fill) / passes;
    const double rounding =
        (passes + fill + 4) * std::numeric_limits<double>::epsilon() * (1 + bubble);
    CHECK(std::abs(duration(f, b) / ideal - 1 - bubble) <= rounding);
  }
}

TEST_CASE("passes and messages of any time end with the longest paths to them") {
  std::mt19937 random(12);
  for (int draw = 0; draw < 300; ++draw) {
    const RandomPipeline pipeline(random);
    for (const bool overlaps : {true, false}) {
      CAPTURE(draw);
      CAPTURE(overlaps);
      const PassCosts costs = pipeline.costs(overlaps);
      const PassGraph graph(pipeline.schedule, pipeline.shape, costs);
      REQUIRE(!graph.has_cycle());
      const PipelineTimeline timeline = pipeline_timeline(pipeline.schedule, pipeline.shape, costs);
      // Both add the same numbers, so they round equally.
      CHECK(largest_difference(timeline, graph) == 0);
      CHECK(duration_of(pipeline, costs) == timeline.duration());
    }
  }
}

TEST_CASE("the comparison with longest paths detects a missing dependency and a slower link") {
  std::mt19937 random(13);
  int missing = 0, slower = 0;
  for (int draw = 0; draw < 50; ++draw) {
    const RandomPipeline pipeline(random);
    const PassCosts costs = pipeline.costs(draw % 2 == 0);
    const auto difference = [&](const Fault& fault) {
      return largest_difference(pipeline_timeline(pipeline.schedule, pipeline.shape, costs),
                                PassGraph(pipeline.schedule, pipeline.shape, costs, fault));
    };
    const int stage = static_cast<int>(random() % (pipeline.shape.stages() - 1));
    CHECK(difference({}) == 0);
    missing += difference({.ignored_stage = stage}) > 0 ? 1 : 0;
    slower += difference({.counts_links_twice = true}) > 0 ? 1 : 0;
  }
  MESSAGE("of 50 pipelines: " << missing << " differ without the dependencies of a stage, "
                              << slower << " with links that count twice");
  CHECK(missing > 25);
  CHECK(slower == 50);
}

TEST_CASE("messages that take no time change no pass") {
  std::mt19937 random(14);
  for (int draw = 0; draw < 200; ++draw) {
    CAPTURE(draw);
    const RandomPipeline pipeline(random);
    const PipelineTimeline plain =
        pipeline_timeline(pipeline.schedule, pipeline.shape, pipeline.costs(true).pass);
    CHECK(plain.messages.empty());
    // The second time is too short to change a sum.
    for (const double message : {0.0, 1e-300}) {
      for (const bool overlaps : {true, false}) {
        PassCosts costs = pipeline.costs(overlaps);
        costs.message = message;
        const PipelineTimeline timeline =
            pipeline_timeline(pipeline.schedule, pipeline.shape, costs);
        CHECK(equal_passes(timeline, plain));
        CHECK(timeline.messages.empty() == (message == 0));
      }
    }
  }
}

TEST_CASE("a rank with slower links never ends earlier, and blocking ones cost more") {
  std::mt19937 random(15);
  for (int draw = 0; draw < 100; ++draw) {
    CAPTURE(draw);
    const RandomPipeline pipeline(random);
    PassCosts costs = pipeline.costs(true), blocking = pipeline.costs(false);
    const double overlapped = duration_of(pipeline, costs);
    CHECK(duration_of(pipeline, blocking) >= overlapped);
    costs.message *= 1.5;
    CHECK(duration_of(pipeline, costs) >= overlapped);
  }
}

TEST_CASE("the messages of a timeline have the bytes of the planned traffic") {
  constexpr std::int64_t kSize = 2;
  ModelConfig model{.vocabulary = 64, .heads = 2, .channels = 32};
  for (const PipelineShape& shape : equal_shapes()) {
    if (shape.ranks == 1 || shape.micro_batches > 8) continue;
    model.layers = shape.stages();
    const Pipeline whole = make_pipeline(shape, model.layers);
    for (const int first : {0, 1, shape.stages() / 2, shape.stages() - 1}) {
      CAPTURE(shape.ranks);
      CAPTURE(shape.micro_batches);
      CAPTURE(shape.chunks);
      CAPTURE(first);
      RunShape run{.B = 3, .T = 8};
      run.pipeline = without_backward_below(whole, first);
      REQUIRE(run.pipeline.first_backward == first);
      const PipelineTimeline timeline = pipeline_timeline(
          run.pipeline.schedule, shape,
          PassCosts{.pass = [](const PipelinePass&) { return 1; }, .message = 0.25});
      const Mesh mesh{.ranks = shape.ranks, .pipeline_ranks = shape.ranks};
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const auto& messages = timeline.messages[static_cast<std::size_t>(rank)];
        const auto sent = [&](PassKind kind) {
          return std::ranges::count_if(messages,
                                       [&](const auto& t) { return t.pass.kind == kind; });
        };
        std::int64_t activations = 0, gradients = 0;
        for (int stage = rank; stage < shape.stages(); stage += shape.ranks) {
          activations += stage + 1 < shape.stages() ? shape.micro_batches : 0;
          gradients += stage > first ? shape.micro_batches : 0;
        }
        CHECK(sent(PassKind::forward) == activations);
        CHECK(sent(PassKind::backward) == gradients);
        const std::int64_t bytes = kSize * run.B * run.T * model.channels;
        CHECK(std::ssize(messages) * bytes ==
              step_traffic(model, run, mesh, shape.micro_batches, kSize, rank).messages.message);
      }
    }
  }
}

TEST_CASE("messages of one direction follow each other; each begins after its pass") {
  std::mt19937 random(16);
  for (int draw = 0; draw < 100; ++draw) {
    CAPTURE(draw);
    const RandomPipeline pipeline(random);
    const PassCosts costs = pipeline.costs(draw % 2 == 0);
    const PipelineTimeline timeline = pipeline_timeline(pipeline.schedule, pipeline.shape, costs);
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      std::map<PassKind, double> free_from;
      for (const TimedMessage& t : timeline.messages[rank]) {
        const auto pass = std::ranges::find(timeline.ranks[rank], t.pass, &TimedPass::pass);
        CHECK(t.begin == std::max(pass->end, free_from[t.pass.kind]));
        CHECK(t.end == t.begin + costs.message);
        free_from[t.pass.kind] = t.end;
      }
    }
  }
}

TEST_SUITE_END();
