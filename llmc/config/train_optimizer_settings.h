// The settings of train_gpt2: steps and learning rate, optimizer, dropout, device and numbers.
#pragma once

#include <cstdint>
#include <utility>

#include "llmc/config/choices.h"
#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct ScheduleSettings {
  Value<std::int64_t> steps;
  Value<double> epochs;  // 0: `steps` sets the length of the run
  Value<double> peak;    // learning rate after warm-up
  Value<std::int64_t> warmup;
  Value<Decay> decay;
  Value<double> decay_fraction;  // wsd: fraction of the steps in which the rate falls
  Value<double> final_fraction;  // rate at the last step, as a fraction of the peak
};

template <template <class> class Value>
struct DropoutSettings {
  Value<double> all;  // default of the other three
  Value<double> embedding, attention, residual;
};

template <template <class> class Value>
struct PrecisionSettings {
  Value<Dtype> dtype;
  Value<double> loss_scale;         // fp16: loss scale of the first step
  Value<bool> stochastic_rounding;  // of fp32 master weights to bf16 or fp16
  Value<Attention> attention;
  Value<bool> tf32;
};

template <template <class> class Value>
struct DeviceSettings {
  Value<DeviceChoice> choice;
  Value<double> peak_tflops;  // peak that MFU is relative to; 0: from the data sheet, or measured
};

// The rows; their texts and rules are in train_optimizer_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> schedule_rows();
Settings<TrainProgram> optimizer_rows();
Settings<TrainProgram> dropout_rows();
Settings<TrainProgram> precision_rows();

}  // namespace llmc
