# One source, two targets: the host build runs kernels on CPU threads, the CUDA build on a GPU.
# `make help` lists targets and variables; scripts/README.md explains the scripts behind them.

# ---- choices --------------------------------------------------------------------------------
CXX ?= g++## C++20 compiler of the host build
CCACHE ?= $(shell command -v ccache)## compiles the same source for the host only once, if it is installed; empty: not used
DEPS ?= $(patsubst %/usr,%,$(wildcard deps/usr))## folder filled by scripts/setup.sh --prefix; ./deps is used if it exists
CUDA ?= auto## auto builds for CUDA if nvcc is found; 0 builds only for the host
CUDA_HOME ?=## CUDA toolkit to use; if empty, nvcc from PATH, then /usr/local/cuda
CUDA_ARCH ?=## GPU architectures, such as "80 90a"; if empty, those of the GPUs present, or PTX80 (PTX, compiled by the driver at the first start)
CUDA_OPTIMIZE ?= -O1## optimisation of the host code in CUDA programs; kernels have -O3, which only -Xcicc lowers
HOST_BUILD ?= 1## 0 builds only for CUDA, which needs no oneDNN
HOST_ARCH ?= -march=native## flag for the instruction set of the host build
SANITIZE ?=## address,undefined or thread: host build with these sanitizers, in a separate folder
DEVICE ?= host## host, cuda or ptx: what `make test` builds and runs; ptx runs what nvcc compiled on CPUs
PTX_ARCH ?= 90a## architecture whose PTX `make test DEVICE=ptx` runs: 90a or 80; if given, the only one of `make resources`
SUITE ?=## run only these test suites (* is a wildcard; those named *programs are the end-to-end tests)
TEST ?=## run only these test cases (* is a wildcard)
FILE ?=## build and run only these test files, such as test/test_activation.cu
MPI_HOME ?=## folder of an MPI library; if empty, Open MPI of Debian or Ubuntu
NCCL_HOME ?=## folder of NCCL; if empty, that of the CUDA toolkit or of the system
OP ?=## test or benchmark only these ops of dev/ops, such as "activation adamw"
CI_PARTS ?= asan tsan ptx cuda-tests## what `make every-build` compiles in addition to the programs and the host's tests
UPDATE ?= 0## 1: `make resources` rewrites its table of budgets
BENCH_FLAGS ?=## flags of every benchmark, such as "--shapes all --json"
NORES ?=## 1: `make bench` without a GPU omits the report of `make resources`
RUNS ?= 1000000## number of inputs per target of `make fuzz`
TARGET ?=## targets of `make fuzz`, such as "safetensors manifest"; if empty, all of test/fuzz
FUZZ_CXX ?= clang++## clang with libFuzzer, for `make fuzz`
TIDY ?= 0## 1: `make lint` also runs clang-tidy (minutes)

ifeq ($(filter host cuda ptx,$(DEVICE)),)
$(error DEVICE=$(DEVICE): allowed are host, cuda, and ptx)
endif
ifneq ($(and $(filter ptx,$(DEVICE)),$(SANITIZE)),)
$(error DEVICE=ptx SANITIZE=$(SANITIZE): DEVICE=ptx has checks of its own; leave out one of them)
endif

PROGRAMS := train_gpt2 infer_gpt2
TOOLS    := toy_language
# Tools that are linked in the top folder, next to the programs.
TOP_TOOLS := tokenize
# ---- settings of make -----------------------------------------------------------------------
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/bash
, := ,
# One job per core, unless -j is given.
ifeq ($(MAKELEVEL),0)
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
endif

# ---- libraries ------------------------------------------------------------------------------
ROOT     := $(abspath $(DEPS))
MULTIARCH := $(shell $(CXX) -print-multiarch 2>/dev/null)
# The library of matrix products on the host, as llmc/device/host/matrix_library.h chooses it.
MATRIX_LIBS := $(if $(filter x86_64-%,$(shell $(CXX) -dumpmachine 2>/dev/null)),-ldnnl -lgomp,-lopenblas)
# Debian keeps each build of OpenBLAS in a folder of its own, and the installation of the package
# links to one of them. A folder into which packages were only unpacked has no such links.
DEPS_INCLUDES := $(if $(ROOT),$(ROOT)/usr/include $(ROOT)/usr/include/$(MULTIARCH) \
                   $(ROOT)/usr/include/$(MULTIARCH)/openblas-pthread)
DEPS_LIBS     := $(if $(ROOT),$(ROOT)/usr/lib/$(MULTIARCH)/openblas-pthread \
                   $(ROOT)/usr/lib/$(MULTIARCH))
INCLUDES  := -I. $(addprefix -isystem ,$(DEPS_INCLUDES))
IO_LIBS   := -lpcre2-8 -lxxhash -lz -lzstd
# MPI connects ranks. Without mpi.h, TCP does, and the tests of MPI are not built.
MPI_TESTS   := mpi_ranks mpi_training nccl_ranks lost_ranks
MPI_INCLUDE := $(patsubst %/mpi.h,%,$(firstword $(wildcard $(addsuffix /mpi.h,\
                 $(or $(MPI_HOME:%=%/include),$(ROOT:%=%/usr/lib/$(MULTIARCH)/openmpi/include) /usr/lib/$(MULTIARCH)/openmpi/include)))))
ifneq ($(and $(MPI_HOME),$(if $(MPI_INCLUDE),,missing)),)
$(error MPI_HOME=$(MPI_HOME): $(MPI_HOME)/include/mpi.h is missing; give the folder that has include/mpi.h and lib)
endif
MPI_FLAGS   := $(if $(MPI_INCLUDE),-DLLMC_MPI -DOMPI_SKIP_MPICXX -isystem $(MPI_INCLUDE))
# The libraries that libmpi loads name a folder to search, in which they are not where they were only
# unpacked, so programs name these libraries themselves. nvcc does not take a file called .so.40.
MPI_DEPS    := $(if $(ROOT),$(wildcard $(addprefix $(ROOT)/usr/lib/$(MULTIARCH)/,libopen-*.so.* libhwloc.so.* libevent_core*.so.*)))
MPI_LIBS    := $(if $(MPI_INCLUDE),$(MPI_HOME:%=-L%/lib -Xlinker -rpath=%/lib) -lmpi)
ifneq ($(and $(MPI_DEPS),$(findstring $(ROOT)/,$(MPI_INCLUDE))),)
MPI_LIBS    := -L$(ROOT)/usr/lib/$(MULTIARCH)/openmpi/lib -Xlinker -rpath=$(ROOT)/usr/lib/$(MULTIARCH) \
               -Xlinker --disable-new-dtags -lmpi $(addprefix -Xlinker ,--no-as-needed $(MPI_DEPS) --as-needed)
endif
# dlopen and shm_open are in libc since glibc 2.34; in older versions they are in libdl and librt.
SYSTEM_LIBS := -ldl -lrt
HOST_LIBS := $(addprefix -L,$(DEPS_LIBS)) $(addprefix -Wl$(,)-rpath$(,),$(DEPS_LIBS)) \
             $(if $(ROOT),-Wl$(,)--disable-new-dtags) $(MATRIX_LIBS) $(IO_LIBS) $(SYSTEM_LIBS)
CUDA_ONLY := $(filter 0,$(HOST_BUILD))
SETUP     := scripts/setup.sh $(if $(CUDA_ONLY),--gpu) $(if $(ROOT),--prefix $(ROOT))

# Programs unpacked in DEPS (python3, gnuplot) are used if the machine has none.
ifneq ($(ROOT),)
export DEPS := $(ROOT)
export PATH := $(PATH):$(ROOT)/usr/bin
endif

# ---- the host target ------------------------------------------------------------------------
# Builds that check something take the library, which has no kernels, and the oracle from the plain one.
PLAIN     := $(if $(SANITIZE)$(filter ptx,$(DEVICE)),,yes)
ifeq ($(DEVICE),ptx)
# The host's own code of kernels never runs, so it is not optimised.
HOST      := build/host-ptx
OPTIMIZE  := -O0 $(HOST_ARCH)
TEST_OPTIMIZE := -O0 -g1 $(HOST_ARCH)
TEST_CALLER_OPTIMIZE = $(if $(filter %ops.cu,$<),-O1,-O0) -g1 $(HOST_ARCH)
else ifeq ($(SANITIZE),)
HOST      := build/host
# Kernels need two parts of -O3: loops in SIMD, and short loops unrolled completely, so that arrays stay in
# registers. The rest of -O3 takes a quarter of the compilation and saves nothing. errno after std::sqrt is
# not used, and it prevents the vectorisation of loops with std::sqrt.
OPTIMIZE  := -O2 -ftree-vectorize -fvect-cost-model=dynamic -fpeel-loops -fno-math-errno $(HOST_ARCH)
TEST_OPTIMIZE := -O2 -g1 -fno-math-errno $(HOST_ARCH)
# A test's own code runs only briefly; the kernels it calls are compiled at -O2. Tests of ops compare large
# arrays; other tests spend less time running at -O0 than compiling at -O1.
TEST_CALLER_OPTIMIZE = $(if $(filter %ops.cu,$<),-O1,-O0) -g1 -fno-math-errno $(HOST_ARCH)
else
HOST      := build/host-$(if $(findstring thread,$(SANITIZE)),tsan,asan)
CHECK     := -g1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize-recover=all
OPTIMIZE  := -O1 $(CHECK)
# Compiling takes most of the time, and shapes are tiny. Kernels run much longer under the race
# checker.
TEST_OPTIMIZE := $(if $(findstring thread,$(SANITIZE)),-O1,-O0) $(CHECK)
# A test's own code is not checked for undefined behaviour, which takes 40% of its compilation.
TEST_CALLER_OPTIMIZE := -O0 $(subst $(,)undefined,,$(CHECK))
endif
# doctest's assertions compile faster if they do not catch exceptions of their expressions.
DOCTEST   := -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS
HOST_CXX  := $(strip $(CCACHE) $(CXX) -std=c++20 -Wall -Wextra -pthread $(if $(filter ptx,$(DEVICE)),-DLLMC_COMPILED_KERNELS) $(INCLUDES))

# ccache compares precompiled headers by their content only if it may.
export CCACHE_SLOPPINESS := pch_defines,time_macros

# ---- the library ----------------------------------------------------------------------------
# Code without kernels (files, settings, formats, texts) is in .cpp files. Programs and tests of both
# targets link it, so that it is compiled once per kind of flags, several files of a folder at a time.
LIBRARY         := $(HOST)/libllmc.a
EXECUTOR_FILES  := $(wildcard llmc/device/host/*.cpp)
LIBRARY_FILES   := $(filter-out $(if $(MPI_INCLUDE),,llmc/comm/mpi_%) $(EXECUTOR_FILES),$(sort $(shell find llmc -name '*.cpp')))
LIBRARY_UNITS   := $(shell scripts/library_units.sh build/units $(LIBRARY_FILES))
# Sanitizers check kernels, readers of malformed input, and code that threads share, such as the tables of
# settings, which the first rank makes for all. Other code is linked as it is.
NOT_CHECKED     := $(if $(filter ptx,$(DEVICE)),%) $(if $(SANITIZE),config_command_% eval_% infer_% pipeline_% train_%) $(if $(findstring thread,$(SANITIZE)),tokenize_%)
PLAIN_UNITS     := $(filter $(NOT_CHECKED),$(LIBRARY_UNITS))
CHECKED_UNITS   := $(filter-out $(PLAIN_UNITS),$(LIBRARY_UNITS))
LIBRARY_OBJECTS := $(CHECKED_UNITS:%=$(HOST)/units/%.o) $(PLAIN_UNITS:%=build/host/units/%.o)
LIBRARY_FLAGS   := $(if $(SANITIZE),-O0 $(CHECK),-O1 $(HOST_ARCH))

# Kernels with their launchers, and the classes of the model, are compiled once per target and kind of
# flags. They come first in lists of prerequisites (the longest jobs of a build start first) and in
# links, so that inline functions are from the objects with more optimisation.
DEVICE_FILES   := $(sort $(shell find llmc -name '*.cu'))
# The host multiplies rows in its own way; only tests run the GPU's kernels there. Those that nvcc compiled
# are part of all programs.
ONLY_TESTED    := $(if $(filter ptx,$(DEVICE)),,llmc/ops/gemm/invariant_gemm_kernels.cu)
EXECUTOR       := $(HOST)/executor.o
# The model and the code above it have no kernels, but streams and device memory, which depend on the target.
# Only smoothing computes on the host for long, so it is compiled as kernels are.
CODE_UNITS     := infer train model
FILES_infer    := $(filter llmc/infer/% llmc/quantize/% llmc/eval/%,$(DEVICE_FILES))
FILES_train    := $(filter llmc/comm/% llmc/models/% llmc/plan/% llmc/train/%,$(DEVICE_FILES))
FILES_model    := $(filter llmc/instances/%,$(DEVICE_FILES))
LONG_LOOPS     := llmc/quantize/smoothing.cu
HOST_CODE_FILES := $(filter-out $(LONG_LOOPS),$(foreach u,$(CODE_UNITS),$(FILES_$(u))))
HOST_UNITS     := $(CODE_UNITS:%=$(HOST)/code/%.o)
HOST_CODE      := $(LONG_LOOPS:%.cu=$(HOST)/%.o) $(HOST_UNITS)
HOST_KERNEL_FILES := $(filter-out $(ONLY_TESTED) $(LONG_LOOPS) $(HOST_CODE_FILES),$(DEVICE_FILES))
HOST_KERNELS   := $(HOST_KERNEL_FILES:%.cu=$(HOST)/%.o) $(EXECUTOR)
TEST_KERNELS   := $(HOST_KERNELS) $(patsubst %.cu,$(HOST)/%.o,$(ONLY_TESTED))
# nvcc compiles several files at a time: it reads the headers of a file three times.
KERNEL_UNITS   := flash_attention_backward flash_attention_forward gemm attention ops
# Loops of the host next to a GPU, which are compiled as those of kernels on the host.
CPU_UNITS      := cpu
FILES_cpu      := llmc/ops/optimizer/adamw_on_cpu.cu
CUDA_UNITS     := $(CODE_UNITS) $(KERNEL_UNITS) $(CPU_UNITS)
FILES_gemm     := $(filter llmc/ops/gemm/%,$(DEVICE_FILES))
FILES_flash_attention_backward := llmc/ops/attention/flash_attention_backward.cu
FILES_flash_attention_forward  := llmc/ops/attention/flash_attention_forward.cu
FILES_attention := $(filter-out $(FILES_flash_attention_backward) $(FILES_flash_attention_forward),$(filter llmc/ops/attention/%,$(DEVICE_FILES)))
FILES_ops      := $(filter-out $(foreach u,$(CUDA_UNITS),$(FILES_$(u))),$(DEVICE_FILES))
CUDA_OBJECTS   := $(CUDA_UNITS:%=build/cuda/units/%.o)
DECLARE        := -include llmc/instances/instances.h
KERNEL_FLAGS   := $(if $(SANITIZE),$(TEST_OPTIMIZE),$(OPTIMIZE))

# ---- the CUDA target ------------------------------------------------------------------------
CUDA_OUT := build/cuda
NVCC :=
ifneq ($(CUDA),0)
ifneq ($(and $(CUDA_HOME),$(if $(wildcard $(CUDA_HOME)/bin/nvcc),,missing)),)
$(error CUDA_HOME=$(CUDA_HOME): $(CUDA_HOME)/bin/nvcc is missing; give the folder of a CUDA toolkit, or CUDA=0)
endif
NVCC := $(firstword $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc)) \
          $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
endif
TOOLKIT := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
# A compiler is not enough: the GEMMs need cuBLASLt.
ifneq ($(NVCC),)
ifeq ($(wildcard $(TOOLKIT)/include/cublasLt.h $(TOOLKIT)/targets/*/include/cublasLt.h),)
ifeq ($(MAKELEVEL),0)
$(info $(NVCC) exists, but cublasLt.h is missing (package libcublas-dev of the same CUDA): building for the host only)
endif
NVCC :=
endif
endif
ifneq ($(NVCC),)
# 8.0 -> 80, 9.0 -> 90a: from Hopper on, the suffix enables instructions of only that generation.
GPUS_FOUND := $(shell nvidia-smi --query-gpu=compute_cap --format=csv$(,)noheader 2>/dev/null | \
  sort -u | awk -F. '/^[0-9]+\.[0-9]+$$/ {print $$1 $$2 ($$1 >= 9 ? "a" : "")}')
# A GPU newer than the toolkit gets the list with PTX below, which its driver compiles. The
# toolkit's own list has no suffixes.
CODES_KNOWN := $(if $(GPUS_FOUND),$(shell $(NVCC) --list-gpu-code))
GPUS_HERE  := $(if $(filter-out $(CODES_KNOWN),$(patsubst %,sm_%,$(GPUS_FOUND:a=))),,$(GPUS_FOUND))
# Without a GPU the programs are compiled only to PTX. The driver of a later machine's GPU compiles
# it at the first start and caches the result.
ARCHS      := $(or $(CUDA_ARCH),$(GPUS_HERE),$(if $(GPUS_FOUND),80+PTX 90a,PTX80))
# Without a GPU, tests only need to show that they compile: to PTX, which the driver of any later
# GPU compiles. `make resources` shows the results of ptxas for the kernels.
TEST_ARCHS    := $(or $(CUDA_ARCH),$(GPUS_HERE),$(if $(GPUS_FOUND),80+PTX,PTX80))
TEST_NVCC_OPT := $(if $(filter PTX%,$(TEST_ARCHS)),-O0 -Xcicc -O0,-O2)
# 90a: only for that GPU; 80+PTX: for it, and for later ones by PTX; PTX80: for all these by PTX.
code_for = $(if $(filter PTX%,$(1)),compute_$(1:PTX%=%),$(if $(filter %+PTX,$(1)),[compute_$(1:+PTX=)$(,)sm_$(1:+PTX=)],sm_$(1)))
gencode  = $(foreach a,$(1),-gencode arch=compute_$(patsubst PTX%,%,$(a:+PTX=)),code=$(call code_for,$(a)))
# Without CXX=, nvcc chooses the host compiler, or NVCC_CCBIN does.
# Host code of the CUDA programs reads and writes files: -O1 (CUDA_OPTIMIZE) is enough for it.
# 20050: nvcc ignores `inline` on a kernel; with g++ it makes a proper inline function.
NVCC_CXX  := $(NVCC) $(if $(filter-out default,$(origin CXX)),-ccbin $(CXX)) -std=c++20 \
             -Xcompiler=-Wall -diag-suppress 20050 --expt-relaxed-constexpr --threads 2 $(INCLUDES)
CUDA_LIBS := $(addprefix -L,$(DEPS_LIBS)) $(addprefix -Xlinker -rpath=,$(DEPS_LIBS)) \
             $(if $(ROOT),-Xlinker --disable-new-dtags) \
             $(if $(filter-out /usr,$(TOOLKIT)),-Xlinker -rpath=$(TOOLKIT)/lib64) \
             -lcublasLt -lcublas $(IO_LIBS) $(SYSTEM_LIBS)
# NCCL connects the GPUs of several ranks. Programs for CUDA are built without it if its header or its
# library is missing.
NCCL_PLACES  := $(or $(NCCL_HOME),$(TOOLKIT) /usr/local /usr)
NCCL_INCLUDE := $(patsubst %/nccl.h,%,$(firstword $(wildcard $(NCCL_PLACES:%=%/include/nccl.h))))
# The Python wheel of NCCL has only libnccl.so.2.
NCCL_FILE    := $(firstword $(wildcard $(foreach n,libnccl.so libnccl.so.2,$(foreach f,lib lib64 lib/$(MULTIARCH),$(NCCL_PLACES:%=%/$f/$n)))))
NCCL_LIB     := $(patsubst %/,%,$(dir $(NCCL_FILE)))
ifneq ($(and $(NCCL_HOME),$(if $(and $(NCCL_INCLUDE),$(NCCL_LIB)),,missing)),)
$(error NCCL_HOME=$(NCCL_HOME): $(if $(NCCL_INCLUDE),lib/libnccl.so,include/nccl.h) is missing; give the folder that has include/nccl.h and lib)
endif
ifneq ($(and $(NCCL_INCLUDE),$(NCCL_LIB)),)
NCCL_FLAGS := -DLLMC_NCCL $(addprefix -isystem ,$(filter-out /usr/include,$(NCCL_INCLUDE)))
NCCL_LIBS  := -L$(NCCL_LIB) $(addprefix -Xlinker -rpath=,$(filter-out /usr/lib%,$(NCCL_LIB))) -l$(if $(filter %.2,$(NCCL_FILE)),:libnccl.so.2,nccl)
endif
endif

# ---- what nvcc compiled, on CPUs ------------------------------------------------------------
# Each instance unit is compiled to PTX once per architecture. `make test DEVICE=ptx` runs it (test/ptx), and
# `make resources` assembles it. Unit `launches` has the kernels that only benchmarks launch. Those that only
# tests launch, in product_instances and in the tests' own files, have no budgets.
PTX         := build/ptx/$(PTX_ARCH)
PTX_UNITS   := gemm launches $(filter-out gemm,$(KERNEL_UNITS))
KERNEL_TESTS := $(patsubst test/%.cu,%,$(shell grep -l __global__ test/test_*.cu))
PTX_FILES   := $(patsubst %,$(PTX)/%.ptx,product_instances $(KERNEL_TESTS) $(PTX_UNITS))
# Compiled also without -lineinfo, for the test that this changes no instruction. It is the shortest job.
UNLINED     := flash_attention_forward
RESOURCE_ARCHS := $(or $(filter-out PTX% %PTX,$(CUDA_ARCH)),$(if $(filter file,$(origin PTX_ARCH)),80 90a,$(PTX_ARCH)))
PTXAS_REPORTS  := $(foreach a,$(RESOURCE_ARCHS),$(PTX_UNITS:%=build/ptx/$a/%.ptxas))
EXECUTE     := $(if $(filter ptx,$(DEVICE)),$(patsubst test/ptx/%.cpp,$(HOST)/ptx/%.o,$(wildcard test/ptx/*.cpp)))
# Its suites: those of kernels. Cases of all ops, and what only their own files test.
PTX_SUITES  := ops activation attention bias_gradient cache_attention classifier embedding infer_ops layernorm matmul optimizer \
                 device device_block device_graph device_launcher device_mma device_overlap \
                 quantize invariant_gemm invariant_gemm_int8 invariant_gemm_heads invariant_gemm_kernels sampling \
                 invariant_gemm_int8_kernels dropout stochastic_rounding

ifneq ($(CUDA_ONLY),)
ifeq ($(NVCC),)
$(error HOST_BUILD=0 leaves nothing to build: nvcc or cublasLt.h is missing, or CUDA=0 was given)
endif
endif

# ---- ops ------------------------------------------------------------------------------------
# An op is described once, by the cases in dev/ops/NAME.h: tests check them, bench_NAME times them,
# and `make resources` compiles and launches them.
ALL_OPS := $(basename $(notdir $(wildcard dev/ops/*.h)))
# Sanitizers check these ops in their own test files only, because compiling their cases takes minutes.
LARGE_OPS := $(if $(SANITIZE),invariant_gemm_int8 invariant_gemm)
# These ops had other names once.
override OP := $(sort $(patsubst gelu,activation,$(patsubst row_product,invariant_gemm,$(patsubst code_product,invariant_gemm_int8,$(OP)))))
OPS     := $(or $(OP),$(filter-out $(LARGE_OPS),$(ALL_OPS)))
ifneq ($(filter-out $(ALL_OPS),$(OPS)),)
$(error OP=$(OP): there is no dev/ops/$(firstword $(filter-out $(ALL_OPS),$(OPS))).h; allowed: $(ALL_OPS))
endif
# Their tests are one file.
ifneq ($(OP),)
override FILE := $(or $(FILE),test/test_ops.cu)
endif
# SUITE builds only what its suites need: the files that have them, or, for suites in Python, the programs.
SUITE_NEEDS := $(if $(FILE),,$(if $(SUITE),$(shell scripts/suite_files.sh '$(SUITE)')))
NO_BINARY   := $(filter programs,$(if $(filter-out programs,$(SUITE_NEEDS)),,$(SUITE_NEEDS)))
ifeq ($(filter programs,$(SUITE_NEEDS)),)
override FILE := $(or $(FILE),$(SUITE_NEEDS))
OPS := $(or $(if $(SUITE_NEEDS),$(filter $(subst *,%,$(SUITE)),$(OPS))),$(OPS))
endif

# ---- targets to build -----------------------------------------------------------------------
MAINS      := $(basename $(wildcard $(addsuffix .cu,$(PROGRAMS))))
HOST_BINS  := $(if $(CUDA_ONLY),,$(addprefix $(HOST)/,$(MAINS) $(basename $(notdir $(wildcard $(patsubst %,data/%.cpp,$(TOOLS) $(TOP_TOOLS)))))))
CUDA_BINS  := $(if $(NVCC),$(addprefix $(CUDA_OUT)/,$(MAINS)))
TEST_FILES := $(or $(FILE),$(wildcard test/test_*.cu test/test_*.cpp))
# Tests in .cpp files are about text and files and launch no kernels. test/test_host_* are about the
# host executor itself, so they do not run on a GPU. Sanitizers check kernels, each of them alone
# and in one model, ranks, threads, and (bad accesses) readers with malformed inputs. A file named by FILE is always checked.
MODEL_TESTS := $(addprefix test/test_,$(addsuffix .cu,chat_model family scheduler scheduler_kv8 checkpoint_texts comparison \
                 check_links document_mask evaluation infer_decoder loss_scale memory_modes not_finite offload_plan pipeline_plan qat qat_deployment rank_state smoothing tensor_plan \
                 tensor_state tour trainable_ranks training \
                 $(if $(findstring thread,$(SANITIZE)),qat_ranks scheduler_int8 text_classifier trainable)))
SANITIZED   := $(or $(FILE),$(filter-out $(MODEL_TESTS),$(filter %.cu test/test_host_% test/test_worker_pool.cpp test/test_task_thread.cpp test/test_tcp_hub.cpp test/test_tcp_transport.cpp \
                 $(if $(findstring thread,$(SANITIZE)),,test/test_fuzz_%),$(TEST_FILES))))
TEST_FOLDER := test$(if $(FILE),-alone)
# Test files with similar headers are compiled together: most of the time is spent on functions that
# each file would otherwise compile again. A file in no group is compiled alone.
GROUP_train.cu       := adapters background_save base_codes chat_model check_links checkpoint_texts comparison disk_offload document_mask fit_hint dropout evaluation finite_state loss_scale memory_modes offload_order not_finite offload_plan qat qat_deployment qat_ranks rank_state run_data stochastic_rounding tensor_parallel tensor_plan pipeline_parallel pipeline_plan pipeline_state tensor_state text_classifier trainable trainable_ranks tour training zero
GROUP_model.cu       := family merge_adapter scheduler scheduler_int8 scheduler_kv8 device device_block device_graph device_launcher device_mma device_overlap infer_decoder model parameters profiler quantized_files read_ahead smoothing
GROUP_ops.cu         := activation attention bias_gradient cache_attention classifier invariant_gemm_int8_kernels comm tcp_world embedding infer_ops layernorm matmul optimizer quantize invariant_gemm invariant_gemm_int8 invariant_gemm_heads invariant_gemm_kernels sampling
GROUP_checkpoint.cpp := adapter_faults adapter_files adapter_peft checkpoint checkpoint_damage checkpoint_retention checkpoint_slices classifier_files huggingface llmc_model_file stored_names \
                        megatron_file safetensors safetensors_damage tokenizer_files
GROUP_text.cpp       := added_tokens base_log batches classification_metrics compressed_file conversations data_sources documents eval_files infer_text input_file labelled_texts lines near_duplicates padded_batches prompt_list race \
                        stop_text token_cache token_file tokenizer tokenizer_peers
GROUP_rest.cpp       := bench_report chrome_trace control eta file fuzz_corpus host_codes host_executor host_exponential host_floats host_matrix_library \
                        memory_limits worker_pool infer_settings interruption io_queue log_lock machines mesh mfu oracle oracle_family peak pipeline_messages pipeline_schedule pipeline_settings pipeline_stages planner \
                        rank_agreement readable_text recorded_settings resource_usage run_end run_log schedule scratch_faults scratch_file settings shard_layout slow_ranks suggestions task_thread tcp_bootstrap tcp_hub tcp_transport text_notices toy_language training_history words
# The one that compiles longest comes first.
GROUPS := $(if $(FILE),,rest.cpp train.cu model.cu checkpoint.cpp text.cpp ops.cu)
# DEVICE=ptx finds kernels by their names, so files that have some are not put into another namespace.
members = $(filter-out $(if $(filter ptx,$(DEVICE)),$(KERNEL_TESTS:%=test/%.cu)),$(filter $(patsubst %,test/test_%$(suffix $(1)),$(GROUP_$(1))),$(2)))
# objects_of FILES: the objects of groups that have one of the files, and of files in no group.
objects_of = $(foreach g,$(GROUPS),$(if $(call members,$(g),$(1)),group_$(g).o)) \
  $(patsubst test/%,%.o,$(filter-out $(foreach g,$(GROUPS),$(call members,$(g),$(1))),$(1)))
HOST_FILES := $(if $(filter ptx,$(DEVICE)),$(or $(FILE),$(filter $(PTX_SUITES:%=test/test_%.cu) test/test_ptx_%,$(TEST_FILES))),$(if $(SANITIZE),$(SANITIZED),$(filter-out test/test_ptx_%,$(TEST_FILES))))
CUDA_FILES := $(filter %.cu,$(TEST_FILES))
# Kernels of which no program on the host has an instance. The files of their tests name them.
NEEDS_PRODUCTS := $(if $(FILE),$(shell grep -lE 'invariant_gemm|LLMC_OPS' $(FILE)),yes)
PRODUCTS   := $(if $(NEEDS_PRODUCTS),product_instances.cu.o)
# The definitions of ops in fp64 take most of the time of many tests. They are tested, not checked by sanitizers.
ORACLE     := build/host/oracle.o
HOST_TESTS := $(if $(NEEDS_PRODUCTS),$(TEST_KERNELS),$(HOST_KERNELS)) $(HOST_CODE) $(ORACLE) $(addprefix $(HOST)/$(TEST_FOLDER)/,$(call objects_of,$(HOST_FILES)) $(PRODUCTS) main.cpp.o)
CUDA_TESTS := $(CUDA_OBJECTS) $(ORACLE) $(addprefix $(CUDA_OUT)/$(TEST_FOLDER)/,$(call objects_of,$(CUDA_FILES)) $(PRODUCTS)) $(HOST)/$(TEST_FOLDER)/main.cpp.o

.PHONY: all programs test-programs links test test-long test-sanitize demo host-only resources lint headers \
        format clean help FORCE

all: links ## build every program, for the host and, if nvcc is found, for CUDA (the default)

programs: $(HOST_BINS) $(CUDA_BINS)

# ./train_gpt2 is the CUDA build if there is one; without a GPU it starts the host build itself.
links: programs
	@for p in $(MAINS); do \
	  for target in $(if $(CUDA_ONLY),,host) $(if $(NVCC),cuda); do \
	    ln -sfn build/$$target/$$p $$p; \
	  done; \
	done
	@$(if $(CUDA_ONLY),,for p in $(TOP_TOOLS); do ln -sfn build/host/$$p $$p; done)

# ---- compiling ------------------------------------------------------------------------------
# $(call write,COMMAND) writes the target with what the command prints. The target changes only if its
# content does. Builds with sanitizers are makes of their own, which may write the same file at the same time.
define write
	@mkdir -p $(@D)
	@new=$@.$$$$; $(1) > $$new && { cmp -s $$new $@ && rm $$new || mv $$new $@; }
endef

# Writes a file that includes others.
include_files = $(call write,printf '\043include "%s"\n' $(1))

# Writes a file that changes if the commands do: other flags, another compiler.
record = $(call write,printf '%s\n' '$(1)')

$(HOST)/commands: FORCE
	$(call record,$(HOST_CXX) $(OPTIMIZE) $(TEST_OPTIMIZE) $(TEST_CALLER_OPTIMIZE) $(HOST_LIBS) $(MPI_FLAGS) $(MPI_LIBS) $(shell $(CXX) -dumpfullversion))
$(CUDA_OUT)/commands: FORCE
	$(call record,$(NVCC_CXX) $(CUDA_OPTIMIZE) $(ARCHS) $(CUDA_LIBS) $(MPI_FLAGS) $(MPI_LIBS) $(NCCL_FLAGS) $(NCCL_LIBS))
$(CUDA_OUT)/test-commands: FORCE
	$(call record,$(NVCC_CXX) $(TEST_NVCC_OPT) $(TEST_ARCHS) $(CUDA_LIBS))

# $(call list_ops,NAMES) writes a header that includes the cases of ops and lists the ops: LLMC_OPS(X)
# is X(NAME) for each.
list_ops = $(call write,{ printf '\043include "dev/ops/%s.h"\n' $(1); printf '\043define LLMC_OPS(X)'; printf ' X(%s)' $(1); echo; })

$(HOST)/$(TEST_FOLDER)/ops.h $(CUDA_OUT)/$(TEST_FOLDER)/ops.h: FORCE
	$(call list_ops,$(OPS))
$(ALL_OPS:%=build/ops/%.h): build/ops/%.h: dev/ops/%.h
	$(call list_ops,$*)
# The file that reads such a list gets it by this flag.
with_ops = $(if $(filter %/test_ops.cu.o,$@),-include $(@D)/ops.h)
$(HOST)/$(TEST_FOLDER)/test_ops.cu.o: $(HOST)/$(TEST_FOLDER)/ops.h
$(CUDA_OUT)/$(TEST_FOLDER)/test_ops.cu.o: $(CUDA_OUT)/$(TEST_FOLDER)/ops.h

# All missing packages are reported together, before the first compilation.
CHECKED_WITH := $(if $(CUDA_ONLY),-gpu)$(subst /,_,$(ROOT))
CHECKED      := build/checked-build$(CHECKED_WITH)
CHECKED_TEST := build/checked-test$(CHECKED_WITH)
$(CHECKED) $(CHECKED_TEST): build/checked-%$(CHECKED_WITH): scripts/setup.sh
	@CXX="$(CXX)" $(SETUP) --check $*
	@mkdir -p $(@D) && touch $@

# The commit for --version. The file changes only if the commit does, and a new commit alone builds no
# program again: --version names the commit of the program's last build.
COMMIT := $(HOST)/commit
COMMIT_TEXT = extern "C" { extern const char llmc_commit[]; const char llmc_commit[] = "%s"; }
$(COMMIT).cpp: FORCE
	@mkdir -p $(@D)
	@commit=unknown; \
	if [ -z "$$(git rev-parse --show-prefix 2>&1)" ] && hash=$$(git rev-parse --short HEAD); then \
	  commit="$$hash$$(git diff --quiet HEAD -- || echo ', modified')"; \
	fi 2>/dev/null; \
	new=$@.$$$$; printf '$(COMMIT_TEXT)\n' "$$commit" > $$new; \
	cmp -s $$new $@ && rm $$new || mv $$new $@
$(COMMIT).o: $(COMMIT).cpp | $(CHECKED)
	@$(CXX) -c $< -o $@

# Most of the time of a small file is spent on headers that all files include. These are precompiled, once
# per kind of flags.
$(HOST)/standard.h.gch: private header := llmc/base/standard.h
$(HOST)/standard.h.gch: private flags = $(LIBRARY_FLAGS) $(MPI_FLAGS)
$(HOST)/kernels.h.gch: private header := llmc/device/device.h
$(HOST)/kernels.h.gch: private flags = $(KERNEL_FLAGS)
$(HOST)/%.h.gch: $(HOST)/commands | $(CHECKED)
	@printf '\043include "%s"\n' $(header) > $(@:.gch=)
	$(HOST_CXX) $(flags) -w -x c++-header -MMD -MP -MF $@.d -MT $@ $(@:.gch=) -o $@
precompiled = $(if $(CCACHE),-fpch-preprocess) -include $(1)

$(CHECKED_UNITS:%=$(HOST)/units/%.o): $(HOST)/units/%.o: build/units/%.cpp $(HOST)/standard.h.gch $(HOST)/commands | $(CHECKED)
	@mkdir -p $(@D)
	$(HOST_CXX) $(LIBRARY_FLAGS) $(MPI_FLAGS) $(call precompiled,$(HOST)/standard.h) -MMD -MP -c $< -o $@

ifneq ($(PLAIN_UNITS),)
$(PLAIN_UNITS:%=build/host/units/%.o): build/host/libllmc.a ;
build/host/libllmc.a: FORCE
	+@$(MAKE) --no-print-directory SANITIZE= DEVICE=host $@
endif

# Written again if the list of files changes: a removed object must not stay in it.
$(LIBRARY): $(LIBRARY_OBJECTS) $(HOST)/library-list
	@rm -f $@
	ar rcs $@ $(LIBRARY_OBJECTS)
$(HOST)/library-list: FORCE
	$(call record,$(LIBRARY_OBJECTS))

$(filter-out $(EXECUTOR),$(TEST_KERNELS)) $(LONG_LOOPS:%.cu=$(HOST)/%.o): $(HOST)/%.o: %.cu $(HOST)/kernels.h.gch $(HOST)/commands | $(CHECKED)
	@mkdir -p $(@D)
	$(HOST_CXX) $(KERNEL_FLAGS) $(call precompiled,$(HOST)/kernels.h) -MMD -MP -c -x c++ $< -o $@

# The host executor, which runs kernels on CPU threads. One file, so that its functions are inlined.
build/units/executor.cu: FORCE
	$(call include_files,$(EXECUTOR_FILES))
$(EXECUTOR): build/units/executor.cu $(HOST)/kernels.h.gch $(HOST)/commands | $(CHECKED)
	$(HOST_CXX) $(KERNEL_FLAGS) $(call precompiled,$(HOST)/kernels.h) -MMD -MP -c -x c++ $< -o $@

$(CUDA_UNITS:%=build/units/cuda/%.cu): build/units/cuda/%.cu: FORCE
	$(call include_files,$(FILES_$*))

$(CUDA_OBJECTS): $(CUDA_OUT)/units/%.o: build/units/cuda/%.cu $(CUDA_OUT)/commands | $(CHECKED)
	@mkdir -p $(@D)
	$(NVCC_CXX) $(CUDA_OPTIMIZE) $(cpu_flags) $(call gencode,$(ARCHS)) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
$(CPU_UNITS:%=$(CUDA_OUT)/units/%.o): private cpu_flags = $(OPTIMIZE:%=-Xcompiler=%)

$(CODE_UNITS:%=build/units/code/%.cu): build/units/code/%.cu: FORCE
	$(call include_files,$(filter $(HOST_CODE_FILES),$(FILES_$*)))
$(HOST_UNITS): $(HOST)/code/%.o: build/units/code/%.cu $(HOST)/commands | $(CHECKED)
	@mkdir -p $(@D)
	$(HOST_CXX) $(LIBRARY_FLAGS) $(DECLARE) -MMD -MP -c -x c++ $< -o $@

# Only the training program has several ranks.
rank_flags = $(if $(findstring /train_gpt2,$@),$(MPI_FLAGS) $(if $(filter $(CUDA_OUT)/%,$@),$(NCCL_FLAGS)))
rank_libs  = $(if $(findstring /train_gpt2,$@),$(MPI_LIBS) $(if $(filter $(CUDA_OUT)/%,$@),$(NCCL_LIBS)))

# A program's own file has no kernels, so it needs no more optimisation than the library.
$(MAINS:%=$(HOST)/%.o): $(HOST)/%.o: %.cu $(HOST)/commands | $(CHECKED)
	$(HOST_CXX) $(LIBRARY_FLAGS) $(rank_flags) -MMD -MP -c -x c++ $< -o $@
$(MAINS:%=$(HOST)/%): $(HOST)/%: $(HOST_CODE) $(HOST_KERNELS) $(HOST)/%.o $(EXECUTE) $(LIBRARY) | $(COMMIT).o
	$(HOST_CXX) $(OPTIMIZE) $(HOST_KERNELS) $(HOST_CODE) $(HOST)/$*.o $(EXECUTE) $(COMMIT).o $(LIBRARY) -o $@ $(HOST_LIBS) $(rank_libs) $(if $(EXECUTE),-rdynamic)

$(MAINS:%=$(CUDA_OUT)/%.o): $(CUDA_OUT)/%.o: %.cu $(CUDA_OUT)/commands | $(CHECKED)
	$(NVCC_CXX) $(CUDA_OPTIMIZE) $(call gencode,$(ARCHS)) $(rank_flags) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@
$(MAINS:%=$(CUDA_OUT)/%): $(CUDA_OUT)/%: $(CUDA_OUT)/%.o $(CUDA_OBJECTS) $(LIBRARY) | $(COMMIT).o
	$(NVCC_CXX) $(CUDA_OPTIMIZE) $(call gencode,$(ARCHS)) $(CUDA_OBJECTS) $< $(COMMIT).o $(LIBRARY) -o $@ $(CUDA_LIBS) $(rank_libs)

$(HOST)/%: data/%.cpp $(HOST)/standard.h.gch $(HOST)/commands $(LIBRARY) | $(CHECKED) $(COMMIT).o
	$(HOST_CXX) $(LIBRARY_FLAGS) $(call precompiled,$(HOST)/standard.h) -MMD -MP -MF $@.d -MT $@ $< $(COMMIT).o $(LIBRARY) -o $@ $(HOST_LIBS)

# The planted faults are in kernels, so the library needs no sanitizers.
FAULTS_LIBRARY := $(if $(SANITIZE),build/host/libllmc.a,$(LIBRARY))
$(HOST)/%: test/faults/%.cu $(EXECUTOR) $(EXECUTE) $(HOST)/commands $(FAULTS_LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(TEST_OPTIMIZE) -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(EXECUTOR) $(EXECUTE) $(FAULTS_LIBRARY) -o $@ $(HOST_LIBS) $(if $(EXECUTE),-rdynamic)

build/units/oracle.cpp: FORCE
	$(call include_files,$(wildcard test/oracle/*.cpp))
ifneq ($(PLAIN),)
$(ORACLE): build/units/oracle.cpp $(HOST)/commands | $(CHECKED_TEST)
	$(HOST_CXX) -O2 $(HOST_ARCH) -MMD -MP -c $< -o $@
else
$(ORACLE): FORCE
	+@$(MAKE) --no-print-directory SANITIZE= DEVICE=host $@
endif

# These programs find the test double of NCCL in place of its header.
$(HOST)/nccl_ranks $(HOST)/mpi_training $(HOST)/lost_ranks: private MPI_FLAGS += -Itest/nccl_double
# Part of suites mpi_ranks and nccl_ranks. It trains tiny models for two steps: compiling takes longer.
$(HOST)/mpi_training: private TEST_CALLER_OPTIMIZE := -O0 -g1 $(HOST_ARCH) $(DECLARE)
$(MPI_TESTS:%=$(HOST)/%): $(HOST)/%: test/%.cu $(HOST_KERNELS) $(HOST_CODE) $(ORACLE) $(HOST)/commands $(LIBRARY) | $(CHECKED_TEST)
	$(HOST_CXX) $(TEST_CALLER_OPTIMIZE) $(MPI_FLAGS) -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(HOST_KERNELS) $(HOST_CODE) $(ORACLE) $(LIBRARY) -o $@ $(MPI_LIBS) $(HOST_LIBS)

# Ranks with a GPU each communicate by NCCL: mpirun -n 2 build/cuda/mpi_ranks places.
$(CUDA_OUT)/mpi_ranks: test/mpi_ranks.cu $(CUDA_OBJECTS) $(ORACLE) $(CUDA_OUT)/commands $(LIBRARY) | $(CHECKED_TEST)
	$(NVCC_CXX) $(TEST_NVCC_OPT) $(call gencode,$(TEST_ARCHS)) $(MPI_FLAGS) $(NCCL_FLAGS) -MMD -MP -MF $@.d -MT $@ $< $(CUDA_OBJECTS) $(ORACLE) $(LIBRARY) -o $@ $(CUDA_LIBS) $(MPI_LIBS) $(NCCL_LIBS)

# Microbenchmarks: build/cuda/bench_adamw measures the ops of dev/ops/adamw.h. build/host/bench_adamw only
# checks them.
$(HOST)/bench_%: dev/bench.cu build/ops/%.h $(TEST_KERNELS) $(ORACLE) $(HOST)/commands $(LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(TEST_CALLER_OPTIMIZE) -include build/ops/$*.h -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(TEST_KERNELS) $(ORACLE) $(LIBRARY) -o $@ $(HOST_LIBS)

$(CUDA_OUT)/bench_%: dev/bench.cu build/ops/%.h $(CUDA_OBJECTS) $(ORACLE) $(CUDA_OUT)/commands $(LIBRARY) | $(CHECKED)
	$(NVCC_CXX) $(CUDA_OPTIMIZE) $(call gencode,$(ARCHS)) -include build/ops/$*.h -MMD -MP -MF $@.d -MT $@ $< $(CUDA_OBJECTS) $(ORACLE) $(LIBRARY) -o $@ $(CUDA_LIBS)

# It trains a model, so it also needs the code above the kernels.
$(HOST)/host_roof: dev/host_roof.cu $(HOST_KERNELS) $(HOST_CODE) $(HOST)/commands $(LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(OPTIMIZE) -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(HOST_KERNELS) $(HOST_CODE) $(LIBRARY) -o $@ $(HOST_LIBS)

$(HOST)/%: dev/%.cu $(TEST_KERNELS) $(ORACLE) $(HOST)/commands $(LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(OPTIMIZE) -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(TEST_KERNELS) $(ORACLE) $(LIBRARY) -o $@ $(HOST_LIBS)

$(HOST)/%: dev/%.cpp $(HOST)/commands $(LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(OPTIMIZE) -MMD -MP -MF $@.d -MT $@ $< $(LIBRARY) -o $@ $(HOST_LIBS)

$(CUDA_OUT)/%: dev/%.cu $(CUDA_OBJECTS) $(ORACLE) $(CUDA_OUT)/commands $(LIBRARY) | $(CHECKED)
	$(NVCC_CXX) $(CUDA_OPTIMIZE) $(call gencode,$(ARCHS)) -MMD -MP -MF $@.d -MT $@ $< $(CUDA_OBJECTS) $(ORACLE) $(LIBRARY) -o $@ $(CUDA_LIBS)

# $(call to_ptx,FLAGS) compiles the target for the architecture that its folder is named after.
ptx_arch  = $(firstword $(subst /, ,$(@:build/ptx/%=%)))
PTX_FLAGS = $(NVCC) -std=c++20 -O3 --expt-relaxed-constexpr -diag-suppress 20050 -arch=compute_$(ptx_arch) -ptx -x cu $(INCLUDES)
to_ptx    = $(PTX_FLAGS) $(1) -MMD -MP -MF $@.d -MT $@ $< -o $@
define ptx_rules
build/ptx/$(1)/commands: FORCE
	$$(call record,$$(PTX_FLAGS) $$(shell $$(NVCC) --version | tail -1))
$$(KERNEL_UNITS:%=build/ptx/$(1)/%.ptx): build/ptx/$(1)/%.ptx: build/units/cuda/%.cu build/ptx/$(1)/commands | $$(CHECKED)
	$$(call to_ptx,-lineinfo)
build/ptx/$(1)/unlined/%.ptx: build/units/cuda/%.cu build/ptx/$(1)/commands | $$(CHECKED)
	@mkdir -p $$(@D)
	$$(call to_ptx)
build/ptx/$(1)/launches.ptx: dev/launches.cu build/units/ops.h build/ptx/$(1)/commands | $$(CHECKED)
	$$(call to_ptx,-lineinfo $$(DECLARE) -include build/units/ops.h)
build/ptx/$(1)/product_instances.ptx: test/product_instances.cu build/ptx/$(1)/commands | $$(CHECKED)
	$$(call to_ptx,-lineinfo $$(DECLARE))
$$(KERNEL_TESTS:%=build/ptx/$(1)/%.ptx): build/ptx/$(1)/%.ptx: test/%.cu build/ptx/$(1)/commands | $$(CHECKED_TEST)
	$$(call to_ptx,-lineinfo -diag-suppress 445 $$(DOCTEST))
# Planted faults, in a folder of their own: no program has them.
build/ptx/$(1)/faults/faults.ptx: test/faults/faults.cu build/ptx/$(1)/commands | $$(CHECKED)
	@mkdir -p $$(@D)
	$$(call to_ptx,-lineinfo -diag-suppress 445)
# The report of ptxas. It generates no lines, as in the programs, so its numbers are those of their kernels.
build/ptx/$(1)/%.ptxas: build/ptx/$(1)/%.ptx
	$$(NVCC) -arch=sm_$(1) -cubin -Xptxas -v $$< -o /dev/null > $$@ 2>&1 || { cat $$@ >&2; exit 1; }
endef
$(foreach a,$(sort $(PTX_ARCH) $(RESOURCE_ARCHS)),$(eval $(call ptx_rules,$a)))

build/units/ops.h: FORCE
	$(call list_ops,$(ALL_OPS))
ifneq ($(EXECUTE),)
# Its launches are those of a GPU. It shares the kernels of the tests, and -rdynamic lets it look up their names.
$(HOST)/launches: dev/launches.cu build/units/ops.h $(HOST_KERNELS) $(HOST_CODE) $(EXECUTE) $(ORACLE) $(HOST)/commands $(LIBRARY) | $(CHECKED)
	$(HOST_CXX) $(OPTIMIZE) $(DECLARE) -include build/units/ops.h -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(HOST_KERNELS) $(HOST_CODE) $(EXECUTE) $(ORACLE) $(LIBRARY) -o $@ $(HOST_LIBS) -rdynamic
# Runs every kernel at the published widths, the first and the last block of each launch. Lists the launches;
# the counts are those of LLMC_PTX_COUNTS. The settings of malloc keep freed memory: getting it again would take a
# third of the time.
$(PTX)/launches.list: $(HOST)/launches $(PTX_FILES)
	@rm -f $(PTX)/launches.counts
	MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 LLMC_PTX=$(PTX) LLMC_PTX_BLOCKS=2 LLMC_PTX_COUNTS=$(PTX)/launches.counts $(HOST)/launches > $@
# Their tests compare the programs with those of the host.
.PHONY: host-programs
host-programs: build/host/libllmc.a | $(ORACLE)
	+@$(MAKE) --no-print-directory DEVICE=host $(MAINS:%=build/host/%) build/host/faults
$(MAINS:%=build/host/%) build/host/faults: host-programs ;
$(EXECUTE): $(HOST)/ptx/%.o: test/ptx/%.cpp $(HOST)/commands | $(CHECKED_TEST)
	@mkdir -p $(@D)
	$(HOST_CXX) -O2 $(HOST_ARCH) -fno-strict-aliasing -MMD -MP -c $< -o $@
endif

# A group is one file that includes its members, each in a namespace of its own. The headers that
# they include come first, outside these namespaces.
define group_rules
$(HOST)/test/group_$(1): $(call members,$(1),$(HOST_FILES)) $(HOST)/test-list
$(CUDA_OUT)/test/group_$(1): $(call members,$(1),$(CUDA_FILES)) $(CUDA_OUT)/test-list
endef
$(foreach g,$(GROUPS),$(eval $(call group_rules,$(g))))
$(addprefix $(HOST)/test/group_,$(GROUPS)) $(addprefix $(CUDA_OUT)/test/group_,$(GROUPS)):
	@mkdir -p $(@D)
	@awk '/^#include/ && !seen[$$0]++' $(filter test/%,$^) > $@
	@printf '\nnamespace %s {\n#include "%s"\n}\n' $(foreach f,$(filter test/%,$^),$(basename $(notdir $(f))) $(f)) >> $@

compile_test = $(HOST_CXX) $(TEST_CALLER_OPTIMIZE) $(DOCTEST) $(if $(filter %.cu,$<),$(DECLARE)) $(with_ops) -MMD -MP -c -x c++ $< -o $@

$(HOST)/test/group_%.o: $(HOST)/test/group_% $(HOST)/commands | $(CHECKED_TEST)
	$(compile_test)

# It compares a kernel with plain passes bit for bit, for which both need the same optimisation.
$(HOST)/test/test_sampling_search.cu.o: private TEST_CALLER_OPTIMIZE = $(KERNEL_FLAGS)

$(HOST)/test/test_%.o: test/test_% $(HOST)/commands | $(CHECKED_TEST)
	@mkdir -p $(@D)
	$(compile_test)

$(HOST)/test/%.o $(HOST)/test-alone/%.o: test/% $(HOST)/commands | $(CHECKED_TEST)
	@mkdir -p $(@D)
	$(HOST_CXX) $(TEST_OPTIMIZE) $(DOCTEST) $(with_ops) -MMD -MP -c -x c++ $< -o $@

$(HOST)/tests: $(HOST_TESTS) $(EXECUTE) $(LIBRARY) | $(if $(EXECUTE),$(PTX_FILES))
	$(HOST_CXX) $(TEST_OPTIMIZE) $(HOST_TESTS) $(EXECUTE) $(LIBRARY) -o $@ $(HOST_LIBS) $(if $(EXECUTE),-rdynamic)

compile_cuda_test = $(NVCC_CXX) $(TEST_NVCC_OPT) $(DOCTEST) $(call gencode,$(TEST_ARCHS)) $(with_ops) -MMD -MP -MF $(@:.o=.d) -MT $@ -c -x cu $< -o $@

$(CUDA_OUT)/test/group_%.o: $(CUDA_OUT)/test/group_% $(CUDA_OUT)/test-commands | $(CHECKED_TEST)
	$(compile_cuda_test) $(DECLARE)

$(CUDA_OUT)/test/test_%.o: test/test_% $(CUDA_OUT)/test-commands | $(CHECKED_TEST)
	@mkdir -p $(@D)
	$(compile_cuda_test) $(DECLARE)

$(CUDA_OUT)/test/%.o $(CUDA_OUT)/test-alone/%.o: test/% $(CUDA_OUT)/test-commands | $(CHECKED_TEST)
	@mkdir -p $(@D)
	$(compile_cuda_test)

$(CUDA_OUT)/tests: $(CUDA_TESTS) $(LIBRARY)
	$(NVCC_CXX) $(TEST_NVCC_OPT) $(call gencode,$(TEST_ARCHS)) $(CUDA_TESTS) $(LIBRARY) -o $@ $(CUDA_LIBS)

-include $(wildcard build/*/*.d build/*/test/*.d build/*/test-alone/*.d build/*/units/*.d build/*/code/*.d build/*/ptx/*.d build/ptx/*/*.d build/ptx/*/unlined/*.d build/ptx/*/faults/*.d build/fuzz/*.d \
                     build/*/llmc/*/*.d build/*/llmc/*/*/*.d)

# ---- testing --------------------------------------------------------------------------------
ifneq ($(and $(filter cuda ptx,$(DEVICE)),$(if $(NVCC),,none)),)
test test-programs: no-nvcc
endif
.PHONY: no-nvcc
no-nvcc:
	@echo "$(if $(filter host,$(DEVICE)),make resources,DEVICE=$(DEVICE)) needs nvcc: put it on PATH or set CUDA_HOME" >&2; exit 2
# Suites that start the programs; they are in Python.
PROGRAM_SUITES := %programs prepare tokenize_% run_view run_history run_export peers $(MPI_TESTS)
ifeq ($(DEVICE),cuda)
TEST_OUT := $(CUDA_OUT)
TEST_PROGRAMS := $(if $(filter-out $(PROGRAM_SUITES),$(SUITE)),,$(CUDA_BINS) $(HOST_BINS))
else
ifneq ($(and $(CUDA_ONLY),$(filter test test-%,$(MAKECMDGOALS))),)
$(error HOST_BUILD=0: tests of the host build were requested; use DEVICE=cuda to run them on the GPU)
endif
TEST_OUT := $(HOST)
TEST_PROGRAMS := $(if $(filter ptx,$(DEVICE)),$(PTX_FILES) $(if $(filter-out ptx_coverage ptx_*,$(SUITE)),,$(PTX)/launches.list $(UNLINED:%=$(PTX)/unlined/%.ptx)) $(if $(filter-out $(PROGRAM_SUITES),$(SUITE)),,$(MAINS:%=$(HOST)/%) $(MAINS:%=build/host/%) $(HOST)/faults build/host/faults $(PTX)/faults/faults.ptx)) $(if $(PLAIN),$(if $(filter-out $(PROGRAM_SUITES),$(SUITE)),,$(HOST_BINS)) \
                   $(if $(filter-out faults,$(SUITE)),,faults) \
                   $(if $(filter $(subst *,%,$(or $(SUITE),*)),host_roof_programs),$(HOST)/host_roof) \
                   $(addprefix $(HOST)/,$(filter $(or $(SUITE:tcp_programs=mpi_ranks),%),mpi_ranks $(if $(MPI_INCLUDE),$(MPI_TESTS))) \
                     $(if $(and $(MPI_INCLUDE),$(filter mpi_ranks nccl_ranks tcp_programs,$(SUITE))),mpi_training) \
                     $(if $(and $(MPI_INCLUDE),$(filter lost_programs,$(SUITE))),lost_ranks)))
endif

# One program with every fault that the executor and the sanitizers must report, in three builds.
.PHONY: faults
faults: $(HOST)/faults
	+@$(MAKE) --no-print-directory SANITIZE=address,undefined build/host-asan/faults
	+@$(MAKE) --no-print-directory SANITIZE=thread build/host-tsan/faults

# The programs come first: each is one long job, which must not be the last one to start.
test-programs: $(if $(FILE),,$(TEST_PROGRAMS)) $(if $(NO_BINARY),,$(TEST_OUT)/tests)

# Links again if the list of files changes: a removed object must not stay in the binary.
$(HOST)/tests: $(HOST)/test-list
$(HOST)/test-list: FORCE
	$(call record,$(HOST_TESTS) $(HOST_FILES))
$(CUDA_OUT)/tests: $(CUDA_OUT)/test-list
$(CUDA_OUT)/test-list: FORCE
	$(call record,$(CUDA_TESTS) $(CUDA_FILES))

# Installs packages before another make reads this file, because it depends on what is installed.
define ready
	@CXX="$(CXX)" $(SETUP) --check >/dev/null 2>&1 || CXX="$(CXX)" $(SETUP)
endef

test: ## run all tests (DEVICE=cuda: on the GPU; SUITE= and TEST= choose some)
	$(ready)
	+@$(MAKE) --no-print-directory test-programs
	@SANITIZE="$(SANITIZE)" PTX="$(if $(filter ptx,$(DEVICE)),$(PTX))" FILE="$(FILE)" NO_BINARY="$(NO_BINARY)" scripts/run_tests.sh $(TEST_OUT) "$(SUITE)" "$(TEST)"

test-long: ## run all tests, including the slow ones that try every combination
	+@LLMC_LONG=1 $(MAKE) --no-print-directory test
	$(if $(filter ptx,$(DEVICE)),+@LLMC_PTX_SEED=1 $(MAKE) --no-print-directory test PTX_ARCH=80)

test-sanitize: ## run the tests on tiny shapes under sanitizers: bad accesses (address,undefined), then races (thread)
	$(ready)
	+@$(MAKE) --no-print-directory test SANITIZE=address,undefined
	+@$(MAKE) --no-print-directory test SANITIZE=thread

# Only clang has libFuzzer; before version 16 it cannot compile libstdc++'s <source_location>.
FUZZ_FLAGS := -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
              -isystem test/fuzz/clang $(INCLUDES)
FUZZ_UNITS := $(patsubst %,build/fuzz/%.o,$(filter-out comm_mpi_%,$(LIBRARY_UNITS)))
build/fuzz/fuzzer: test/fuzz/fuzzer.cpp $(FUZZ_UNITS) | $(CHECKED)
	$(FUZZ_CXX) $(FUZZ_FLAGS) -MMD -MP -MF $@.d -MT $@ $< $(FUZZ_UNITS) -o $@ $(HOST_LIBS)
$(FUZZ_UNITS): build/fuzz/%.o: build/units/%.cpp | $(CHECKED)
	@scripts/fuzz.sh --check "$(FUZZ_CXX)"
	@mkdir -p $(@D)
	$(FUZZ_CXX) $(FUZZ_FLAGS:-fsanitize=fuzzer%=-fsanitize=fuzzer-no-link%) -MMD -MP -c $< -o $@

.PHONY: fuzz
fuzz: build/fuzz/fuzzer ## run every reader on RUNS inputs of libFuzzer under sanitizers (needs clang)
	@RUNS="$(RUNS)" TARGET="$(TARGET)" scripts/fuzz.sh $(<D)

# The model is small: without a GPU the CUDA build would only cost time.
demo: ## train a GPT-2 on the built-in toy language, sample from it, plot its loss
	$(ready)
	+@$(MAKE) --no-print-directory all $(if $(GPUS_HERE),,CUDA=0)
	@scripts/demo.sh

# Timing needs a GPU; without one the benchmarks only check results. DEVICE overrides the choice.
BENCHES      := $(OPS:%=bench_%) planted_faults
BENCH_DEVICE = $(if $(filter file,$(origin DEVICE)),$(if $(and $(NVCC),$(shell nvidia-smi -L 2>/dev/null)),cuda,host),$(DEVICE))
BENCH_REPORT = $(if $(filter 1,$(NORES)),,$(and $(NVCC),$(filter host,$(BENCH_DEVICE))))

.PHONY: bench
ifeq ($(DEVICE)$(NVCC),cuda)
bench: no-nvcc
endif
ifneq ($(and $(filter ptx,$(DEVICE)),$(filter bench,$(MAKECMDGOALS))),)
$(error make bench DEVICE=ptx: allowed are host and cuda; make test DEVICE=ptx checks the same cases)
endif
bench: ## check every kernel against its oracle; on a GPU, also time it and its alternatives
	$(ready)
	+@$(MAKE) --no-print-directory $(BENCHES:%=build/$(BENCH_DEVICE)/%)
	+@OPS="$(OPS)" dev/run.sh build/$(BENCH_DEVICE) $(BENCH_FLAGS); code=$$?; \
	  $(if $(BENCH_REPORT),$(MAKE) --no-print-directory resources || code=1;) exit $$code

# One build at a time would leave cores idle while its last file compiles. The tests check every case,
# so only some of the benchmarks are built.
BENCHES_HERE := planted_faults bench_activation bench_random_fill
PARTS_asan       := asan-tests
PARTS_tsan       := tsan-tests
PARTS_ptx        := $(if $(NVCC),$(PTXAS_REPORTS) ptx-tests)
PARTS_cuda-tests := $(if $(NVCC),$(CUDA_OUT)/tests $(if $(NCCL_FLAGS),$(CUDA_OUT)/mpi_ranks))
ifneq ($(filter-out asan tsan ptx cuda-tests,$(CI_PARTS)),)
$(error CI_PARTS=$(CI_PARTS): allowed are asan, tsan, ptx and cuda-tests)
endif
.PHONY: every-build asan-tests tsan-tests ptx-tests
every-build: all test-programs build/single/checked $(BENCHES_HERE:%=$(HOST)/%) \
             $(foreach p,$(CI_PARTS),$(PARTS_$p)) ## compile everything that .ci/run runs: programs, tests, benchmarks, and CI_PARTS
asan-tests: | faults $(ORACLE)
	+@$(MAKE) --no-print-directory SANITIZE=address,undefined build/host-asan/tests
tsan-tests: | faults $(ORACLE)
	+@$(MAKE) --no-print-directory SANITIZE=thread build/host-tsan/tests
# Two makes must not write the same files, so these exist before.
ptx-tests: | $(HOST_BINS) $(HOST)/faults $(ORACLE) $(PTX_FILES) $(UNLINED:%=$(PTX)/unlined/%.ptx)
	+@$(MAKE) --no-print-directory DEVICE=ptx test-programs

# The whole trainer can be read and compiled as one file. At -O0, because it shows only that it compiles.
build/single/unit.cu: FORCE
	$(call include_files,$(LIBRARY_FILES) $(EXECUTOR_FILES) $(HOST_KERNEL_FILES) $(LONG_LOOPS) $(HOST_CODE_FILES) train_gpt2.cu)
build/single/train_gpt2: build/single/unit.cu $(HOST)/commands | $(CHECKED) $(COMMIT).o
	$(SINGLE_CXX) -MMD -MP -MF $@.d -MT $@ -x c++ $< -x none $(COMMIT).o -o $@ $(HOST_LIBS) $(MPI_LIBS)
SINGLE_CXX = $(HOST_CXX) -O0 $(HOST_ARCH) $(MPI_FLAGS)
build/single/checked: build/single/unit.cu $(HOST)/commands | $(CHECKED)
	$(SINGLE_CXX) -fsyntax-only -MMD -MP -MF $@.d -MT $@ -x c++ $<
	@touch $@

.PHONY: single check-single
check-single: build/single/checked ## check that train_gpt2 compiles as one translation unit, in a third of the time of `make single`
single: build/single/train_gpt2 ## compile train_gpt2 for the host as one translation unit (build/single), and train one step
	build/single/train_gpt2 --steps 1

# ---- checks and maintenance -----------------------------------------------------------------
host-only: ## list every function outside llmc/device that exists only for the host
	@CXX="$(CXX)" NVCC="$(NVCC)" python3 scripts/host_only.py

resources: $(if $(NVCC),$(PTXAS_REPORTS),no-nvcc) ## list registers, shared memory and spills of every kernel next to its budgets (needs nvcc, no GPU)
	+@$(MAKE) --no-print-directory SANITIZE= DEVICE=ptx $(PTX)/launches.list
	@UPDATE="$(UPDATE)" LAUNCHES=$(PTX)/launches.list scripts/resources.sh $(NVCC) $(RESOURCE_ARCHS)

lint: ## check format, scripts, headers and the order of folders (TIDY=1: also clang-tidy)
	@CXX="$(CXX)" TIDY=$(TIDY) scripts/lint.sh all $(INCLUDES)

headers: ## check that every header compiles alone
	@CXX="$(CXX)" scripts/lint.sh headers $(INCLUDES)

format: ## rewrite all sources in the style of .clang-format
	@git ls-files -z '*.h' '*.cu' '*.cpp' | xargs -0 clang-format -i

clean: ## remove all build outputs
	rm -rf build $(PROGRAMS) $(TOP_TOOLS)

help: ## print this list
	@echo "make TARGET [VARIABLE=VALUE ...]"; echo; echo "Targets"
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'\t' '{printf "  %-14s %s\n", $$1, $$2}'
	@echo; echo "Variables (default in brackets)"
	@sed -nE 's/^([A-Z_]+) \?= ?(.*)## (.*)/\1\t\2\t\3/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'\t' '{gsub(/\$$\(.*\)/, "", $$2); printf "  %-14s %s%s\n", $$1, $$3, ($$2 == "" ? "" : " [" $$2 "]")}'
