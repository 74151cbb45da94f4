// A process that uses a private PostgreSQL: `private_pg_user DIR [BARRIER]` waits until the file BARRIER
// exists, starts or shares the server, prints its postmaster's number, whether it started it, and
// its URL, and leaves on SIGINT or SIGTERM.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

#include "private_pg/private_postgres.h"

int main(int argc, char** argv) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);

  if (argc > 2) {
    std::cout << "waiting" << std::endl;
    while (!std::filesystem::exists(argv[2])) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  faultline::PrivatePostgresOptions options;
  options.data_dir = argv[1];
  options.durable = false;
  auto server = faultline::PrivatePostgres::start(options);
  if (!server) {
    std::cerr << server.error().describe() << std::endl;
    return 1;
  }
  std::cout << "ready " << server->postmaster_pid() << ' ' << server->started_here() << ' ' << server->dsn()
            << std::endl;
  int signal = 0;
  ::sigwait(&set, &signal);
  const auto stopped = server->stop();
  return stopped ? 0 : 1;
}
