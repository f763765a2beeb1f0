// The device of this process and the little memory that host collectives need there, by the CUDA driver's
// interface, whose library is opened at run time: this plugin is built without the CUDA toolkit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/cuda/front_end/cuda_driver.hpp"

namespace trainhost::nccl {

class Device {
 public:
  /// The visible device of a rank's number on its machine; where fewer are visible, some ranks get the same
  /// one, which the rendezvous reports (a launcher may also show each rank a device of its own, number 0).
  /// Opens the primary context, which the trainer will use too. Throws abi::StatusError.
  explicit Device(std::uint32_t local_rank);
  ~Device();
  Device(const Device&) = delete;

  int index() const { return device_.index; }
  /// As 32 digits; "" if the driver does not report it.
  std::string uuid() const;
  void* stream() const { return stream_; }

  /// Device memory of `bytes` and pinned host memory of the same size; once.
  void allocate(std::size_t bytes);
  std::byte* memory() const { return reinterpret_cast<std::byte*>(memory_); }
  std::byte* host_memory() const { return static_cast<std::byte*>(host_); }
  /// Queue a copy of [offset, offset + bytes) between the two.
  void copy_to_device(std::size_t offset, std::size_t bytes);
  void copy_to_host(std::size_t offset, std::size_t bytes);
  /// False while queued work is not done.
  bool is_idle();

  /// Makes the context current in this thread while it exists.
  class Current {
   public:
    explicit Current(const Device& d);
    ~Current();
    Current(const Current&) = delete;
  };

 private:
  cuda::Device device_;
  int handle_ = 0;
  void *context_ = nullptr, *stream_ = nullptr, *host_ = nullptr;
  std::uint64_t memory_ = 0;  // CUdeviceptr
};

}  // namespace trainhost::nccl
