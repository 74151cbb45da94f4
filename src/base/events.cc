#include "base/events.h"

#include <algorithm>
#include <array>

namespace faultline {
namespace {

using enum Severity;

constexpr std::array kEvents{
    // A job's ordinary attempt.
    EventInfo{"lease_acquired", debug, "job", "", "A worker has claimed a job."},
    EventInfo{"execution_started", debug, "job", "", "A handler begins to run."},
    EventInfo{"job_settled", debug, "job", "outcome error?", "An attempt's outcome is committed."},
    // What else becomes of it.
    EventInfo{"execution_failed", info, "job", "error", "A handler threw, or said that it failed."},
    EventInfo{"job_buried", warning, "job", "outcome error?",
              "A handler sent its job to the dead letters, and that is committed."},
    EventInfo{"no_handler", warning, "job", "", "A job has come whose kind this worker does not know."},
    EventInfo{"jobs_released", info, "process", "jobs why error?", "Jobs were given back before they began."},
    EventInfo{"handler_abandoned", warning, "job", "",
              "A handler still ran when its worker's time to drain was over."},
    EventInfo{"handler_log", info, "job", "message",
              "A handler's own words, with its own fields and severity."},
    // A worker that came too late, or may soon.
    EventInfo{"heartbeat_lost", warning, "job", "leases error",
              "A heartbeat got no answer. The job is the one whose lease runs out first, of `leases`."},
    EventInfo{"lease_lost", warning, "job", "reason current_token? current_worker? current_state?",
              "A worker knows that a lease is gone: its handler is told to stop."},
    EventInfo{"stale_write_blocked", warning, "job",
              "verb reason current_token? current_worker? current_state? untold?",
              "The fence refused a write. A server tells of its workers' writes, with the late worker as "
              "`worker`; of those about jobs that there are not, ten a second."},
    EventInfo{
        "lease_expired", warning, "job", "lost_by next_state loss",
        "The watchdog ended a lease that ran out; `lost_by` is who held it, `loss` how far the job was."},
    EventInfo{
        "leases_expired", warning, "process", "leases workers lost_by unbegun? shared? alone?",
        "The watchdog ended more than ten leases at once, of so many workers, `lost_by` one of them; each "
        "has a line of severity `debug`."},
    EventInfo{"sweep_problem", error, "job", "message",
              "The watchdog could not end a lease that ran out. It tries again a minute later."},
    EventInfo{"settlement_refused", error, "job", "error", "An outcome cannot be stored, and is given up."},
    // What cannot be reached, and can again.
    EventInfo{"database_lost", error, "process", "error keys? untold?",
              "The database cannot be used. Told once, and once in ten seconds if it comes and goes; "
              "`untold` is how "
              "often it was not told."},
    EventInfo{"database_locked", warning, "process", "error untold?",
              "The database answers, and somebody else's lock is in the way. `faultline doctor` says whose."},
    EventInfo{"database_back", info, "process", "lasted_ms?",
              "The database can be used again, and how long it could not."},
    EventInfo{"private_postgres_lost", error, "process", "",
              "The PostgreSQL that a command runs for itself has died. It is started again."},
    EventInfo{"private_postgres_start_failed", error, "process", "error tries",
              "It could not be started again. After the fifth failure in a row the command ends."},
    EventInfo{
        "private_postgres_replaced", warning, "process", "",
        "An upgrade has replaced the files from which it runs. `faultline up` starts it anew; otherwise "
        "`faultline pg stop`, and start it again."},
    EventInfo{"private_postgres_back", info, "process", "", "It runs again."},
    EventInfo{"server_lost", error, "process", "error untold?",
              "A worker cannot reach its server. Told as above."},
    EventInfo{"server_back", info, "process", "lasted_ms", "A worker reaches its server again."},
    // Processes.
    EventInfo{"worker_started", info, "process", "slots queues", "A worker has begun to claim."},
    EventInfo{"worker_draining", info, "process", "running",
              "A worker stops claiming and lets its handlers finish."},
    EventInfo{"worker_exit", info, "process", "settled stale released abandoned unsettled",
              "A worker has ended."},
    EventInfo{"server_started", info, "process", "http grpc auth tls", "A server listens."},
    EventInfo{"server_draining", info, "process", "",
              "A server is not ready any more, and finishes what it has."},
    EventInfo{"server_exit", info, "process", "", "A server has ended."},
    // A server's wires.
    EventInfo{
        "http_error", error, "process", "method route status code cause untold? peer request",
        "A request failed with a status of 500 or more, and why. Ten a second are told, `untold` is how many "
        "were not."},
    EventInfo{"rpc_error", error, "process", "method code cause untold? peer request",
              "A gRPC call failed for a reason of the server's own, and why. Ten a second are told."},
    EventInfo{"caller_refused", warning, "process", "wire reason untold? peer request",
              "A call was refused for its key, or because it had none: `missing`, `malformed`, `unknown` (or "
              "revoked), `wrong_secret` or `expired`, with the part of the key that is no secret. Ten a "
              "second are told."},
    EventInfo{"call_answered", info, "process", "wire method route? status key took_ms peer request",
              "A call was answered. Told if `access_log` is set."},
    EventInfo{
        "foreign_leases_refused", warning, "process", "key leases untold?",
        "A key that is bound to queues named leases of jobs that are not of these. It was told that there "
        "are no such jobs."},
    EventInfo{"event_reader_dropped", warning, "process", "route",
              "A watcher of events was too slow, and was cut off."},
    EventInfo{"grpc_error", error, "process", "library message left_out?",
              "What gRPC or Protocol Buffers have to say, at most once a second; `left_out` were before it."},
    EventInfo{"tls_reloaded", info, "process", "certificate",
              "A changed certificate, key or client authority is in use."},
    EventInfo{"tls_reload_failed", warning, "process", "problem",
              "A changed certificate, key or client authority cannot be used; the old ones stay."},
    EventInfo{
        "grpc_flood_cut", warning, "process", "connections",
        "gRPC clients sent more than they let be answered, such as streams that are reset at once, and were "
        "cut. Told once a second at most."},
    EventInfo{"connections_limited", warning, "process", "descriptors http grpc",
              "The process may not have descriptors for all connections of the settings; `http` and `grpc` "
              "may have so many."},
    EventInfo{"wires_unanswered", error, "process", "why",
              "The server does not answer on its own addresses, and is not ready."},
    EventInfo{"wires_answered", info, "process", "", "It answers on them again."},
    // Traces.
    EventInfo{"spans_dropped", warning, "process", "spans why",
              "Spans could not be exported. Told at most once a minute."},
};

}  // namespace

std::span<const EventInfo> all_events() { return kEvents; }

const EventInfo* find_event(std::string_view name) {
  const auto found = std::ranges::find(kEvents, name, &EventInfo::name);
  return found == kEvents.end() ? nullptr : &*found;
}

std::vector<std::pair<std::string, std::string>> fields_of(const Stale& stale) {
  std::vector<std::pair<std::string, std::string>> fields{{"reason", std::string{to_string(stale.reason)}}};
  if (stale.current_token) fields.emplace_back("current_token", std::to_string(stale.current_token->value));
  if (stale.current_worker) fields.emplace_back("current_worker", *stale.current_worker);
  if (stale.current_state) fields.emplace_back("current_state", to_string(*stale.current_state));
  return fields;
}

}  // namespace faultline
