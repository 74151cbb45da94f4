#pragma once

#include <chrono>
#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "faultline/error.h"
#include "faultline/event.h"
#include "faultline/job.h"
#include "faultline/transaction.h"

namespace faultline {

// How a handler says that an attempt ended other than in success: return one of these, or throw it. Any other
// exception is a failure with the exception's text.

/// Again later, or the dead letters when the attempts are used up.
struct Fail {
  std::string error;
  std::optional<std::chrono::milliseconds> retry_in{};  ///< instead of the backoff
  operator Outcome() const { return Outcome::failure(error, retry_in); }
};
/// Again later; the attempt does not count.
struct Snooze {
  std::chrono::milliseconds delay{};
  operator Outcome() const { return Outcome::snooze(delay); }
};
/// The job ends, as cancelled.
struct Cancel {
  std::string reason;
  operator Outcome() const { return Outcome::cancel(reason); }
};
/// The dead letters at once: another attempt would not help.
struct Bury {
  std::string error;
  operator Outcome() const { return Outcome::bury(error); }
};

/// Why a handler should stop.
enum class StopReason {
  none,
  lease_lost,  ///< nothing of this attempt can be committed any more
  cancelled,   ///< the job is to be cancelled; its attempt cannot succeed
  run_max,     ///< the job's maximum run time is over
  draining,    ///< the worker stops; what is finished in time counts
};
[[nodiscard]] std::string_view to_string(StopReason reason);

/// Thrown by `Context::throw_if_stopped`. Do not catch it: the worker knows what to do with the job
/// (cancelled: it ends so; draining: it is released, and the attempt does not count).
class Stopped : public std::exception {
 public:
  explicit Stopped(StopReason reason) : reason_(reason) {}
  [[nodiscard]] StopReason reason() const { return reason_; }
  [[nodiscard]] const char* what() const noexcept override { return "the attempt was told to stop"; }

 private:
  StopReason reason_;
};

/// A fenced call was refused: this attempt is no longer the job's current one. Do not catch it: whatever the
/// handler would still do, nothing of it could be committed.
class LeaseLost : public std::exception {
 public:
  explicit LeaseLost(Stale stale) : stale_(std::move(stale)) {}
  [[nodiscard]] const Stale& stale() const { return stale_; }
  [[nodiscard]] const char* what() const noexcept override { return "the lease on the job is lost"; }

 private:
  Stale stale_;
};

/// The database could not be reached, or refused. Do not catch it: the attempt fails and is tried again.
class StoreError : public std::exception {
 public:
  explicit StoreError(Error error) : error_(std::move(error)), text_(error_.describe()) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  Error error_;
  std::string text_;
};

/// Thrown out of a `once` step by the step itself: it did not happen, and may safely be tried by another
/// attempt. Any other exception leaves the effect unknown.
class NotDone : public std::exception {
 public:
  explicit NotDone(std::string why) : why_(std::move(why)) {}
  [[nodiscard]] const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

/// An effect that an earlier attempt began and never recorded: it may have happened, and may not.
struct UnknownEffect {
  std::string id;          ///< the same in every attempt: what the other side was asked to deduplicate by
  FenceToken begun_under;  ///< the token of the attempt that began it
};

/// Thrown by `once` when an effect is unknown and the caller did not say what to do then. If it
/// leaves the handler the job is buried: somebody has to check whether the effect happened, to say so
/// (`Client::decide_effect`), and to requeue the job.
class EffectUnknown : public std::exception {
 public:
  EffectUnknown(std::string key, UnknownEffect effect);
  [[nodiscard]] const UnknownEffect& effect() const { return effect_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  UnknownEffect effect_;
  std::string text_;
};

/// For `once`: an unknown effect is run again. Right when the other side deduplicates by the effect's id.
struct RunAgain {};
inline constexpr RunAgain run_again{};

/// For `once`: asks the other side about an unknown effect. A value: it happened, and gave this. Nothing: it
/// did not happen, and is run. An exception: it is still not known.
using Reconcile = std::function<std::optional<std::string>(const UnknownEffect&)>;

/// What a handler and a `once` step return to be kept: text, which may be any bytes. Nothing else turns into
/// text by itself: whoever returns a number or JSON says how it is written (`std::to_string`, `dump()`).
template <class T>
concept Text = std::same_as<std::remove_cvref_t<T>, std::string> ||
               std::same_as<std::remove_cvref_t<T>, std::string_view> ||
               std::same_as<std::decay_t<T>, const char*> || std::same_as<std::decay_t<T>, char*>;

/// What a handler knows of its attempt, and all it can do about it. Every call that writes is fenced. Good
/// until the handler returns. Thread-safe, except `commit`, which is the attempt's end.
class Context {
 public:
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const ClaimedJob& job() const;
  [[nodiscard]] const std::string& payload() const { return job().payload; }
  [[nodiscard]] int attempt() const { return job().attempt; }
  /// Grows with every claim of the job. Hand it to stores that can refuse an older writer.
  [[nodiscard]] FenceToken token() const { return job().lease.token; }
  /// What to send downstream as W3C `traceparent`: this execution's span, if the worker exports spans, else
  /// the job's own. Empty: the job belongs to no trace.
  [[nodiscard]] const std::string& traceparent() const;
  /// Until when the lease is good by this process's clock if no renewal succeeds from now on. Renewals move
  /// it.
  [[nodiscard]] std::chrono::steady_clock::time_point deadline() const;

  /// Fires when the lease is lost, the job is to be cancelled, its maximum run time is over, or the worker
  /// drains. A handler that runs for more than a moment should check it, or wait on it.
  [[nodiscard]] std::stop_token stop_token() const;
  [[nodiscard]] StopReason stop_reason() const;
  /// Throws Stopped if the stop token has fired.
  void throw_if_stopped() const;

  /// How far it is, 0 to 1, for people. Cheap: only the latest report is written, a few times a second.
  void progress(double fraction, std::string_view note = {});
  /// Makes the lease good for at least this long from now. Throws LeaseLost, StoreError.
  void extend(std::chrono::milliseconds at_least);
  /// Asks the database whether this attempt is still the current one. Throws LeaseLost, StoreError.
  void check_fence();
  /// A line in the log with the job's fields attached.
  void log(std::string_view message, std::vector<std::pair<std::string, std::string>> fields = {});
  void log(Severity severity, std::string_view message,
           std::vector<std::pair<std::string, std::string>> fields = {});

  /// The fenced transaction: the handler's own SQL and the attempt's outcome commit together or not at all.
  /// If the lease is lost all of it is rolled back, and LeaseLost is thrown. The job is settled when this
  /// returns, with what `body` returned (as a handler returns it); the handler returns next, and what it
  /// returns then is ignored.
  ///
  /// `body` may be run again, from the beginning, after a deadlock or a lost connection: its effects are
  /// those it has through the transaction. An exception of its own rolls back and is rethrown; the job is not
  /// settled.
  template <class F>
  void commit(const F& body) {
    commit_with([&](Transaction& tx) { return as_outcome([&]() -> decltype(auto) { return body(tx); }); });
  }

  /// The memoised step: `step` runs, and the text that it returns is recorded under (job, key). A later
  /// attempt gets the recorded text and does not run it; a stale attempt cannot record, and throws LeaseLost.
  ///
  /// Between doing and recording there is a gap that no queue can close. If an attempt dies in it, the effect
  /// is unknown to the next one. Then `EffectUnknown` is thrown, unless told otherwise: `run_again`, or a
  /// function that asks the other side (Reconcile).
  template <class F>
  std::string once(std::string_view key, const F& step) {
    return once_with(key, as_step(step), Unknown::refuse, {});
  }
  template <class F>
  std::string once(std::string_view key, const F& step, RunAgain) {
    return once_with(key, as_step(step), Unknown::run, {});
  }
  template <class F>
  std::string once(std::string_view key, const F& step, const Reconcile& reconcile) {
    return once_with(key, as_step(step), Unknown::ask, reconcile);
  }
  /// The same in every attempt of this job: what the other side of a `once` step should deduplicate by.
  [[nodiscard]] std::string effect_id(std::string_view key) const;

  /// What a callable returns, as an outcome: nothing or text (success), an Outcome, or Fail, Snooze, Cancel,
  /// Bury.
  template <class F>
  static Outcome as_outcome(const F& call) {
    using R = std::invoke_result_t<F>;
    if constexpr (std::is_void_v<R>) {
      call();
      return Outcome::success();
    } else if constexpr (std::convertible_to<R, Outcome>) {
      return call();
    } else {
      static_assert(Text<R>,
                    "a handler returns nothing, text, an Outcome, or Fail, Snooze, Cancel or Bury; write "
                    "anything else as text yourself, such as std::to_string(number) or json.dump()");
      return Outcome::success(std::string{call()});
    }
  }

  class Impl;
  explicit Context(Impl& impl) : impl_(impl) {}

 private:
  enum class Unknown { refuse, run, ask };
  using Step = std::function<std::string()>;

  template <class F>
  static Step as_step(const F& step) {
    using R = std::invoke_result_t<const F&>;
    if constexpr (std::is_void_v<R>) {
      return [&step] {
        step();
        return std::string{};
      };
    } else {
      static_assert(Text<R>,
                    "a once step returns nothing or text, which is recorded as it is; write anything else as "
                    "text yourself, such as std::to_string(number) or json.dump()");
      return [&step] { return std::string{step()}; };
    }
  }
  void commit_with(const std::function<Outcome(Transaction&)>& body);
  std::string once_with(std::string_view key, const Step& step, Unknown unknown, const Reconcile& reconcile);

  Impl& impl_;
};

/// What a worker runs for a kind of job: any callable that takes `Context&` and returns nothing or text
/// (success), an Outcome, or Fail, Snooze, Cancel, Bury. It is called from several threads at once.
class Handler {
 public:
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Handler> && std::invocable<const F&, Context&>)
  Handler(F call)
      : call_([call = std::move(call)](Context& context) {
          return Context::as_outcome([&]() -> decltype(auto) { return call(context); });
        }) {}

  Outcome operator()(Context& context) const { return call_(context); }

 private:
  std::function<Outcome(Context&)> call_;
};

}  // namespace faultline
