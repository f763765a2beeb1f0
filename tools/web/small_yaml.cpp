// Reads YAML 1.2 as far as configuration files use it: block and flow collections, plain and quoted scalars,
// block scalars, comments, anchors and aliases. Keys that are not words are refused. A recursive descent over
// the characters; the indentation of a collection is the column of its first key or dash.
#include <map>

#include "tools/web/yaml_scalars.hpp"

namespace YAML {
namespace {

constexpr int kMaxDepth = 64;  // bounds the recursion; yaml_read.cpp allows less

class Parser : ScalarReader {
 public:
  using ScalarReader::ScalarReader;

  Node document() {
    skip_to_token();
    while (peek() == '%' && column() == 0) {  // directives
      while (!at_end() && peek() != '\n') advance();
      skip_to_token();
    }
    if (at_marker("---")) {
      advance(3);
      const bool on_line = !at_line_end();
      Node n = value(-1, on_line ? Place::kAfterMarker : Place::kAfterDash);
      return finish(n);
    }
    return finish(value(-1, Place::kAfterDash));
  }

 private:
  enum class Place { kAfterMarker, kAfterDash, kAfterKey };

  struct Depth {
    explicit Depth(Parser& p) : parser(p) {
      if (++parser.depth_ > kMaxDepth) parser.fail("values are nested too deep");
    }
    ~Depth() { --parser.depth_; }
    Parser& parser;
  };

  Node finish(const Node& n) {
    skip_to_token();
    if (!at_document_end()) fail("text after the end of the document");
    return n;
  }

  /// Anchor and tag before a value or key. A tag other than "!" is not looked at: the type is that of the
  /// plain text.
  struct Properties {
    std::string anchor, tag;
    Mark at;  // where both begin: the position of the value
    bool none() const { return anchor.empty() && tag.empty(); }
  };
  Properties properties() {
    Properties p;
    for (skip_blanks(); peek() == '&' || peek() == '!'; skip_blanks()) {
      if (p.none()) p.at = mark();
      std::string& word = peek() == '&' ? p.anchor : p.tag;
      const std::size_t begin = peek() == '&' ? at_ + 1 : at_;
      do advance();
      while (!ends_word(0) && !is_flow_mark(peek()));
      word = text_.substr(begin, at_ - begin);
      if (word.empty()) fail("an anchor has no name");
    }
    return p;
  }
  Node with(const Properties& p, Node n) {
    if (p.none()) return n;
    n.data->mark = p.at;
    if (!p.tag.empty()) n.data->tag = p.tag;
    if (!p.anchor.empty()) anchors_[p.anchor] = n;
    return n;
  }
  Node alias() {
    const std::size_t begin = at_ + 1;
    do advance();
    while (!ends_word(0) && !is_flow_mark(peek()));
    const auto found = anchors_.find(text_.substr(begin, at_ - begin));
    if (found == anchors_.end()) fail("the alias *" + text_.substr(begin, at_ - begin) + " has no anchor");
    return found->second;
  }

  /// The value after a dash, a key or the begin of the document, whose collection has this column; -1: none.
  Node value(int parent, Place place) {
    const Depth depth(*this);
    const Mark empty_at = mark();
    skip_blanks();
    const std::size_t properties_at = at_;
    Properties p = properties();
    const bool other_line = at_line_end();
    if (other_line) {
      skip_to_token();
      // The dashes of a list may have the column of its key.
      const bool list = place == Place::kAfterKey && column() == parent && at_dash();
      if (at_document_end() || (column() <= parent && !list))
        return with(p, node(Node::Kind::kNull, empty_at));
      if (p.none()) p = properties_before_line_end();
      if (at_document_end() || (column() <= parent && !list))
        return with(p, node(Node::Kind::kNull, empty_at));
    }
    if (at_dash()) {
      if (!other_line && place != Place::kAfterDash) fail("a list cannot begin on the line of its key");
      return with(p, sequence(column()));
    }
    if (peek() == '?' && ends_word(1)) fail("a key is not a word");
    if (peek() == '|' || peek() == '>') return with(p, block_scalar(parent));
    if (key_ahead()) {
      if (!other_line && place != Place::kAfterDash) fail("a key cannot follow another on its line");
      if (other_line) return with(p, map(column()));
      at_ = properties_at;  // on the line of a key they are of the key
      return map(column());
    }
    Node n = peek() == '*' ? alias() : with(p, flow_or_scalar(parent));
    if (!at_line_end())
      fail(peek() == ':' ? "a key cannot follow another on its line" : "text after a value");
    return n;
  }

  /// Properties of a collection that stand on a line of their own.
  Properties properties_before_line_end() {
    if (peek() != '&' && peek() != '!') return {};
    const std::size_t at = at_;
    const auto anchors = anchors_;
    Properties p = properties();
    if (at_line_end())
      skip_to_token();
    else if (key_ahead())
      at_ = at, p = {};  // of the key
    return p;
  }

  Node sequence(int indent) {
    Node n = node(Node::Kind::kSequence, mark());
    while (!at_document_end() && column() == indent && at_dash()) {
      advance();
      n.data->elements.emplace_back(value(indent, Place::kAfterDash));
      skip_to_token();
    }
    if (!at_document_end() && column() > indent) fail("the indentation is not that of the list");
    return n;
  }

  Node map(int indent) {
    Node n = node(Node::Kind::kMap, mark());
    while (!at_document_end() && column() == indent && !at_dash()) {
      if (peek() == '?' && ends_word(1)) fail("a key is not a word");
      const Properties p = properties();
      if (!key_ahead()) fail("a key without a colon");
      const Node key = with(p, peek() == '*'                     ? alias()
                               : peek() == '"' || peek() == '\'' ? quoted()
                                                                 : plain_key());
      skip_blanks();
      if (!at_colon(false)) fail("a key without a colon");
      advance();
      n.data->elements.emplace_back(key, value(indent, Place::kAfterKey));
      skip_to_token();
    }
    if (!at_document_end() && column() > indent) fail("the indentation is not that of the keys above");
    return n;
  }

  Node plain_key() {
    Node n = node(Node::Kind::kScalar, mark());
    check_first_of_plain();
    n.data->scalar = plain_line(false);
    return n;
  }

  Node flow_or_scalar(int parent) {
    const char c = peek();
    if (c == '[' || c == '{') return flow_collection();
    if (c == '"' || c == '\'') return quoted();
    return plain(parent, false);
  }

  Node flow_value() {
    const Depth depth(*this);
    const Properties p = properties();
    skip_to_token(true);
    const char c = peek();
    if (c == '*') return alias();
    if (c == ',' || c == ']' || c == '}' || at_colon(true)) return with(p, node(Node::Kind::kNull, mark()));
    if (c == '[' || c == '{') return with(p, flow_collection());
    if (c == '"' || c == '\'') return with(p, quoted());
    if (at_dash()) fail("a list with dashes within brackets");
    return with(p, plain(-1, true));
  }

  Node flow_collection() {
    const Mark begin = mark();
    const bool list = peek() == '[';
    Node n = node(list ? Node::Kind::kSequence : Node::Kind::kMap, begin);
    advance();
    for (;;) {
      skip_to_token(true);
      if (at_end()) throw Exception{begin, "a bracket is not closed"};
      if (peek() == (list ? ']' : '}')) break;
      const Mark key_at = mark();
      const char first = peek();
      if (first == ',') fail("a value is missing before the comma");
      const Node key = flow_value();
      skip_to_token(true);
      if (at_colon(true, first == '"' || first == '\'')) {
        advance();
        skip_to_token(true);
        const Node v = flow_value();
        if (list) {
          Node pair = node(Node::Kind::kMap, key_at);
          pair.data->elements.emplace_back(key, v);
          n.data->elements.emplace_back(pair);
        } else {
          n.data->elements.emplace_back(key, v);
        }
      } else if (list) {
        n.data->elements.emplace_back(key);
      } else {
        n.data->elements.emplace_back(key, node(Node::Kind::kNull, mark()));
      }
      skip_to_token(true);
      if (peek() == ',')
        advance();
      else if (at_end())
        throw Exception{begin, "a bracket is not closed"};
      else if (peek() != (list ? ']' : '}'))
        fail("a comma or the closing bracket is missing");
    }
    advance();
    return n;
  }

  int depth_ = 0;
  std::map<std::string, Node> anchors_;
};

}  // namespace

Node Load(const std::string& text) { return Parser(text).document(); }

}  // namespace YAML
