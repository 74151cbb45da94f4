// The program `faultline-dev`, for those who work on Faultline and for its package: it measures `faultline`,
// and prints its documentation. It is not installed.

#include "cli/command_line.h"

namespace {

using namespace faultline::cli;

Program dev_program() {
  return {.name = "faultline-dev",
          .about = "Benchmarks and documentation of Faultline",
          .add_commands = [](CLI::App& app, Action& chosen) {
            add_bench_command(app, chosen);
            add_man_command(app, chosen);
            add_reference_command(app, chosen);
          }};
}

}  // namespace

int main(int argc, char** argv) { return run_command_line(dev_program(), argc, argv); }
