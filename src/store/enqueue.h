#pragma once

#include "store/backend.h"

namespace faultline::store {

/// Of jobs that were checked.
[[nodiscard]] Expected<std::vector<Submission>> enqueue(Backend& backend, std::span<const NewJob> jobs,
                                                        KeyConflict on_conflict, Deadline deadline);
/// Inside the transaction that is open on a connection of the caller's. Conflicts are refused.
[[nodiscard]] Expected<std::vector<Submission>> enqueue_in(Backend& backend, pg::Connection& connection,
                                                           std::span<const NewJob> jobs, Deadline deadline);
/// The problem with jobs, if there is one.
[[nodiscard]] std::optional<Error> check_jobs(Backend& backend, std::span<const NewJob> jobs,
                                              Deadline deadline);
/// `enqueue_in` of jobs that were checked.
[[nodiscard]] pg::Expected<std::vector<Submission>> add_jobs_in(Backend& backend, pg::Connection& connection,
                                                                std::span<const NewJob> jobs,
                                                                Deadline deadline);
[[nodiscard]] Expected<std::size_t> enqueue_bulk(Backend& backend,
                                                 const std::function<std::optional<NewJob>()>& next);

}  // namespace faultline::store
