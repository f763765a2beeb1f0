// A model of a disk that loses power. Records the system calls of core/checkpoint (they are executed too) and
// builds possible disk contents after a power loss: everything synced before, and any part of the rest. Each
// write to a file and each change of a directory is lost or kept independently, unless that file or directory
// was synced later. A rename is one change. ext4, xfs and btrfs guarantee more, so data that survive here
// survive there.
#pragma once
#include <fcntl.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/checkpoint/system_calls.hpp"
#include "tests/core/checkpoint/fixtures.hpp"

namespace trainhost::test {

class DiskLog {
 public:
  explicit DiskLog(const fs::path& root) : root_(root), real_(checkpoint::sys()) {
    nodes_.push_back({true, {}, {}});
    self_ = this;
    checkpoint::Sys& s = checkpoint::sys();
    s.open = [](const char* p, int flags, mode_t mode) { return self_->open(p, flags, mode); };
    s.write = [](int fd, const void* data, std::size_t n) { return self_->write(fd, data, n); };
    s.fsync = [](int fd) { return self_->add({.kind = kSync, .node = self_->fds_.at(fd).node}), 0; };
    s.close = [](int fd) { return self_->fds_.erase(fd), self_->real_.close(fd); };
    s.mkdir = [](const char* p, mode_t mode) {
      int r = self_->real_.mkdir(p, mode);
      if (r == 0) self_->link(p, true);
      return r;
    };
    s.rename = [](const char* a, const char* b) { return self_->move(a, b, false); };
    s.exchange = [](const char* a, const char* b) { return self_->move(a, b, true); };
    s.unlink = [](const char* p) { return self_->remove(p, self_->real_.unlink(p)); };
    s.rmdir = [](const char* p) { return self_->remove(p, self_->real_.rmdir(p)); };
  }
  ~DiskLog() { stop(); }
  DiskLog(const DiskLog&) = delete;

  /// Records that save() returned for `step`.
  void promise(std::uint64_t step) { add({.kind = kPromise, .node = step}); }
  /// Stops recording.
  void stop() { checkpoint::sys() = real_; }
  std::size_t size() const { return log_.size(); }
  /// Simulates a program that never syncs directories (or files).
  void forget_syncs(bool of_directories) {
    std::erase_if(
        log_, [&](const Op& op) { return op.kind == kSync && nodes_[op.node].directory == of_directories; });
  }

  /// Writes to `out` a possible disk content after a power loss before operation `end`; returns the last step
  /// whose save() had returned.
  std::uint64_t image(std::size_t end, std::mt19937& random, const fs::path& out) const {
    std::vector<Node> disk(nodes_.size());
    for (std::size_t i = 0; i < disk.size(); ++i) disk[i].directory = nodes_[i].directory;
    std::uint64_t promised = 0;
    const unsigned kept_of_8 = random() % 9;
    for (std::size_t i = 0; i < end; ++i) {
      const Op& op = log_[i];
      if (op.kind == kPromise) promised = op.node;
      std::size_t where = op.kind == kWrite ? op.node : op.dir, also = op.kind == kMove ? op.to_dir : where;
      bool synced = false;
      for (std::size_t j = i + 1; j < end && !synced; ++j)
        synced = log_[j].kind == kSync && (log_[j].node == where || log_[j].node == also);
      if (synced || random() % 8 < kept_of_8) apply(op, disk, synced ? nullptr : &random);
    }
    lay_down(disk, 0, out);
    return promised;
  }

 private:
  enum Kind { kLink, kUnlink, kMove, kExchange, kWrite, kSync, kPromise };
  struct Op {
    Kind kind = kSync;
    std::size_t node = 0, other = 0;  // `other`: second node of an exchange
    std::size_t dir = 0, to_dir = 0;
    std::string name{}, to{}, data{};
    std::size_t at = 0;
  };
  struct Node {
    bool directory = false;
    std::map<std::string, std::size_t> entries;
    std::string data;
  };
  struct Open {
    std::size_t node = 0, at = 0;
  };

  void add(Op op) { log_.push_back(std::move(op)); }

  /// The node of a path below root_, or of its parent if `last` is false.
  std::size_t find(const fs::path& p, bool last = true) const {
    std::size_t node = 0;
    fs::path rest = (last ? p : p.parent_path()).lexically_relative(root_);
    for (const auto& part : rest)
      if (part != "." && !part.empty()) node = nodes_[node].entries.at(part.string());
    return node;
  }

  std::size_t link(const fs::path& p, bool directory) {
    std::size_t dir = find(p, false), node = nodes_.size();
    nodes_.push_back({directory, {}, {}});
    nodes_[dir].entries[p.filename().string()] = node;
    add({.kind = kLink, .node = node, .dir = dir, .name = p.filename().string()});
    return node;
  }

  int open(const char* p, int flags, mode_t mode) {
    int fd = real_.open(p, flags, mode);
    if (fd >= 0) fds_[fd] = {flags & O_CREAT ? link(p, false) : find(p), 0};
    return fd;
  }

  ssize_t write(int fd, const void* data, std::size_t n) {
    ssize_t r = real_.write(fd, data, n);
    if (r <= 0) return r;
    Open& f = fds_.at(fd);
    add({.kind = kWrite,
         .node = f.node,
         .data = std::string(static_cast<const char*>(data), static_cast<std::size_t>(r)),
         .at = f.at});
    f.at += static_cast<std::size_t>(r);
    return r;
  }

  int move(const fs::path& a, const fs::path& b, bool exchange) {
    int r = exchange ? real_.exchange(a.c_str(), b.c_str()) : real_.rename(a.c_str(), b.c_str());
    if (r != 0) return r;
    Op op{.kind = exchange ? kExchange : kMove,
          .node = find(a),
          .other = exchange ? find(b) : 0,
          .dir = find(a, false),
          .to_dir = find(b, false),
          .name = a.filename().string(),
          .to = b.filename().string()};
    BOOST_REQUIRE((op.dir == op.to_dir || !exchange));
    apply(op, nodes_, nullptr);
    add(op);
    return r;
  }

  int remove(const fs::path& p, int result) {
    if (result != 0) return result;
    Op op{.kind = kUnlink, .dir = find(p, false), .name = p.filename().string()};
    apply(op, nodes_, nullptr);
    add(op);
    return result;
  }

  /// torn: the bytes of an unsynced write may be present, zero or truncated.
  static void apply(const Op& op, std::vector<Node>& disk, std::mt19937* torn) {
    auto& entries = disk[op.dir].entries;
    switch (op.kind) {
      case kLink:
        entries[op.name] = op.node;
        break;
      case kUnlink:
        entries.erase(op.name);
        break;
      case kMove:
        if (auto it = entries.find(op.name); it != entries.end() && it->second == op.node) entries.erase(it);
        disk[op.to_dir].entries[op.to] = op.node;
        break;
      case kExchange:
        entries[op.to] = op.node;
        entries[op.name] = op.other;
        break;
      case kWrite: {
        std::string& data = disk[op.node].data;
        std::string piece = op.data;
        if (torn && (*torn)() % 3 == 0) piece.resize((*torn)() % (piece.size() + 1));
        if (torn && (*torn)() % 3 == 0) std::fill(piece.begin(), piece.end(), '\0');
        if (data.size() < op.at + piece.size()) data.resize(op.at + piece.size(), '\0');
        data.replace(op.at, piece.size(), piece);
        break;
      }
      default:
        break;
    }
  }

  static void lay_down(const std::vector<Node>& disk, std::size_t node, const fs::path& at) {
    if (!disk[node].directory) return put(at, disk[node].data);
    fs::create_directories(at);
    for (const auto& [name, child] : disk[node].entries) lay_down(disk, child, at / name);
  }

  static inline DiskLog* self_ = nullptr;
  fs::path root_;
  checkpoint::Sys real_;
  std::vector<Node> nodes_;  // as the running program sees them; node 0 is root_
  std::map<int, Open> fds_;
  std::vector<Op> log_;
};

}  // namespace trainhost::test
