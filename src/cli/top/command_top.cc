#include <chrono>
#include <iostream>
#include <memory>

#include "base/interrupt.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/jobs/job_options.h"
#include "cli/support/current_database.h"
#include "cli/support/failures.h"
#include "cli/support/postgres_keeper.h"
#include "cli/support/terminal.h"
#include "cli/top/top_frame.h"

namespace faultline::cli {
namespace {

using std::chrono::milliseconds;

/// How long a look may take: also how long the view stands still when the database does not answer.
constexpr std::chrono::seconds kLookMax{5};
constexpr milliseconds kIntervalMin{100};
constexpr milliseconds kIntervalMax{3'600'000};

struct TopRequest {
  std::string interval = "1s";
  std::size_t count = 0;  ///< frames; 0: no end
  bool once = false;
};

/// Looks again and again, with the rates between two looks.
class TopSampler {
 public:
  TopSampler(Context& context, Store store) : context_(&context), store_(std::move(store)) {}

  [[nodiscard]] Expected<TopFrame> sample() {
    if (!connection_) {
      auto connection = context_->connect();
      if (!connection) return std::unexpected(connection.error());
      connection_.emplace(std::move(*connection));
    }
    auto frame = cli::sample(store_, *connection_, std::chrono::steady_clock::now() + kLookMax);
    if (!frame) {
      if (!connection_->usable()) connection_.reset();
      return std::unexpected(to_failure(frame.error()));
    }
    if (before_) add_rates(*frame, *before_);
    before_ = *frame;
    return std::move(*frame);
  }

 private:
  Context* context_;
  Store store_;
  std::optional<pg::Connection> connection_;
  std::optional<TopFrame> before_;
};

/// One frame after another: for a pipe or a file.
Expected<CommandResult> stream(TopSampler& sampler, const Interrupt& stopped, std::size_t count,
                               milliseconds interval, bool json) {
  for (std::size_t frames = 0;;) {
    const auto frame = sampler.sample();
    if (!frame) return std::unexpected(frame.error());
    if (json)
      std::cout << printable_json(
                       top_json(*frame).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
                << '\n'
                << std::flush;
    else
      std::cout << (frames > 0 ? "\n" : "") << top_text(*frame, false) << std::flush;
    if (++frames == count || !std::cout) return CommandResult{};
    if (stopped.wait(std::chrono::steady_clock::now() + interval)) return CommandResult{};
  }
}

/// The whole terminal, until q, a signal, or the last of `count` frames. A database that does not answer is
/// told, and asked again.
Expected<CommandResult> watch(TopSampler& sampler, const Interrupt& stopped, std::size_t count,
                              milliseconds interval) {
  const bool colours = colours_wanted();
  const FullScreen screen;
  std::string shown;
  for (std::size_t frames = 0; !stopped.fired();) {
    const auto frame = sampler.sample();
    if (frame)
      shown = top_text(*frame, colours, terminal_size()) + "\n" +
              coloured("q leaves", Colour::grey, colours) + "\n";
    screen.draw(frame ? shown
                      : coloured("The database does not answer; asking again: " + frame.error().message,
                                 Colour::red, colours) +
                            "\n" + shown);
    if (++frames == count) break;
    const auto next = std::chrono::steady_clock::now() + interval;
    for (char key = 0; !stopped.fired();) {
      const auto left = std::chrono::ceil<milliseconds>(next - std::chrono::steady_clock::now());
      if (left <= milliseconds{0}) break;
      key = screen.wait_for_key(left, stopped.fd());
      if (key == 'q' || key == 'Q') return CommandResult{};
    }
  }
  return CommandResult{};
}

Expected<CommandResult> top(Context& context, const TopRequest& request) {
  const auto interval = parse_duration_option("--interval", request.interval);
  if (!interval) return std::unexpected(interval.error());
  const milliseconds every = interval->value_or(std::chrono::seconds{1});
  if (every < kIntervalMin || every > kIntervalMax)
    return std::unexpected(
        wrong_usage("--interval: " + request.interval + " is out of bounds", "100 ms to 1 h are possible"));
  auto store = context.open_store(kLookMax);
  if (!store) return std::unexpected(store.error());
  TopSampler sampler{context, std::move(*store)};
  Interrupt stopped;
  context.on_signal([&] { stopped.fire(); });
  // What happens to it is seen in the frames.
  PostgresKeeper keeper{context, {}, [&stopped] { stopped.fire(); }};
  const bool json = context.options().json;
  const bool full_screen = !json && !request.once && on_terminal();
  const std::size_t count = request.once ? 1 : request.count > 0 || json || full_screen ? request.count : 1;
  auto answer =
      full_screen ? watch(sampler, stopped, count, every) : stream(sampler, stopped, count, every, json);
  keeper.stop();
  context.on_signal({});
  if (auto failure = keeper.failure()) return std::unexpected(std::move(*failure));
  return answer;
}

}  // namespace

void add_top_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "top", "Watch queues, workers and refused writes live; q leaves, and into a pipe it prints one frame");
  command->fallthrough();
  const auto request = std::make_shared<TopRequest>();
  command->add_option("--interval", request->interval, "Look again after this long")
      ->capture_default_str()
      ->type_name("DURATION");
  command->add_option("--count", request->count, "End after this many frames")
      ->check(CLI::Range(1, 1'000'000'000))
      ->type_name("N");
  command->add_flag("--once", request->once, "Print one frame as plain text and end");
  command->callback(
      [&chosen, request] { chosen = [request](Context& context) { return top(context, *request); }; });
}

}  // namespace faultline::cli
