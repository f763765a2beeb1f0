// See read_files.hpp. Two steps: read each file, and those that it names, into one Job (file_kinds.cpp,
// rules_*.cpp), and derive what follows from several keys together (combine.cpp).
#include "core/framework_files/read_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/text.hpp"
#include "core/framework_files/combine.hpp"
#include "core/framework_files/file_kinds.hpp"
#include "core/framework_files/named_files.hpp"
#include "core/framework_files/python_job.hpp"

namespace trainhost::framework_files {
namespace {

/// "; a.yaml:2 sequence_lenn is not understood: did you mean sequence_len?" of the first such key, because a
/// misspelt key is the usual reason why a value is missing; "" without one.
std::string misspelt(const Job& job) {
  for (const runfile::FileKey& k : job.keys)
    if (k.use == runfile::KeyUse::kNotUnderstood && !k.note.empty())
      return fmt::format("; {}:{} {} is not understood: {}", escaped(k.where.file, 200), k.where.line,
                         escaped(k.key, 80), k.note);
  return "";
}

/// Throws the error for values that the files do not say.
[[noreturn]] void ask_unknown(const std::vector<Job::Unknown>& unknown) {
  std::string others, options, in_place;
  const auto add = [](std::string& list, const char* separator, const std::string& item) {
    if (list.find(item) == list.npos) list += (list.empty() ? "" : separator) + item;
  };
  for (const Job::Unknown& u : unknown) {
    if (&u != unknown.data()) add(others, ", ", fmt::format("{} = {}", escaped(u.key, 80), u.value));
    if (u.option.empty())
      add(in_place, ", ", escaped(u.key, 80));
    else
      add(options, " ", u.option);
  }
  std::string hint =
      options.empty() ? "" : fmt::format("give {}: {}", others.empty() ? "it" : "them", options);
  if (!in_place.empty())
    hint += fmt::format("{}write {} in its place", hint.empty() ? "" : "; ",
                        others.empty() ? "the value" : "the value of " + in_place);
  const Job::Unknown& first = unknown.front();
  throw usage_error(fmt::format("{} = {}: the file does not say what this is{}", escaped(first.key, 80),
                                first.value, others.empty() ? "" : ", nor " + others),
                    hint, first.where);
}

/// Throws for a key with two values that the plan needs.
void check_repeated(const File& f, const Job& job) {
  for (const Where& where : f.repeated)
    for (const runfile::FileKey& k : job.keys)
      if (k.where.file == where.file && k.where.line == where.line && k.where.column == where.column &&
          (k.use == runfile::KeyUse::kUsed || k.use == runfile::KeyUse::kNotModelled))
        throw usage_error(fmt::format("'{}' is given twice, with two values", escaped(k.key, 80)),
                          "remove one of the two", where);
}

/// Reports the values that a script assumes, each once, where a key that is used has them.
void add_assumed(const File& f, Job& job) {
  for (const File::Assumed& a : f.assumed) {
    const auto is_same = [](const Where& x, const Where& y) {
      return x.file == y.file && x.line == y.line && x.column == y.column;
    };
    const bool counts = a.where.file.empty() || std::ranges::any_of(job.keys, [&](const runfile::FileKey& k) {
                          return is_same(k.where, a.where) &&
                                 (k.use == runfile::KeyUse::kUsed || k.use == runfile::KeyUse::kNotModelled);
                        });
    const bool known = std::ranges::any_of(
        job.keys, [&](const runfile::FileKey& k) { return k.key == a.key.key && k.note == a.key.note; });
    if (counts && !known) job.keys.push_back(a.key);
  }
}

}  // namespace

JobFiles::JobFiles(const std::vector<std::string>& arguments) {
  for (const std::string& a : arguments) std::ranges::move(read_argument(a), std::back_inserter(files_));
  join_python(files_);
  add_named_files(files_);
  std::ranges::stable_sort(files_, {}, &File::kind);  // kinds() are in one array, in the order of reading
}

JobFiles::~JobFiles() = default;

FileSettings read_files(const std::vector<std::string>& arguments,
                        const std::vector<runfile::Override>& options) {
  return JobFiles(arguments).settings(options);
}

/// Rules ask for few options: a job is read again only where one of these is given now and was not before.
std::shared_ptr<const Job> JobFiles::read_with_options(const std::set<std::string>& options) const {
  const std::lock_guard guard(lock_);
  for (const std::shared_ptr<const Job>& known : read_)
    if (known->is_alike_with(options)) return known;
  auto job = std::make_shared<Job>();
  job->set_options(options);
  try {
    for (const File& f : files_) {
      f.kind->read(f.entries, *job);
      read_allocator(f.environment, *job);
      check_repeated(f, *job);
      add_assumed(f, *job);
    }
  } catch (const Error&) {  // may follow from a value that is not known
    if (job->unknown.empty()) throw;
  }
  if (!job->unknown.empty()) ask_unknown(job->unknown);
  read_.push_back(job);
  return job;
}

FileSettings JobFiles::settings(const std::vector<runfile::Override>& options) const {
  std::set<std::string> keys;
  for (const runfile::Override& o : options) keys.insert(o.key);
  Job job = *read_with_options(keys);
  job.set_options(std::move(keys));

  // Options come after the files, so that they win, and before combine(), which derives the rest from them.
  for (const runfile::Override& o : options) job.replace(o);
  try {
    combine(job);
  } catch (const Error& e) {
    throw Error(e.code(), e.what(), e.hint() + misspelt(job), e.where());
  }

  FileSettings out;
  if (!job.framework.empty())
    out.settings.push_back({"plan.framework", job.framework, "the kind of the files", {}});
  // Settings between rules ("@ranks") are no run-file keys; options are already known to the caller.
  for (const auto& [key, g] : job.settings())
    if (!key.starts_with('@') && !job.is_option(key)) out.settings.push_back({key, g.value, g.key, g.where});
  out.keys = std::move(job.keys);
  return out;
}

}  // namespace trainhost::framework_files
