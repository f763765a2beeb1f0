// A correct plan that a test breaks, for tests of the checker: sabotage_test.cpp changes the program,
// sabotaged_offsets_test.cpp the places of its buffers.
#pragma once
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/placement/check_plan.hpp"
#include "tests/core/placement/cases.hpp"

namespace trainhost::placement::test {

struct Broken {
  Program p;
  MemoryPlan plan;

  explicit Broken(const Case& c) : p(c.build()), plan(place(p)) {}

  BufferId id(const char* role, std::int32_t layer = -1, std::uint32_t copy = kOriginal) const {
    const BufferId b = p.find(role, layer, copy);
    BOOST_REQUIRE_MESSAGE(b != kNoBuffer, "no buffer " << role);
    return b;
  }
  /// The n-th operation of that kind and layer.
  std::uint32_t op(OpKind k, std::int32_t layer = -1, std::size_t n = 0) const {
    for (std::uint32_t i = 0; i < p.ops.size(); ++i)
      if (p.ops[i].kind == k && p.ops[i].layer == layer && n-- == 0) return i;
    BOOST_FAIL("no such operation");
    return 0;
  }
  void drop(std::uint32_t i) {
    p.ops.erase(p.ops.begin() + i);
    resize(i, -1);
  }
  void repeat(std::uint32_t i) {
    p.ops.insert(p.ops.begin() + i, p.ops[i]);
    resize(i, 1);
  }
  /// Moves the operation at `from` directly before the one at `to`; both are in one section.
  void move(std::uint32_t from, std::uint32_t to) {
    const Op o = p.ops[from];
    p.ops.erase(p.ops.begin() + from);
    p.ops.insert(p.ops.begin() + (to > from ? to - 1 : to), o);
    settle();
  }
  /// Recomputes lifetimes and digest for the changed program; offsets stay.
  void settle() {
    plan.lifetime = lifetimes(p);
    plan.digest = digest(p, plan.offset);
  }

 private:
  void resize(std::uint32_t at, int by) {
    for (Section& s : p.sections) {
      if (s.begin > at) s.begin += static_cast<std::uint32_t>(by);
      if (s.end > at) s.end += static_cast<std::uint32_t>(by);
    }
    settle();
  }
};

/// Breaks a correct plan and expects a finding that contains all of `words`.
inline void rejected(const Case& c, const std::function<void(Broken&)>& sabotage,
                     std::initializer_list<const char*> words) {
  Broken b(c);
  BOOST_REQUIRE(check(b.p, b.plan).empty());
  sabotage(b);
  b.plan.digest = digest(b.p, b.plan.offset);
  const std::vector<std::string> found = check(b.p, b.plan);
  BOOST_CHECK_MESSAGE(!found.empty(), "the checker accepted a broken plan: " << *words.begin());
  for (const std::string& sentence : found) {
    bool all = true;
    for (const char* w : words) all = all && sentence.find(w) != std::string::npos;
    if (all) return;
  }
  std::string listing;
  for (std::size_t i = 0; i < found.size() && i < 12; ++i) listing += "\n  " + found[i];
  BOOST_CHECK_MESSAGE(false, "no finding contains \"" << *words.begin() << "\" ...; found:" << listing);
}

inline Case full_case() {
  Case c = everything_case();
  c.run.recompute = Recompute::kFull;
  return c;
}

}  // namespace trainhost::placement::test
