// A small checkpoint whose content is a function of its step, so that a found checkpoint can be checked.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/store.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "tests/core/checkpoint/fixtures.hpp"

namespace trainhost::test {

inline checkpoint::Meta meta_of(std::uint64_t step) {
  checkpoint::Meta m;
  m.step = step;
  m.kernel_set = "SkylakeX";
  m.config_digest = "digest of \"it\"\n";
  m.program_version = "0.1.0";
  m.backend = "cpu";
  m.extra = {{"position", std::to_string(step * 7)}, {"é", "\t"}};
  return m;
}

inline fs::path save_step(checkpoint::Store& store, std::uint64_t step) {
  return store.save(meta_of(step), 1000, [&](const fs::path& tmp) {
    const std::vector<TensorInfo> tensors{info("model.a", 5), info("model.b", 2, 3)};
    for (const char* name : {"weights.safetensors", "moment1.safetensors"})
      checkpoint::write_tensors(tmp / name, tensors, [&](const checkpoint::TensorSink& sink) {
        std::vector<float> v(6, static_cast<float>(step));
        sink("model.a", 0, std::span<const float>(v).first(5));
        sink("model.b", 0, v);
      });
    checkpoint::Fd plain = checkpoint::create_new(tmp / "notes");  // a file that the writer did not sync
    checkpoint::write_all(plain.get(), std::as_bytes(std::span("some text", 9)), tmp / "notes");
  });
}

/// The step that newest() finds, after checking its weights; 0 if there is none.
inline std::uint64_t newest_step(const fs::path& dir) {
  auto found = checkpoint::Store(dir, 2).newest();
  if (!found) return 0;
  checkpoint::WeightSource w(found->dir);
  std::vector<float> scratch(6);
  w.stream(info("model.b", 2, 3), scratch, [&](std::uint64_t, std::span<const float> v) {
    for (float f : v) BOOST_REQUIRE(f == static_cast<float>(found->meta.step));
  });
  BOOST_REQUIRE(found->meta.extra == meta_of(found->meta.step).extra);
  return found->meta.step;
}

inline std::size_t temp_entries(const fs::path& dir) {
  std::size_t n = 0;
  for (const auto& e : fs::recursive_directory_iterator(dir))
    n += says(e.path().filename().string(), ".tmp.");
  return n;
}

/// Runs f in a child process; returns its wait status.
inline int in_child(const std::function<void()>& f) {
  pid_t pid = ::fork();
  if (pid == 0) {
    try {
      f();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

/// A directory for checkpoints, not made yet, and the names of the checkpoints in it.
struct CheckpointDir {
  TempDir top;
  fs::path dir = top / "run";

  std::set<std::string> published() {
    std::set<std::string> out;
    for (const auto& e : fs::directory_iterator(dir))
      if (e.is_directory()) out.insert(e.path().filename().string());
    return out;
  }
};

}  // namespace trainhost::test
