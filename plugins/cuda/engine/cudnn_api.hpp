// The part of cuDNN's backend interface that attention uses: numbers and signatures of its graph interface,
// which are the same in all releases of version 9. Declared here because cuDNN is neither needed to build the
// engine nor linked: cudnn_library.hpp loads it. tests/plugins/cuda/engine/cudnn_plans_test.cpp compares the
// numbers with an installed library.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace trainhost::cuda::cudnn {

struct Context;  // of the library
using Handle = Context*;
using Descriptor = void*;
using Status = int;  // 0: success; thousands: category

enum Category : int {
  kInternalError = 4000,
  kNotSupported = 3000,
  kExecutionFailed = 5000,
  kHostAllocationFailed = 4003,
  kDeviceAllocationFailed = 4004,
};

enum class DataType : std::int32_t { kFloat = 0, kInt32 = 4, kBFloat16 = 9, kBoolean = 11 };

enum class PointwiseMode : std::int32_t {
  kAdd = 0,
  kMul = 1,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kCmpGt = 302,
  kCmpGe = 303,
  kGenIndex = 501,
  kBinarySelect = 601,
};

enum class ReduceMode : std::int32_t { kAdd = 0, kMax = 3 };

enum class DescriptorType : std::int32_t {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kPointwiseOp = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOp = 19,
  kReduction = 21,
  kReductionOp = 22,
  kReshapeOp = 31,
  kDeviceProperties = 38,
};

/// Types of attribute values (cudnnBackendAttributeType_t).
enum class ValueType : std::int32_t {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kVoidPointer = 6,
  kHeuristicMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kChar = 24,
};

enum class Attribute : std::int32_t {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kConfigEngine = 300,
  kConfigKnobs = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanJson = 405,
  kPlanDevice = 407,
  kKnobType = 600,
  kKnobValue = 601,
  kPointwiseOpDescriptor = 750,
  kPointwiseOpX = 751,
  kPointwiseOpB = 752,
  kPointwiseOpY = 753,
  kPointwiseOpT = 758,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kEngineDevice = 1307,
  kMatmulPrecision = 1500,
  kMatmulOpA = 1520,
  kMatmulOpB = 1521,
  kMatmulOpC = 1522,
  kMatmulOpDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionOpX = 1610,
  kReductionOpY = 1611,
  kReductionOpDescriptor = 1612,
  kReshapeOpX = 2200,
  kReshapeOpY = 2201,
  kDeviceJson = 2702,
};

inline constexpr std::int32_t kHeuristicModeA = 3;
inline constexpr std::int32_t kNondeterministic = 4;  // numerical note of an engine
inline constexpr std::int32_t kNumericalNotes = 10;   // number of notes

/// The functions, loaded by name.
struct Functions {
  std::size_t (*cudnnGetVersion)();
  const char* (*cudnnGetErrorString)(Status);
  void (*cudnnGetLastErrorString)(char*, std::size_t);
  Status (*cudnnCreate)(Handle*);
  Status (*cudnnDestroy)(Handle);
  Status (*cudnnSetStream)(Handle, cudaStream_t);
  Status (*cudnnBackendCreateDescriptor)(DescriptorType, Descriptor*);
  Status (*cudnnBackendDestroyDescriptor)(Descriptor);
  Status (*cudnnBackendFinalize)(Descriptor);
  Status (*cudnnBackendSetAttribute)(Descriptor, Attribute, ValueType, std::int64_t count, const void*);
  Status (*cudnnBackendGetAttribute)(Descriptor, Attribute, ValueType, std::int64_t requested,
                                     std::int64_t* count, void*);
  Status (*cudnnBackendExecute)(Handle, Descriptor plan, Descriptor variant_pack);
};

}  // namespace trainhost::cuda::cudnn
