// Reads YAML 1.2 as far as configuration files use it: block and flow collections, plain and quoted scalars,
// block scalars, comments, anchors and aliases. Keys that are not words are refused. A recursive descent over
// the characters; the indentation of a collection is the column of its first key or dash.
#include <algorithm>
#include <map>
#include <string_view>

#include "tools/web/yaml/yaml-cpp/yaml.h"

namespace YAML {
namespace {

constexpr int kMaxDepth = 64;  // bounds the recursion; yaml_read.cpp allows less
constexpr std::size_t npos = std::string::npos;

bool is_flow_mark(char c) { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

void append_utf8(std::string& out, unsigned long c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr unsigned kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kFirst[more] | (c >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3f));
}

class Parser {
 public:
  explicit Parser(const std::string& text) {
    const std::size_t bom = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
    for (std::size_t i = bom; i < text.size(); ++i) {  // lines end with \n here
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
      text_ += text[i] == '\r' ? '\n' : text[i];
    }
  }

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

  [[noreturn]] void fail(const std::string& what) const { throw Exception{mark(), what}; }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool at_end() const { return at_ >= text_.size(); }
  int column() const { return static_cast<int>(at_ - line_begin_); }
  Mark mark() const { return {line_, column()}; }
  void advance(std::size_t n = 1) {
    for (; n > 0 && !at_end(); --n)
      if (text_[at_++] == '\n') ++line_, line_begin_ = at_;
  }
  bool ends_word(std::size_t ahead) const {
    const char c = peek(ahead);
    return at_ + ahead >= text_.size() || is_blank(c) || c == '\n';
  }
  bool at_marker(const char* three) const {
    return column() == 0 && text_.compare(at_, 3, three) == 0 && ends_word(3);
  }
  bool at_document_end() const { return at_end() || at_marker("---") || at_marker("..."); }
  bool at_dash() const { return peek() == '-' && ends_word(1); }
  /// A colon that ends a key. After a key in quotation marks in a flow collection no blank is needed.
  bool at_colon(bool flow, bool quoted = false) const {
    return peek() == ':' && (ends_word(1) || (flow && (quoted || is_flow_mark(peek(1)))));
  }
  bool at_comment() const {
    return peek() == '#' && (at_ == 0 || is_blank(text_[at_ - 1]) || text_[at_ - 1] == '\n');
  }

  void skip_blanks() {
    while (is_blank(peek())) advance();
  }
  /// Skips blanks and a comment on this line.
  bool at_line_end() {
    skip_blanks();
    if (at_comment())
      while (!at_end() && peek() != '\n') advance();
    return at_end() || peek() == '\n';
  }
  /// To the next token on this or a later line.
  void skip_to_token(bool flow = false) {
    while (at_line_end() && !at_end()) advance();
    const std::size_t tab = text_.find('\t', line_begin_);
    if (!flow && tab < at_ && text_.find_first_not_of(" \t", line_begin_) == at_)
      fail("a tab cannot be used for indentation");
  }

  Node node(Node::Kind kind, Mark where) const {
    Node n;
    n.data->kind = kind;
    n.data->mark = where;
    return n;
  }

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

  /// Whether a key and its colon are next on this line.
  bool key_ahead() const {
    std::size_t i = at_;
    const char first = peek();
    while (i < text_.size() && (text_[i] == '&' || text_[i] == '!') && i == at_) {
      while (i < text_.size() && !is_blank(text_[i]) && text_[i] != '\n') ++i;
      while (i < text_.size() && is_blank(text_[i])) ++i;
    }
    if (first == '[' || first == '{' || first == '#') return false;
    const char quote = i < text_.size() ? text_[i] : '\0';
    if (quote == '"' || quote == '\'') {
      for (++i; i < text_.size() && text_[i] != quote && text_[i] != '\n'; ++i)
        if (quote == '"' && text_[i] == '\\') ++i;
      for (++i; i < text_.size() && is_blank(text_[i]); ++i) {
      }
      return i < text_.size() && text_[i] == ':' && ends_word(i + 1 - at_);
    }
    for (; i < text_.size() && text_[i] != '\n'; ++i) {
      if (text_[i] == ':' && ends_word(i + 1 - at_)) return true;
      if (text_[i] == '#' && i > 0 && is_blank(text_[i - 1])) return false;
    }
    return false;
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

  void check_first_of_plain() const {
    constexpr std::string_view kReserved = ",[]{}#&*!|>'\"%@`";
    if (kReserved.find(peek()) != npos) fail(std::string("a value cannot begin with ") + peek());
  }

  /// The rest of a plain scalar on this line, without blanks at its end.
  std::string plain_line(bool flow) {
    const std::size_t begin = at_;
    while (!at_end() && peek() != '\n' && !at_colon(flow) && !at_comment() && !(flow && is_flow_mark(peek())))
      advance();
    std::size_t end = at_;
    while (end > begin && is_blank(text_[end - 1])) --end;
    return text_.substr(begin, end - begin);
  }

  /// Line ends within a scalar: one becomes a blank, each further one a line end.
  static std::string folded(std::size_t line_ends) {
    return line_ends == 1 ? " " : std::string(line_ends - 1, '\n');
  }

  Node plain(int parent, bool flow) {
    Node n = node(Node::Kind::kScalar, mark());
    check_first_of_plain();
    std::string& s = n.data->scalar = plain_line(flow);
    while (peek() == '\n') {
      const std::size_t at = at_, begin = line_begin_;
      const int line = line_;
      std::size_t ends = 0;
      for (; peek() == '\n'; ++ends) {
        advance();
        skip_blanks();
      }
      const bool ends_here = at_document_end() || at_comment() ||
                             (flow ? is_flow_mark(peek()) || at_colon(true) : column() <= parent);
      if (ends_here) {
        at_ = at, line_begin_ = begin, line_ = line;
        break;
      }
      if (!flow && key_ahead()) fail("a key is in the middle of a value; check the indentation");
      s += folded(ends) + plain_line(flow);
    }
    return n;
  }

  Node quoted() {
    Node n = node(Node::Kind::kScalar, mark());
    n.data->tag = "!";
    std::string& s = n.data->scalar;
    const char quote = peek();
    std::size_t kept = 0;  // bytes of s that blanks before a line end do not shorten: escapes
    for (advance(); at_end() || peek() != quote || (quote == '\'' && peek(1) == '\'');) {
      if (at_end()) throw Exception{n.data->mark, "a quotation mark is not closed"};
      if (at_document_end()) fail("the document ends within quotation marks");
      if (peek() == '\n') {
        while (s.size() > kept && is_blank(s.back())) s.pop_back();
        std::size_t ends = 0;
        while (peek() == '\n') {
          advance(), ++ends;
          skip_blanks();
        }
        s += folded(ends);
      } else if (quote == '\'' && peek() == '\'') {
        s += '\'', advance(2);
      } else if (quote == '"' && peek() == '\\') {
        escape(s);
        kept = s.size();
      } else {
        s += peek(), advance();
      }
    }
    advance();
    return n;
  }

  void escape(std::string& out) {
    advance();
    const char c = peek();
    constexpr std::string_view kNames = "0abt\tnvfre \"/\\", kMeanings{"\0\a\b\t\t\n\v\f\r\x1b \"/\\", 14};
    if (c == '\n') {  // the line goes on, after empty lines
      advance();
      for (skip_blanks(); peek() == '\n'; skip_blanks()) out += '\n', advance();
    } else if (const std::size_t i = kNames.find(c); i != npos) {
      out += kMeanings[i], advance();
    } else if (c == 'N' || c == '_' || c == 'L' || c == 'P') {
      append_utf8(out, c == 'N' ? 0x85 : c == '_' ? 0xa0 : c == 'L' ? 0x2028 : 0x2029), advance();
    } else if (const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0) {
      advance();
      unsigned long code = hexadecimal(digits);
      // JSON writes characters beyond U+FFFF as two halves.
      if (code >= 0xd800 && code < 0xdc00 && peek() == '\\' && peek(1) == 'u') {
        advance(2);
        code = 0x10000 + ((code - 0xd800) << 10) + (hexadecimal(4) - 0xdc00);
      }
      if (code > 0x10ffff) fail("not a character");
      append_utf8(out, code);
    } else {
      fail(std::string("the escape \\") + c + " is not known");
    }
  }

  unsigned long hexadecimal(int digits) {
    unsigned long code = 0;
    for (; digits > 0; --digits, advance()) {
      const char h = peek();
      const int d = h >= '0' && h <= '9'   ? h - '0'
                    : h >= 'a' && h <= 'f' ? h - 'a' + 10
                    : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                           : -1;
      if (d < 0) fail("an escape has too few digits");
      code = code * 16 + static_cast<unsigned long>(d);
    }
    return code;
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

  Node block_scalar(int parent) {
    Node n = node(Node::Kind::kScalar, mark());
    n.data->tag = "!";
    const bool fold = peek() == '>';
    char chomp = ' ';
    int indent = -1;
    for (advance(); !ends_word(0); advance()) {
      if (peek() == '+' || peek() == '-')
        chomp = peek();
      else if (peek() >= '1' && peek() <= '9')
        indent = std::max(parent, 0) + (peek() - '0');
      else
        fail("this is not the head of a text block");
    }
    if (!at_line_end()) fail("text after the head of a text block");
    advance();
    std::string& s = n.data->scalar;
    std::size_t ends = 0;        // line ends since the last line with text
    bool after_indented = true;  // the last line keeps the line ends around it; the first has none before
    bool any = false;
    while (!at_end()) {
      std::size_t text_at = text_.find_first_not_of(' ', line_begin_);
      if (text_at == npos) text_at = text_.size();
      const int blanks = static_cast<int>(text_at - line_begin_);
      const bool empty = text_at == text_.size() || text_[text_at] == '\n';
      if (empty && (indent < 0 || blanks <= indent)) {
        advance(static_cast<std::size_t>(blanks));
        if (at_end()) break;
        advance(), ++ends;
        continue;
      }
      if (indent < 0) indent = blanks;
      if (blanks < indent || indent <= parent || at_document_end()) break;
      const std::size_t begin = line_begin_ + static_cast<std::size_t>(indent),
                        end = std::min(text_.find('\n', begin), text_.size());
      const bool indented = is_blank(text_[begin]);
      if (any && fold && !indented && !after_indented)
        s += folded(ends);
      else
        s += std::string(ends, '\n');
      s += text_.substr(begin, end - begin);
      any = true, after_indented = indented, ends = 0;
      advance(end - at_);
      if (!at_end()) advance(), ends = 1;
    }
    if (chomp == '+')
      s += std::string(ends, '\n');
    else if (chomp == ' ' && any && ends > 0)
      s += '\n';
    return n;
  }

  std::string text_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 0, depth_ = 0;
  std::map<std::string, Node> anchors_;
};

}  // namespace

Node Load(const std::string& text) { return Parser(text).document(); }

}  // namespace YAML
