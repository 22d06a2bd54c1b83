#include "llmc/config/train_settings.h"

#include "llmc/base/error.h"
#include "llmc/config/choices.h"
#include "llmc/config/setting_text.h"

namespace llmc {

RunShape RunConfig::run_shape() const {
  OffloadPlaces offload = parse_offload(memory.offload);
  offload.optimizer_on_cpu = memory.optimizer_on == OptimizerOn::cpu;
  return {.B = batch.batch_size,
          .T = batch.seq_len,
          .training = training(),
          .attention = precision.attention,
          .recompute = memory.recompute,
          .recompute_blocks = memory.recompute_blocks,
          .offload = offload,
          .logits_rows = batch.logits_rows,
          .zero_stage = static_cast<int>(ranks.zero),
          .sequence_parallel = ranks.sequence_parallel,
          .qat = qat.mode,
          .pipeline = pipeline,
          .frozen = frozen,
          .adapters = adapter.shape,
          .base_codes = finetune.base_quant == BaseQuant::w8};
}

QuantizedPass RunConfig::quantized_pass(std::int64_t step) const {
  if (qat.mode == QatMode::none || (training() && step < qat.start)) return {};
  const bool activations = qat.mode == QatMode::w8a8;
  return {.weights = true,
          .activations = activations,
          .zero_points = activations && qat.zero_points == ZeroPoints::automatic};
}

Mesh RunConfig::mesh() const {
  const std::int64_t shard_ranks = ranks.shard_group == 0 ? data_ranks() : ranks.shard_group;
  return make_mesh(static_cast<int>(ranks.ranks), static_cast<int>(shard_ranks),
                   static_cast<int>(ranks.tp), static_cast<int>(ranks.pp));
}

PipelineShape RunConfig::pipeline_shape() const {
  return {.ranks = static_cast<int>(ranks.pp),
          .micro_batches = static_cast<int>(batch.grad_accum),
          .chunks = static_cast<int>(ranks.pp_chunks)};
}

std::vector<std::int64_t> RunConfig::stage_layers() const {
  std::vector<std::int64_t> layers;
  for (const std::string& text : ranks.pp_layers) {
    layers.push_back(0);
    require(parse_number(text, layers.back()) && layers.back() >= 1,
            "--pp-layers: '" + text + "' is not a whole number from 1 up",
            "give the number of layers of each stage, separated by commas, such as 3,4,3");
  }
  return layers;
}

DropoutRates RunConfig::dropout_rates() const {
  return {.embedding = dropout.embedding,
          .attention = dropout.attention,
          .residual = dropout.residual,
          .adapter = adapter.shape.dropout};
}

std::string TrainProgram::contradiction(const Request& request) {
  const auto& ranks = request.ranks;
  const bool plans = ranks.dry_run.value_or(false) || ranks.plan.value_or(false);
  // A resumed run may have recorded --mesh auto.
  const bool chooses = ranks.mesh == MeshChoice::automatic || request.output.resume.value_or(false);
  if (ranks.gpu_memory && !plans && !chooses) {
    return "--gpu-memory needs --dry-run, --plan or --mesh auto";
  }
  if (ranks.machine && !ranks.plan.value_or(false) && !chooses && !ranks.dump_schedule) {
    return "--machine needs --plan, --mesh auto or --dump-schedule";
  }
  if (!ranks.ranks || plans || ranks.print_mesh.value_or(false)) return {};
  const std::string number = std::to_string(*ranks.ranks);
  return "--ranks is for --dry-run, --plan and --print-mesh; scripts/run.sh -np " + number +
         " ./train_gpt2 ... starts " + number + (number == "1" ? " rank" : " ranks");
}

}  // namespace llmc
