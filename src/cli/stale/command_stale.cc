#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <set>

#include "base/interrupt.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/jobs/job_options.h"
#include "cli/stale/stale_text.h"
#include "cli/support/failures.h"
#include "cli/support/table_text.h"
#include "codec/encode.h"

namespace faultline::cli {
namespace {

constexpr std::chrono::seconds kCallMax{10};
constexpr std::chrono::milliseconds kLookEvery{500};
constexpr std::size_t kPage = 1'000;
/// A write that was refused a while ago may be seen now only: its transaction took that long.
constexpr std::chrono::seconds kLateMax{60};

struct StaleRequest {
  std::string queue;
  std::string job;
  std::size_t limit = 50;
  bool follow = false;
};

/// The writes that are asked for, newest first.
class Evidence {
 public:
  Evidence(Store& store, const StaleRequest& request, std::optional<JobId> job)
      : store_(&store), request_(&request), job_(job) {}

  [[nodiscard]] Expected<std::vector<StaleWrite>> newest(std::size_t limit) const {
    std::vector<StaleWrite> found;
    std::optional<DatabaseTime> before;
    while (found.size() < limit) {
      auto page = store_->stale_writes(kPage, before);
      if (!page) return std::unexpected(to_failure(page.error()));
      for (StaleWrite& write : *page) {
        before = write.at;
        if (asked_for(write) && found.size() < limit) found.push_back(std::move(write));
      }
      if (page->size() < kPage) break;
    }
    return found;
  }

 private:
  [[nodiscard]] bool asked_for(const StaleWrite& write) const {
    return (request_->queue.empty() || write.queue == request_->queue) && (!job_ || write.job == *job_);
  }

  Store* store_;
  const StaleRequest* request_;
  std::optional<JobId> job_;
};

/// Which writes were shown. Remembers as much as is needed to tell a late one from one that was shown.
class Shown {
 public:
  [[nodiscard]] bool is_new(const StaleWrite& write) {
    if (write.at < newest_ - kLateMax) return false;
    newest_ = std::max(newest_, write.at);
    return keys_.emplace(write.at, write.id).second;
  }
  void forget_old() {
    while (!keys_.empty() && keys_.begin()->first < newest_ - kLateMax) keys_.erase(keys_.begin());
  }

 private:
  std::set<std::pair<DatabaseTime, Uuid>> keys_;
  DatabaseTime newest_{};
};

void print_line(const StaleWrite& write, bool json) {
  if (json) {
    JsonWriter out;
    codec::write(out, write);
    std::cout << printable_json(out.take()) << '\n';
  } else {
    std::cout << stale_line(write) << '\n';
  }
}

/// Tells the newest ones, and then every one that comes, until a signal or until nobody reads any more.
Expected<CommandResult> follow(Context& context, const Evidence& evidence, std::size_t limit) {
  Interrupt stopped;
  context.on_signal([&] { stopped.fire(); });
  Shown shown;
  std::expected<CommandResult, Failure> answer{};
  for (std::size_t look = limit;; look = kPage) {
    auto writes = evidence.newest(look);
    if (!writes) {
      answer = std::unexpected(writes.error());
      break;
    }
    std::ranges::reverse(*writes);
    for (const StaleWrite& write : *writes) {
      if (shown.is_new(write)) print_line(write, context.options().json);
    }
    shown.forget_old();
    std::cout << std::flush;
    if (!std::cout || stopped.wait(std::chrono::steady_clock::now() + kLookEvery)) break;
  }
  context.on_signal({});
  return answer;
}

Expected<CommandResult> list(const Evidence& evidence, std::size_t limit) {
  const auto writes = evidence.newest(limit);
  if (!writes) return std::unexpected(writes.error());
  std::vector<std::vector<std::string>> rows{stale_header()};
  for (const StaleWrite& write : *writes) rows.push_back(stale_cells(write));
  return CommandResult{.text = writes->empty() ? "No write was refused.\n" : table_text(rows),
                       .json_text = codec::list_body("stale_writes", *writes)};
}

Expected<CommandResult> show_evidence(Context& context, const StaleRequest& request) {
  auto store = context.open_store(kCallMax);
  if (!store) return std::unexpected(store.error());
  std::optional<JobId> job;
  if (!request.job.empty()) {
    const auto id = find_job_id(*store, request.job);
    if (!id) return std::unexpected(id.error());
    job = *id;
  }
  const Evidence evidence{*store, request, job};
  return request.follow ? follow(context, evidence, request.limit) : list(evidence, request.limit);
}

}  // namespace

void add_stale_command(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("stale", "Show the evidence: writes that the fence refused, newest first");
  command->fallthrough();
  const auto request = std::make_shared<StaleRequest>();
  command->add_option("--queue", request->queue, "Only of this queue")->type_name("NAME");
  command->add_option("--job", request->job, "Only of this job")->type_name("ID");
  command->add_option("--limit", request->limit, "At most this many")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  command->add_flag("--follow", request->follow,
                    "Go on and print each one that comes, one line each, until Ctrl-C");
  command->callback([&chosen, request] {
    chosen = [request](Context& context) { return show_evidence(context, *request); };
  });
}

}  // namespace faultline::cli
