// The fake libcudnn (tests/support/cuda/fake_cudnn.cpp) as the library that the engine loads, for one test.
#pragma once
#include <dlfcn.h>
#include <stdlib.h>

#include <boost/test/unit_test.hpp>

#include "tests/support/cuda/emulation_state.hpp"
#include "tests/support/cuda/fake_cudnn.hpp"

namespace trainhost::test {

class FakeCudnnLibrary {
 public:
  FakeCudnnLibrary() {
    void* library = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
    BOOST_TEST_REQUIRE(library, dlerror());
    fake_ = static_cast<FakeCudnn*>(dlsym(library, "fake_cudnn"));
    BOOST_TEST_REQUIRE(fake_);
    *fake_ = {};
    // Plans are work of a stream like kernels: lazy, captured in graphs, ordered by events.
    fake_->queue = [](cudaStream_t stream, std::function<void()> work) {
      emu::Lock lock(emu::state().mutex);
      Item item{.work = emu::Work::kKernel, .name = "cudnn", .cost_us = 1};
      item.run = std::move(work);
      emu::enqueue(lock, *emu::stream_of(stream), std::move(item));
    };
    setenv("TRAINHOST_CUDNN", FAKE_CUDNN, 1);
  }
  ~FakeCudnnLibrary() { unsetenv("TRAINHOST_CUDNN"); }
  FakeCudnnLibrary(const FakeCudnnLibrary&) = delete;
  FakeCudnn* operator->() const { return fake_; }

 private:
  FakeCudnn* fake_ = nullptr;
};

}  // namespace trainhost::test
