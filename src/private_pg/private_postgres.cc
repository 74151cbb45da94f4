#include "private_pg/private_postgres.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>

#include "pg/connection.h"
#include "private_pg/binaries.h"
#include "private_pg/data_dir.h"
#include "private_pg/process.h"

namespace faultline {
namespace {

namespace fs = std::filesystem;
using private_pg::Binaries;
using private_pg::Command;
using private_pg::DataDir;
using private_pg::fail;
using private_pg::FileLock;
using private_pg::Process;
using private_pg::ServerUser;
using Errc = PrivatePostgresErrc;
template <class T>
using Expected = private_pg::Expected<T>;

constexpr std::string_view kSuperuser = "faultline";
constexpr std::chrono::seconds kFastShutdownMax{30};
constexpr std::chrono::seconds kImmediateShutdownMax{10};

Deadline in(std::chrono::milliseconds duration) { return std::chrono::steady_clock::now() + duration; }

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 128 && std::isalnum(byte) != 0) || std::string_view{"-._~"}.contains(c)) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4U];
      encoded += kDigits[byte & 15U];
    }
  }
  return encoded;
}

std::string url(const fs::path& socket_dir, std::string_view database) {
  return "postgresql:///" + percent_encoded(database) + "?host=" + percent_encoded(socket_dir.string()) +
         "&port=5432&user=" + std::string{kSuperuser};
}

std::string quoted_identifier(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) quoted += c == '"' ? std::string{"\"\""} : std::string{c};
  return quoted + "\"";
}

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Given on the command line, where neither postgresql.conf nor ALTER SYSTEM can undo them.
Settings server_settings(const PrivatePostgresOptions& options, const fs::path& socket_dir) {
  const std::string durable = options.durable ? "on" : "off";
  Settings settings{
      {"listen_addresses", ""},
      {"port", "5432"},
      {"unix_socket_directories", socket_dir.string()},
      {"unix_socket_permissions", "0700"},
      {"fsync", durable},
      {"full_page_writes", durable},
      {"synchronous_commit", durable},
      // Fewer, smoother checkpoints: a queue rewrites the same pages, and each checkpoint makes it log
      // them whole again.
      {"checkpoint_timeout", "15min"},
      {"max_wal_size", "2GB"},
      {"shared_buffers", "512MB"},
      {"wal_buffers", "16MB"},
      // Loaded once and for all sessions: an upgrade may replace PostgreSQL's files while it runs.
      {"shared_preload_libraries", "plpgsql"},
      // Queue statements are short; compiling them costs more than running them.
      {"jit", "off"},
      // Segments in /dev/shm are removed when their user logs out of systemd, and are small in containers.
      {"dynamic_shared_memory_type", "mmap"},
      {"timezone", "UTC"},
      {"log_timezone", "UTC"},
      {"logging_collector", "off"},
      {"log_destination", "stderr"},
      {"log_checkpoints", "off"},
  };
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  return settings;
}

std::string disk_hint(const std::string& log_tail, const DataDir& dir) {
  if (log_tail.find("No space left on device") != std::string::npos)
    return "the disk is full: free some space, or choose another directory with --data-dir";
  return "the whole log is in " + dir.log().string();
}

}  // namespace

fs::path default_data_dir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return fs::path{state} / "faultline";
  if (::geteuid() == 0) return "/var/lib/faultline";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fs::path{home} / ".local/state/faultline";
  std::array<char, 16'384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found);
  return (found != nullptr ? fs::path{found->pw_dir} : fs::temp_directory_path()) / ".local/state/faultline";
}

class PrivatePostgres::Impl {
 public:
  Impl(PrivatePostgresOptions options, DataDir dir) : options_(std::move(options)), dir_(std::move(dir)) {}

  Expected<void> join();
  Expected<StopOutcome> leave();
  /// Without what belongs to it: the directory of its socket stays.
  Expected<void> end_process(const Process& postmaster);
  Expected<StopOutcome> stop_if_unused(FileLock& users);
  [[nodiscard]] std::optional<Process> running_postmaster() const;

  PrivatePostgresOptions options_;
  DataDir dir_;
  FileLock users_;
  ServerUser user_;
  fs::path socket_dir_;
  std::string dsn_;
  bool started_here_ = false;

 private:
  Expected<void> prepare_user();
  /// Fails with `otherwise` where the server's user is kept out.
  [[nodiscard]] Expected<void> check_can_enter(const fs::path& directory, Errc otherwise,
                                               const std::string& hint) const;
  Expected<void> make_cluster(const Binaries& binaries, Deadline deadline);
  Expected<Process> launch(Deadline deadline);
  Expected<void> end_orphans(Deadline deadline);
  Expected<void> bring_up(Deadline deadline);
  /// False when the server went away while we waited.
  Expected<bool> wait_until_ready(const Process& postmaster, Deadline deadline);
  [[nodiscard]] pg::Expected<pg::Connection> connect(Deadline deadline) const;
  Expected<void> make_database(Deadline deadline);
  Expected<void> end_postmaster(const Process& postmaster);

  std::uintmax_t log_start_ = 0;
};

std::optional<Process> PrivatePostgres::Impl::running_postmaster() const {
  const auto file = dir_.postmaster_file();
  if (!file || file->pid <= 0) return std::nullopt;
  return private_pg::open_postgres_process(file->pid, user_, dir_.cluster());
}

Expected<void> PrivatePostgres::Impl::prepare_user() {
  auto user = private_pg::choose_server_user(dir_.cluster());
  if (!user) return std::unexpected(user.error());
  user_ = std::move(*user);
  return check_can_enter(dir_.root(), Errc::data_dir_unusable,
                         "choose a --data-dir that every user can reach, such as /var/lib/faultline");
}

Expected<void> PrivatePostgres::Impl::check_can_enter(const fs::path& directory, Errc otherwise,
                                                      const std::string& hint) const {
  if (!user_.drop_privileges) return {};
  const auto closed = private_pg::first_unreachable_directory(user_, directory);
  if (!closed) return {};
  return fail(otherwise,
              "PostgreSQL does not run as root, so it runs as the user " + user_.name +
                  ", who cannot enter " + closed->string(),
              hint + ", or open that directory with: chmod o+x " + closed->string());
}

Expected<void> PrivatePostgres::Impl::make_cluster(const Binaries& binaries, Deadline deadline) {
  auto log = dir_.open_log();
  if (!log) return std::unexpected(log.error());
  auto draft = dir_.make_cluster_draft(user_);
  if (!draft) return std::unexpected(draft.error());
  // No passwords: the socket's directory keeps everybody out but the server's user and root.
  Command initdb{
      .argv = {binaries.initdb(), "--pgdata=" + draft->string(), "--username=" + std::string{kSuperuser},
               "--encoding=UTF8", "--locale=C", "--data-checksums", "--auth-local=trust",
               "--auth-host=reject", "--no-instructions"},
      .user = &user_,
      .output = log->get()};
  if (!options_.durable) initdb.argv.emplace_back("--no-sync");
  const auto result = private_pg::run_tool(initdb, deadline, options_.stop);
  if (result.succeeded) return dir_.adopt_cluster_draft(*draft);
  std::error_code ignored;
  fs::remove_all(*draft, ignored);
  if (options_.stop.stop_requested()) return fail(Errc::interrupted, "interrupted");
  const std::string tail = dir_.log_tail(log_start_);
  return fail(Errc::start_failed, "cannot make a PostgreSQL cluster: " + result.problem,
              disk_hint(tail, dir_), tail);
}

/// Backends of a postmaster that was killed hold the old shared memory, and no server can start beside
/// them. They end by themselves once idle; a busy one is ended as the postmaster would have ended it.
Expected<void> PrivatePostgres::Impl::end_orphans(Deadline deadline) {
  for (const auto& orphan : private_pg::postgres_processes(user_, dir_.cluster())) {
    orphan.send(SIGQUIT);
    if (!orphan.wait_exited(std::min(deadline, in(kImmediateShutdownMax)), options_.stop)) {
      if (options_.stop.stop_requested()) return fail(Errc::interrupted, "interrupted");
      return fail(Errc::timed_out,
                  "process " + std::to_string(orphan.pid()) +
                      " of the previous server, whose main process died, does not end",
                  "wait until it has ended, or end it with: kill -9 " + std::to_string(orphan.pid()));
    }
  }
  return {};
}

Expected<Process> PrivatePostgres::Impl::launch(Deadline deadline) {
  std::optional<int> version;
  if (dir_.has_cluster()) {
    const auto read = dir_.cluster_version();
    if (!read) return std::unexpected(read.error());
    version = *read;
  }
  const auto binaries = private_pg::find_binaries(version);
  if (!binaries) return std::unexpected(binaries.error());
  if (auto entered = check_can_enter(binaries->directory, Errc::binaries_missing,
                                     "put PostgreSQL's programs where every user can reach them");
      !entered)
    return std::unexpected(entered.error());
  auto log = dir_.open_log();
  if (!log) return std::unexpected(log.error());
  std::error_code ignored;
  log_start_ = fs::file_size(dir_.log(), ignored);
  if (!version)
    if (auto made = make_cluster(*binaries, deadline); !made) return std::unexpected(made.error());
  if (auto ended = end_orphans(deadline); !ended) return std::unexpected(ended.error());
  auto socket_dir = dir_.make_socket_dir(user_);
  if (!socket_dir) return std::unexpected(socket_dir.error());
  dir_.remove_traces_of_dead_server(*socket_dir);

  Command server{
      .argv = {binaries->postgres(), "-D", dir_.cluster().string()}, .user = &user_, .output = log->get()};
  for (const auto& [name, value] : server_settings(options_, *socket_dir)) {
    server.argv.emplace_back("-c");
    server.argv.push_back(name + "=" + value);
  }
  auto process = private_pg::spawn_detached(server);
  if (process) return std::move(*process);
  const std::string tail = dir_.log_tail(log_start_);
  return fail(Errc::start_failed, process.error(), disk_hint(tail, dir_), tail);
}

pg::Expected<pg::Connection> PrivatePostgres::Impl::connect(Deadline deadline) const {
  pg::ConnectOptions options;
  options.dsn = url(socket_dir_, "postgres");
  return pg::Connection::open(options, deadline);
}

Expected<bool> PrivatePostgres::Impl::wait_until_ready(const Process& postmaster, Deadline deadline) {
  std::string last_problem = "it has not finished starting";
  while (!postmaster.exited()) {
    const auto file = dir_.postmaster_file();
    if (file && file->pid == postmaster.pid() && file->ready) {
      socket_dir_ = file->socket_dir;
      dsn_ = url(socket_dir_, options_.database);
      const auto connection = connect(deadline);
      if (connection) return true;
      last_problem = connection.error().describe();
    }
    if (private_pg::pause_before_next_look(deadline, options_.stop)) continue;
    if (options_.stop.stop_requested()) return fail(Errc::interrupted, "interrupted");
    return fail(Errc::timed_out,
                "the private PostgreSQL (process " + std::to_string(postmaster.pid()) +
                    ") does not accept connections yet: " + last_problem,
                "it may be recovering from a crash: it goes on with that, so try again in a while, and see " +
                    dir_.log().string(),
                dir_.log_tail(log_start_));
  }
  return false;
}

Expected<void> PrivatePostgres::Impl::bring_up(Deadline deadline) {
  started_here_ = false;
  while (true) {
    auto postmaster = running_postmaster();
    const bool launched = !postmaster;
    if (launched) {
      auto process = launch(deadline);
      if (!process) return std::unexpected(process.error());
      postmaster = std::move(*process);
    }
    const auto ready = wait_until_ready(*postmaster, deadline);
    if (!ready) {
      if (launched && ready.error().code == Errc::interrupted) (void)end_postmaster(*postmaster);
      return std::unexpected(ready.error());
    }
    started_here_ = launched;
    if (*ready) return {};
    postmaster->reap();
    if (!launched) continue;  // it was on its way down when we found it
    const std::string tail = dir_.log_tail(log_start_);
    return fail(Errc::start_failed, "the private PostgreSQL ended while it was starting",
                disk_hint(tail, dir_), tail);
  }
}

Expected<void> PrivatePostgres::Impl::make_database(Deadline deadline) {
  constexpr pg::Statement kFind{"private_pg_find_database",
                                "SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1"};
  auto problem = [&](const pg::Error& error) {
    return fail(Errc::start_failed, "cannot make the database " + options_.database + ": " + error.describe(),
                "see " + dir_.log().string());
  };
  auto connection = connect(deadline);
  if (!connection) return problem(connection.error());
  const auto found = connection->exec(kFind, pg::Params{}.add(options_.database), deadline);
  if (!found) return problem(found.error());
  if (found->rows() > 0) return {};
  const auto made =
      connection->exec_script("CREATE DATABASE " + quoted_identifier(options_.database), deadline);
  if (!made) return problem(made.error());
  return {};
}

Expected<void> PrivatePostgres::Impl::join() {
  const Deadline deadline = in(options_.start_timeout);
  const auto starting =
      FileLock::acquire(dir_.start_lock(), FileLock::Mode::exclusive, deadline, options_.stop);
  if (!starting) return std::unexpected(starting.error());
  if (!users_.held()) {
    auto users = FileLock::acquire(dir_.users_lock(), FileLock::Mode::shared, deadline, options_.stop);
    if (!users) return std::unexpected(users.error());
    users_ = std::move(*users);
  }
  auto result = prepare_user();
  if (result) result = bring_up(deadline);
  if (result) result = make_database(deadline);
  if (result && options_.keep_running) result = dir_.set_keep_running(true);
  return result;
}

Expected<void> PrivatePostgres::Impl::end_postmaster(const Process& postmaster) {
  if (auto ended = end_process(postmaster); !ended) return ended;
  if (!socket_dir_.empty()) dir_.remove_socket_dir(socket_dir_);
  return {};
}

Expected<void> PrivatePostgres::Impl::end_process(const Process& postmaster) {
  postmaster.send(SIGINT);
  if (!postmaster.wait_exited(in(kFastShutdownMax))) {
    postmaster.send(SIGQUIT);
    if (!postmaster.wait_exited(in(kImmediateShutdownMax)))
      return fail(Errc::stop_failed,
                  "the private PostgreSQL (process " + std::to_string(postmaster.pid()) + ") does not stop",
                  "see " + dir_.log().string());
  }
  postmaster.reap();
  return {};
}

/// The caller holds start.lock, and `users` is its own hold on users.lock.
Expected<PrivatePostgres::StopOutcome> PrivatePostgres::Impl::stop_if_unused(FileLock& users) {
  const bool last = users.try_upgrade();
  const auto postmaster = running_postmaster();
  if (!postmaster) return StopOutcome::not_running;
  if (!last) return StopOutcome::still_used;
  if (dir_.kept_running()) return StopOutcome::kept_running;
  if (const auto file = dir_.postmaster_file()) socket_dir_ = file->socket_dir;
  if (auto ended = end_postmaster(*postmaster); !ended) return std::unexpected(ended.error());
  return StopOutcome::stopped;
}

Expected<PrivatePostgres::StopOutcome> PrivatePostgres::Impl::leave() {
  if (!users_.held()) return StopOutcome::not_running;
  // Without start.lock we must not stop anything; leaving is safe, and the next user adopts the server.
  const auto stopping =
      FileLock::acquire(dir_.start_lock(), FileLock::Mode::exclusive, in(options_.start_timeout), {});
  if (!stopping) {
    users_.release();
    return std::unexpected(stopping.error());
  }
  auto outcome = stop_if_unused(users_);
  users_.release();
  return outcome;
}

PrivatePostgres::PrivatePostgres(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PrivatePostgres::PrivatePostgres(PrivatePostgres&&) noexcept = default;

PrivatePostgres& PrivatePostgres::operator=(PrivatePostgres&& other) noexcept {
  if (this != &other) {
    if (impl_) (void)impl_->leave();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

PrivatePostgres::~PrivatePostgres() {
  if (impl_) (void)impl_->leave();
}

std::expected<PrivatePostgres, PrivatePostgresError> PrivatePostgres::start(
    const PrivatePostgresOptions& options) {
  auto dir = DataDir::open_or_create(options.data_dir);
  if (!dir) return std::unexpected(dir.error());
  PrivatePostgres server{std::make_unique<Impl>(options, std::move(*dir))};
  if (auto joined = server.impl_->join(); !joined) {
    // A server that is still recovering is left to it; the next start finds it.
    if (joined.error().code == Errc::timed_out) server.impl_->users_.release();
    return std::unexpected(joined.error());
  }
  return server;
}

const std::string& PrivatePostgres::dsn() const { return impl_->dsn_; }

std::string PrivatePostgres::dsn_for(std::string_view database) const {
  return url(impl_->socket_dir_, database);
}

bool PrivatePostgres::started_here() const { return impl_->started_here_; }

pid_t PrivatePostgres::postmaster_pid() const {
  const auto postmaster = impl_->running_postmaster();
  return postmaster ? postmaster->pid() : 0;
}

std::expected<void, PrivatePostgresError> PrivatePostgres::ensure_running() { return impl_->join(); }

bool PrivatePostgres::files_replaced() const {
  const auto postmaster = impl_->running_postmaster();
  if (!postmaster) return false;
  std::error_code unreadable;
  const fs::path program =
      fs::read_symlink("/proc/" + std::to_string(postmaster->pid()) + "/exe", unreadable);
  return !unreadable && program.string().ends_with(" (deleted)");
}

std::expected<void, PrivatePostgresError> PrivatePostgres::renew() {
  if (const auto postmaster = impl_->running_postmaster()) {
    // Its socket's directory stays: whoever uses the server finds it there again.
    if (auto ended = impl_->end_process(*postmaster); !ended) return std::unexpected(ended.error());
  }
  return impl_->join();
}

std::expected<PrivatePostgres::StopOutcome, PrivatePostgresError> PrivatePostgres::stop() {
  return impl_->leave();
}

std::expected<PrivatePostgres::Status, PrivatePostgresError> PrivatePostgres::inspect(
    const PrivatePostgresOptions& options) {
  Status status;
  status.data_dir = fs::absolute(options.data_dir).lexically_normal();
  auto dir = DataDir::open_existing(options.data_dir);
  if (!dir) return std::unexpected(dir.error());
  if (!*dir || !(*dir)->has_cluster()) return status;
  Impl impl{options, std::move(**dir)};
  auto user = private_pg::choose_server_user(impl.dir_.cluster());
  if (!user) return std::unexpected(user.error());
  impl.user_ = std::move(*user);
  status.data_dir = impl.dir_.root();
  status.keep_running = impl.dir_.kept_running();
  const auto postmaster = impl.running_postmaster();
  const auto file = impl.dir_.postmaster_file();
  if (!postmaster || !file) return status;
  status.running = true;
  status.postmaster_pid = postmaster->pid();
  status.dsn = url(file->socket_dir, options.database);
  return status;
}

std::expected<PrivatePostgres::StopOutcome, PrivatePostgresError> PrivatePostgres::stop_server(
    const PrivatePostgresOptions& options) {
  auto dir = DataDir::open_existing(options.data_dir);
  if (!dir) return std::unexpected(dir.error());
  if (!*dir) return StopOutcome::not_running;
  Impl impl{options, std::move(**dir)};
  auto user = private_pg::choose_server_user(impl.dir_.cluster());
  if (!user) return std::unexpected(user.error());
  impl.user_ = std::move(*user);
  const Deadline deadline = in(options.start_timeout);
  const auto stopping =
      FileLock::acquire(impl.dir_.start_lock(), FileLock::Mode::exclusive, deadline, options.stop);
  if (!stopping) return std::unexpected(stopping.error());
  auto users = FileLock::acquire(impl.dir_.users_lock(), FileLock::Mode::shared, deadline, options.stop);
  if (!users) return std::unexpected(users.error());
  if (auto forgotten = impl.dir_.set_keep_running(false); !forgotten)
    return std::unexpected(forgotten.error());
  return impl.stop_if_unused(*users);
}

}  // namespace faultline
