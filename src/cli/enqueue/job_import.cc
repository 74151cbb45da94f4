#include "cli/enqueue/job_import.h"

#include <filesystem>
#include <iostream>
#include <set>

#include "base/sha256.h"
#include "cli/enqueue/line_reader.h"
#include "cli/enqueue/progress_bar.h"
#include "cli/jobs/job_options.h"
#include "cli/support/failures.h"
#include "http/decode.h"
#include "store/validate.h"

namespace faultline::cli {
namespace {

constexpr std::size_t kBatchJobs = 1'000;
constexpr std::size_t kBatchBytes = 8'388'608;
/// A payload of the largest size, in base64, with room for the rest of the object.
constexpr std::size_t kLineBytesMax = 2'097'152;
constexpr std::size_t kProblemsMax = 20;

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

class Import {
 public:
  Import(Store* store, const ImportOptions& options, LineReader reader)
      : store_(store), options_(options), reader_(std::move(reader)), bar_("lines", reader_.size()) {}

  [[nodiscard]] Expected<ImportReport> run() {
    if (auto begun = take_given_id(); !begun) return std::unexpected(begun.error());
    std::string line;
    for (;;) {
      const auto more = reader_.next(line);
      if (!more && more.error().code != "line_too_long") return std::unexpected(more.error());
      if (more && !*more) break;
      if (more && is_blank(line)) continue;
      if (auto taken = more ? take(line) : refuse(more.error()); !taken)
        return std::unexpected(taken.error());
      if (batch_.size() == kBatchJobs || batch_bytes_ >= kBatchBytes) {
        if (auto sent = send(); !sent) return std::unexpected(sent.error());
      }
      if (!options_.quiet) bar_.update(reader_.bytes_read(), report_.lines);
    }
    if (auto sent = send(); !sent) return std::unexpected(sent.error());
    return std::move(report_);
  }

 private:
  struct Pending {
    NewJob job;
    std::uint64_t line;
  };

  [[nodiscard]] Expected<void> take_given_id() {
    report_.import_id = options_.import_id;
    if (report_.import_id.empty()) return {};
    if (const auto problem = store::check_name("import id", report_.import_id))
      return std::unexpected(to_failure(*problem));
    return {};
  }

  void make_id(const std::string& first_line) {
    constexpr std::size_t kIdDigits = 32;
    if (!report_.import_id.empty()) return;
    if (reader_.size()) {
      const std::string name = std::filesystem::absolute(options_.path).lexically_normal();
      report_.import_id =
          to_hex(sha256({bytes_of(name), bytes_of("\n"), bytes_of(first_line)})).substr(0, kIdDigits);
      return;
    }
    report_.import_id = Uuid::random().to_string();
    if (store_ != nullptr && !options_.quiet)
      std::cerr << "import id: " << report_.import_id
                << " (if this is interrupted, send the same input again with --import-id)\n";
  }

  [[nodiscard]] std::string place(std::uint64_t line) const {
    return (options_.path == "-" ? "standard input" : options_.path) + ":" + std::to_string(line);
  }

  [[nodiscard]] Expected<void> take(const std::string& line) {
    make_id(line);
    auto job = read(line);
    if (!job) return refuse(job.error());
    if (!job->idempotency_key)
      job->idempotency_key = "import:" + report_.import_id + ":" + std::to_string(reader_.line_number());
    ++report_.lines;
    batch_bytes_ += job->payload.size();
    batch_.push_back({.job = std::move(*job), .line = reader_.line_number()});
    return {};
  }

  [[nodiscard]] Expected<NewJob> read(const std::string& line) {
    const StoreOptions limits;
    auto jobs = http::decode_jobs(line, false, {.batch_max = 1, .depth_max = limits.json_depth_max});
    if (!jobs) {
      Failure failure = to_failure(jobs.error());
      if (failure.message.starts_with("the body")) failure.message.replace(0, 8, "the line");
      return std::unexpected(std::move(failure));
    }
    if (jobs->batch) return std::unexpected(wrong_usage("the line is an array", "put one object on a line"));
    NewJob& job = jobs->jobs.front();
    if (const auto problem = store::check_job(
            job, {.payload_bytes_max = limits.payload_bytes_max, .json_depth_max = limits.json_depth_max}))
      return std::unexpected(to_failure(*problem));
    if (auto known = check_queue(job.queue); !known) return std::unexpected(known.error());
    return std::move(job);
  }

  [[nodiscard]] Expected<void> check_queue(const std::string& queue) {
    if (store_ == nullptr || queues_.contains(queue)) return {};
    const auto queues = store_->queues();
    if (!queues) return std::unexpected(to_failure(queues.error()));
    for (const Queue& each : *queues) queues_.insert(each.name);
    if (queues_.contains(queue)) return {};
    return std::unexpected(Failure{.code = "unknown_queue",
                                   .message = "there is no queue \"" + queue + "\"",
                                   .hint = "make it with: faultline queues set " + queue + " --create"});
  }

  /// A bad line: the end, or one more of those that are passed over.
  [[nodiscard]] Expected<void> refuse(const Failure& why) {
    const bool first = report_.lines == 0;
    const bool only_looks = store_ == nullptr;
    // What could not be asked is not the line's fault.
    if (why.exit_code != ExitCode::wrong_usage && why.code != "unknown_queue" &&
        why.code != "line_too_long" && why.code != "payload_invalid" && why.code != "payload_too_large")
      return std::unexpected(why);
    Failure failure{.code = "bad_line", .message = place(reader_.line_number()) + ": " + why.message};
    if (options_.skip_bad && !only_looks && first && options_.import_id.empty() && reader_.size()) {
      failure.hint =
          "the first line names the import, and so is not passed over: correct it, or give --import-id";
      return std::unexpected(std::move(failure));
    }
    ++report_.lines;
    ++report_.bad;
    note(failure.message + (why.hint.empty() ? "" : " (" + why.hint + ")"));
    if (options_.skip_bad || only_looks) return {};
    failure.hint = (why.hint.empty() ? "" : why.hint + "; ") + how_to_go_on();
    return std::unexpected(std::move(failure));
  }

  [[nodiscard]] std::string how_to_go_on() const {
    const std::string id =
        options_.import_id.empty() && !reader_.size() ? " with --import-id " + report_.import_id : "";
    const std::uint64_t from = batch_.empty() ? reader_.line_number() : batch_.front().line;
    return "nothing from line " + std::to_string(from) +
           " on was added; correct the line where it stands and run the same import again" + id +
           ": what was added is not added twice; or add --skip-bad to pass over bad lines";
  }

  [[nodiscard]] Expected<void> send() {
    if (store_ != nullptr && !batch_.empty()) {
      std::vector<NewJob> jobs;
      jobs.reserve(batch_.size());
      for (Pending& pending : batch_) jobs.push_back(std::move(pending.job));
      const auto submissions = store_->enqueue(jobs);
      if (!submissions) return std::unexpected(not_sent(submissions.error()));
      for (std::size_t i = 0; i < batch_.size(); ++i) count((*submissions)[i], batch_[i].line);
    }
    batch_.clear();
    batch_bytes_ = 0;
    return {};
  }

  [[nodiscard]] Failure not_sent(const Error& error) const {
    Failure failure = to_failure(error);
    failure.message = place(batch_.front().line) + " to line " + std::to_string(batch_.back().line) + ": " +
                      failure.message;
    failure.hint =
        (failure.hint.empty() ? "" : failure.hint + "; ") + "run the same import again" +
        (reader_.size() || !options_.import_id.empty() ? "" : " with --import-id " + report_.import_id) +
        ": what was added is not added twice";
    return failure;
  }

  void count(const Submission& submission, std::uint64_t line) {
    switch (submission.status) {
      case Submission::Status::created:
        ++report_.created;
        break;
      case Submission::Status::existing:
        ++report_.existing;
        break;
      case Submission::Status::conflict:
        ++report_.conflicts;
        note(place(line) +
             ": its key is another job's, with another kind or payload: " + submission.job.to_string());
        break;
    }
  }

  void note(std::string problem) {
    if (report_.problems.size() < kProblemsMax) report_.problems.push_back(std::move(problem));
  }

  Store* store_;
  const ImportOptions& options_;
  LineReader reader_;
  ProgressBar bar_;
  std::vector<Pending> batch_;
  std::size_t batch_bytes_ = 0;
  std::set<std::string, std::less<>> queues_;
  ImportReport report_;
};

}  // namespace

Expected<ImportReport> import_jobs(Store* store, const ImportOptions& options) {
  auto reader = LineReader::open(options.path, kLineBytesMax);
  if (!reader) return std::unexpected(reader.error());
  return Import{store, options, std::move(*reader)}.run();
}

}  // namespace faultline::cli
