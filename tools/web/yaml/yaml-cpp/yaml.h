// In place of yaml-cpp, which is not built for browsers: the part of its interface that
// core/framework_files/yaml_read.cpp uses, so that this file is compiled unchanged. The parser is
// small_yaml.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace YAML {

/// Position in the text, counted from 0, in bytes.
struct Mark {
  int line = 0, column = 0, pos = 0;
  bool is_null() const { return pos < 0; }  // none has no position here
};

struct Exception {
  Mark mark;
  std::string msg;
};

struct Element;

/// A value; copies share it, as aliases do.
class Node {
 public:
  enum class Kind { kNull, kScalar, kSequence, kMap };
  struct Data {
    Kind kind = Kind::kNull;
    Mark mark;
    std::string scalar, tag;        // tag "!": a scalar in quotation marks or a block, whose type is text
    std::vector<Element> elements;  // items of a sequence, members of a map
  };
  Node() : data(std::make_shared<Data>()) {}

  bool IsNull() const { return data->kind == Kind::kNull; }
  bool IsScalar() const { return data->kind == Kind::kScalar; }
  bool IsSequence() const { return data->kind == Kind::kSequence; }
  bool IsMap() const { return data->kind == Kind::kMap; }
  const std::string& Scalar() const { return data->scalar; }
  const std::string& Tag() const { return data->tag; }
  YAML::Mark Mark() const { return data->mark; }
  std::size_t size() const;
  const Element* begin() const;
  const Element* end() const;
  const Node& operator[](std::size_t i) const;

  std::shared_ptr<Data> data;
};

/// An item of a sequence is the node itself; a member of a map is `first` and `second`.
struct Element : Node {
  Element() = default;
  explicit Element(const Node& item) : Node(item) {}
  Element(const Node& key, const Node& value) : first(key), second(value) {}
  Node first, second;
};

inline std::size_t Node::size() const { return data->elements.size(); }
inline const Element* Node::begin() const { return data->elements.data(); }
inline const Element* Node::end() const { return begin() + size(); }
inline const Node& Node::operator[](std::size_t i) const { return data->elements[i]; }

/// The first document of the text. Throws Exception.
Node Load(const std::string& text);

}  // namespace YAML
