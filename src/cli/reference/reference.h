#pragma once

#include <filesystem>
#include <string>

#include "cli/reference/command_tree.h"
#include "cli/support/output.h"

namespace faultline::cli {

/// The pages of docs/reference/, in Markdown, each made from what the program itself goes by.
[[nodiscard]] std::string cli_reference(const CommandText& program);
[[nodiscard]] std::string configuration_reference();
[[nodiscard]] std::string http_reference();
/// From what protoc makes of the .proto with --include_source_info: the comments are the documentation, and
/// the descriptors that are compiled in have none.
[[nodiscard]] Expected<std::string> grpc_reference(const std::filesystem::path& descriptors);

/// Text in a cell of a table.
[[nodiscard]] std::string table_cell(std::string_view text);
/// The line on top that says where a page comes from.
[[nodiscard]] std::string generated_note(std::string_view source);

}  // namespace faultline::cli
