// The program `faultline`.

#include "cli/command_line.h"

int main(int argc, char** argv) {
  return faultline::cli::run_command_line(faultline::cli::faultline_program(), argc, argv);
}
