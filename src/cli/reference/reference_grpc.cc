#include <fstream>

#include <google/protobuf/descriptor.pb.h>

#include "cli/reference/reference.h"

namespace faultline::cli {
namespace {

namespace pb = google::protobuf;
using Path = std::vector<int>;

/// The comments of a .proto, by the path of what they are about.
class Comments {
 public:
  explicit Comments(const pb::FileDescriptorProto& file) {
    for (const auto& location : file.source_code_info().location()) {
      // What follows on the line belongs to it as what stands above it does.
      const std::string text = location.leading_comments() + location.trailing_comments();
      if (!text.empty()) by_path_.emplace(Path{location.path().begin(), location.path().end()}, text);
    }
  }

  /// In one line.
  [[nodiscard]] std::string of(const Path& path) const {
    const auto found = by_path_.find(path);
    if (found == by_path_.end()) return "";
    std::istringstream words{found->second};
    std::string text;
    for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
    return text;
  }

 private:
  std::map<Path, std::string> by_path_;
};

Path below(Path path, int field, int index) {
  path.push_back(field);
  path.push_back(index);
  return path;
}

std::string paragraph(const std::string& text) { return text.empty() ? "" : text + "\n\n"; }

std::string anchor(std::string name) {
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  std::erase(name, '.');
  return name;
}

/// `.faultline.v1.Stale.Reason` as a link to the heading of that name.
std::string link(std::string type) {
  static constexpr std::string_view kOurs = ".faultline.v1.";
  if (!type.starts_with(kOurs)) return "`" + type.substr(1) + "`";
  type.erase(0, kOurs.size());
  return "[" + type + "](#" + anchor(type) + ")";
}

class Page {
 public:
  explicit Page(const pb::FileDescriptorProto& file) : file_(file), comments_(file) {}

  [[nodiscard]] std::string text() {
    page_ =
        generated_note("proto/faultline/v1/faultline.proto") + "# gRPC\n\n" + "The package is `" +
        file_.package() +
        "`; [the .proto](../../proto/faultline/v1/faultline.proto) is what clients are generated from, and "
        "[docs/workers-in-other-languages.md](../workers-in-other-languages.md) is the guide.\n\n" +
        comments_.of({pb::FileDescriptorProto::kSyntaxFieldNumber}) + "\n";
    for (int i = 0; i < file_.service_size(); ++i) add_service(file_.service(i), below({}, 6, i));
    page_ += "\n## Messages\n";
    for (int i = 0; i < file_.message_type_size(); ++i)
      add_message(file_.message_type(i), "", below({}, 4, i));
    page_ += "\n## Enumerations\n";
    for (int i = 0; i < file_.enum_type_size(); ++i) add_enum(file_.enum_type(i), "", below({}, 5, i));
    page_ += nested_enums_;
    return page_;
  }

 private:
  static std::string type_of(const pb::FieldDescriptorProto& field) {
    std::string text;
    if (field.label() == pb::FieldDescriptorProto::LABEL_REPEATED) text = "repeated ";
    if (field.proto3_optional()) text = "optional ";
    if (field.has_type_name()) return text + link(field.type_name());
    std::string name = pb::FieldDescriptorProto::Type_Name(field.type());
    return text + "`" + anchor(name.substr(std::string_view{"TYPE_"}.size())) + "`";
  }

  void add_service(const pb::ServiceDescriptorProto& service, const Path& path) {
    page_ += "\n## Service " + service.name() + "\n\n";
    page_ += "| call | takes | gives | |\n| --- | --- | --- | --- |\n";
    for (int i = 0; i < service.method_size(); ++i) {
      const auto& method = service.method(i);
      page_ += "| `" + method.name() + "` | " + (method.client_streaming() ? "stream of " : "") +
               link(method.input_type()) + " | " + (method.server_streaming() ? "stream of " : "") +
               link(method.output_type()) + " | " + table_cell(comments_.of(below(path, 2, i))) + " |\n";
    }
  }

  void add_message(const pb::DescriptorProto& message, const std::string& outer, const Path& path) {
    const std::string name = outer + message.name();
    page_ += "\n### " + name + "\n\n" + paragraph(comments_.of(path));
    page_ += message.field_size() == 0 ? "Without fields.\n" : "| field | type | |\n| --- | --- | --- |\n";
    for (int i = 0; i < message.field_size(); ++i) {
      const auto& field = message.field(i);
      page_ += "| `" + field.name() + "` = " + std::to_string(field.number()) + " | " + type_of(field) +
               " | " + table_cell(comments_.of(below(path, 2, i))) + " |\n";
    }
    for (int i = 0; i < message.nested_type_size(); ++i)
      add_message(message.nested_type(i), name + ".", below(path, 3, i));
    for (int i = 0; i < message.enum_type_size(); ++i)
      add_nested_enum(message.enum_type(i), name + ".", below(path, 4, i));
  }

  void add_nested_enum(const pb::EnumDescriptorProto& type, const std::string& outer, const Path& path) {
    std::swap(page_, nested_enums_);
    add_enum(type, outer, path);
    std::swap(page_, nested_enums_);
  }

  void add_enum(const pb::EnumDescriptorProto& type, const std::string& outer, const Path& path) {
    page_ += "\n### " + outer + type.name() + "\n\n" + paragraph(comments_.of(path));
    page_ += "| value | |\n| --- | --- |\n";
    for (int i = 0; i < type.value_size(); ++i) {
      page_ += "| `" + type.value(i).name() + "` = " + std::to_string(type.value(i).number()) + " | " +
               table_cell(comments_.of(below(path, 2, i))) + " |\n";
    }
  }

  const pb::FileDescriptorProto& file_;
  Comments comments_;
  std::string page_;
  std::string nested_enums_;
};

}  // namespace

Expected<std::string> grpc_reference(const std::filesystem::path& descriptors) {
  pb::FileDescriptorSet set;
  std::ifstream file{descriptors, std::ios::binary};
  if (!file || !set.ParseFromIstream(&file) || set.file_size() != 1)
    return std::unexpected(
        Failure{.code = "cannot_read",
                .message = descriptors.string() + " is no set of descriptors of one .proto",
                .hint = "make it with: protoc --include_source_info --descriptor_set_out=FILE"});
  return Page{set.file(0)}.text();
}

}  // namespace faultline::cli
