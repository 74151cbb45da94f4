#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/dsn.h"
#include "base/interrupt.h"
#include "keys/keys.h"
#include "keys/secret.h"
#include "keys/stored.h"
#include "schema/migrator.h"
#include "sql/statements.h"

namespace faultline::keys {
namespace {

using service::Code;
using service::Principal;
using service::Problem;
using service::ServiceResult;
using std::chrono::milliseconds;

/// How long it may take to connect, and to answer.
constexpr milliseconds kAnswerMax{10'000};

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

Problem unauthenticated(std::string message) {
  return {.code = Code::unauthenticated,
          .message = std::move(message),
          .hint = "send `Authorization: Bearer KEY`; make a key with `faultline keys create`"};
}

/// The same words whatever was wrong with a key: they help who holds one, and not who guesses.
Problem not_valid() { return unauthenticated("the key is not valid"); }

Problem ended() {
  return {.code = Code::unauthenticated,
          .message = "the key was revoked, or has expired",
          .hint =
              "use another key; jobs that were given out under it come back when their leases run out, or "
              "sooner if another key settles them"};
}

struct Known {
  Sha256 secret_hash{};
  std::unique_ptr<std::atomic<bool>> used =
      std::make_unique<std::atomic<bool>>(false);  ///< since it was read
  Principal who;
  std::optional<DatabaseTime> expires_at;
};

/// All good keys, as the database had them.
struct Snapshot {
  std::map<std::string, Known, std::less<>> by_id;
  DatabaseTime database_time;  ///< when they were read
  Deadline asked_at;           ///< the same moment or a little before, on this machine's clock

  [[nodiscard]] DatabaseTime now() const {
    return database_time +
           std::chrono::duration_cast<DatabaseTime::duration>(Deadline::clock::now() - asked_at);
  }
};

Snapshot read(const pg::Result& rows, Deadline asked_at) {
  Snapshot snapshot{.database_time = rows.get<DatabaseTime>(0, 0), .asked_at = asked_at};
  for (int row = 0; row < rows.rows() && !rows.is_null(row, 1); ++row) {
    Known known;
    const auto hash = rows.get<pg::BytesView>(row, 3);
    // The table says that it is 32 bytes.
    std::ranges::copy(hash.first(known.secret_hash.size()), known.secret_hash.begin());
    known.who.name = rows.get<std::string>(row, 2);
    known.who.scopes = scopes_of(rows.get<std::vector<std::string>>(row, 4));
    known.who.queues = rows.get<std::optional<std::vector<std::string>>>(row, 5);
    known.expires_at = rows.get<std::optional<DatabaseTime>>(row, 6);
    auto id = rows.get<std::string>(row, 1);
    known.who.id = public_part(id);
    snapshot.by_id.emplace(std::move(id), std::move(known));
  }
  return snapshot;
}

class RefreshedKeyring final : public Keyring {
 public:
  explicit RefreshedKeyring(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}
  ~RefreshedKeyring() override {
    interrupt_.fire();
    thread_.join();
  }

  [[nodiscard]] service::ServiceResult<Principal> authenticate(std::string_view bearer) const override {
    if (bearer.empty()) return refuse("missing", unauthenticated("this server asks for a key"));
    const std::shared_ptr<const Snapshot> keys = snapshot();
    if (!keys) {
      return std::unexpected(Problem{.code = Code::unavailable,
                                     .message = "the server has not read its keys from the database yet",
                                     .hint = "try again shortly",
                                     .retry_after = milliseconds{1'000}});
    }
    const auto text = parse_key(bearer);
    if (!text) return refuse("malformed", not_valid());
    const auto found = keys->by_id.find(text->id);
    // Whether there is a key of that id takes no other time than whether the secret is right.
    static const Known kNobody{};
    const Known& known = found == keys->by_id.end() ? kNobody : found->second;
    const bool right = same(hash_of(text->secret), known.secret_hash);
    const bool expired = known.expires_at && *known.expires_at <= keys->now();
    if (found == keys->by_id.end()) return refuse("unknown", not_valid(), public_part(text->id));
    if (!right) return refuse("wrong_secret", not_valid(), public_part(text->id));
    if (expired) return refuse("expired", not_valid(), public_part(text->id));
    if (!known.used->load(std::memory_order_relaxed)) known.used->store(true, std::memory_order_relaxed);
    return known.who;
  }

  [[nodiscard]] std::optional<Problem> still_good(const Principal& who) const override {
    const std::shared_ptr<const Snapshot> keys = snapshot();
    const auto id = id_of(who.id);
    if (!id || !keys) return std::nullopt;
    const auto found = keys->by_id.find(*id);
    const bool good =
        found != keys->by_id.end() && (!found->second.expires_at || *found->second.expires_at > keys->now());
    return good ? std::nullopt : std::optional{ended()};
  }

 private:
  /// Why is for the server's own log, with the part of the key that is no secret.
  [[nodiscard]] std::unexpected<Problem> refuse(std::string_view why, Problem problem,
                                                const std::string& key = {}) const {
    problem.cause = std::string{why} + (key.empty() ? "" : " " + key);
    if (options_.refused) options_.refused(why);
    return std::unexpected(std::move(problem));
  }

  [[nodiscard]] std::shared_ptr<const Snapshot> snapshot() const {
    const std::lock_guard lock{mutex_};
    return snapshot_;
  }

  void run() {
    std::optional<pg::Connection> connection;
    do {
      const auto problem = refresh(connection);
      if (interrupt_.fired()) return;
      if (problem) connection.reset();
      reached(problem);
    } while (!interrupt_.wait(in(options_.refresh)));
  }

  /// What was wrong, or nothing.
  std::optional<std::string> refresh(std::optional<pg::Connection>& connection) {
    if (!connection) {
      auto opened = pg::Connection::open(
          {.dsn = options_.database, .application_name = "faultline keys", .interrupt_fd = interrupt_.fd()},
          in(kAnswerMax));
      if (!opened) return opened.error().describe();
      if (const auto checked = schema::check(*opened, in(kAnswerMax)); !checked)
        return checked.error().describe();
      connection.emplace(std::move(*opened));
    }
    const Deadline asked_at = Deadline::clock::now();
    const auto rows = connection->exec(sql::kApiKeysGood, pg::Params{}.add(kBucket), in(kAnswerMax));
    if (!rows) return rows.error().describe();
    std::shared_ptr<const Snapshot> snapshot;
    try {
      snapshot = std::make_shared<const Snapshot>(read(*rows, asked_at));
    } catch (const pg::UnexpectedAnswer& unexpected) {
      return std::string{"the keys cannot be read: "} + unexpected.what();
    }
    {
      const std::lock_guard lock{mutex_};
      std::swap(snapshot_, snapshot);
    }
    if (snapshot) note_uses(*connection, *snapshot);
    return std::nullopt;
  }

  /// Says in the database which keys were used while they were known like this. If that fails, it is said
  /// when they are used the next time.
  static void note_uses(pg::Connection& connection, const Snapshot& before) {
    std::vector<std::string> used;
    for (const auto& [id, known] : before.by_id) {
      if (known.used->load(std::memory_order_relaxed)) used.push_back(id);
    }
    if (used.empty()) return;
    pg::Params params;
    params.add(kBucket);
    params.add_array(pg::Type::text, used, [](const std::string& id) { return id; });
    static_cast<void>(connection.exec(sql::kApiKeysUsed, params, in(kAnswerMax)));
  }

  void reached(const std::optional<std::string>& problem) {
    if (problem && !lost_)
      tell(Severity::error, "database_lost",
           {{"error", without_passwords_of(options_.database, *problem)},
            {"keys", snapshot() ? "the last ones known count" : "none known yet"}});
    if (!problem && lost_) tell(Severity::info, "database_back", {});
    lost_ = problem.has_value();
  }

  void tell(Severity severity, std::string_view name,
            std::vector<std::pair<std::string, std::string>> fields) const {
    if (!options_.log) return;
    options_.log({.name = name,
                  .severity = severity,
                  .at = std::chrono::system_clock::now(),
                  .worker = "keys",
                  .fields = std::move(fields)});
  }

  const Options options_;
  Interrupt interrupt_;
  bool lost_ = false;  // of the thread alone
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_;  // guarded by mutex_; null: not read yet
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Keyring> Keyring::start(Options options) {
  return std::make_unique<RefreshedKeyring>(std::move(options));
}

}  // namespace faultline::keys
