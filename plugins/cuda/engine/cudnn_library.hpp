// cuDNN, loaded at run time: NVIDIA ships it apart from the CUDA toolkit, and only attention = "cudnn" needs
// it. Also owners for its descriptors, and its errors as exceptions.
#pragma once
#include <span>
#include <string>
#include <utility>

#include "plugins/cuda/engine/cudnn_api.hpp"

namespace trainhost::cuda::cudnn {

/// Oldest version with the graphs of cudnn_attention.cpp: 9.19, the version they were checked with. 10 and
/// newer may change the interface.
inline constexpr std::size_t kLeastVersion = 91900, kEndVersion = 100000;

/// The functions of libcudnn.so.9, which the first call loads: from LD_LIBRARY_PATH, the engine's RUNPATH
/// (the toolkit that it was built with), or the system's folders. The environment variable TRAINHOST_CUDNN
/// names another file. Never unloaded. Throws abi::StatusError (TH_E_UNAVAILABLE) if the library or a
/// function is missing, or the version is not supported; the next call tries again.
const Functions& library();

/// "9.19.0"
std::string version_text(std::size_t version);

/// Throws abi::StatusError unless `status` is success, with the library's reason: TH_E_DEVICE_OOM or
/// TH_E_HOST_OOM, TH_E_DEVICE_LOST if the device is lost, TH_E_UNSUPPORTED, else TH_E_INTERNAL.
void check(Status status, const std::string& what);

/// Owner of one descriptor. Attributes are set, then finalize() is called once.
class Object {
 public:
  Object() = default;
  explicit Object(DescriptorType type);
  ~Object();
  Object(Object&& o) noexcept : f_(o.f_), d_(std::exchange(o.d_, nullptr)) {}
  Object& operator=(Object&& o) noexcept {
    std::swap(f_, o.f_), std::swap(d_, o.d_);
    return *this;
  }

  Descriptor get() const { return d_; }
  template <class T>
  Object& set(Attribute a, ValueType type, std::span<const T> values) {
    return set_values(a, type, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  Object& set(Attribute a, ValueType type, const T& value) {
    return set_values(a, type, 1, &value);
  }
  Object& set(Attribute a, const Object& o) {
    const Descriptor d = o.get();
    return set_values(a, ValueType::kDescriptor, 1, &d);
  }
  /// Throws as check(); `what` names the object in the message.
  void finalize(const std::string& what);
  /// The status instead of an exception: for objects that the library may not support.
  Status try_finalize();
  /// Returns the number of values that the attribute has; at most `requested` are written.
  std::int64_t get(Attribute a, ValueType type, std::int64_t requested, void* values) const;

 private:
  Object& set_values(Attribute a, ValueType type, std::int64_t count, const void* values);
  const Functions* f_ = nullptr;
  Descriptor d_ = nullptr;
};

}  // namespace trainhost::cuda::cudnn
