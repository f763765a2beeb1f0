// trainhost completion: the scripts that shells load. Each asks `trainhost complete` for the words, so that
// it fits the program that is installed; it contains only what is particular to its shell.
#include <fmt/format.h>

#include <string_view>

#include "core/base/text.hpp"
#include "tools/trainhost/arguments.hpp"
#include "tools/trainhost/completion_values.hpp"
#include "tools/trainhost/result_stream.hpp"

namespace trainhost::cli {
namespace {

// Bash splits words at '=' and ':'. They are joined before the program is asked, and what precedes the part
// under the cursor is cut from the answers.
constexpr std::string_view kBash =
    R"(# bash completion of trainhost. Load it with: source <(trainhost completion bash)
_trainhost() {
  local -a words=()
  local word joined=0 i
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == [=:] && ${#words[@]} -gt 0 ]]; then
      words[-1]+=$word
      joined=1
    elif ((joined)); then
      words[-1]+=$word
      joined=0
    else
      words+=("$word")
    fi
  done
  ((${#words[@]})) || words=("")
  local whole=${words[-1]} current=${COMP_WORDS[COMP_CWORD]}
  [[ $current == [=:] ]] && current=
  local before=${whole%"$current"} line path
  COMPREPLY=()
  while IFS= read -r line; do
    word=${line%%$'\t'*}
    case $word in
      :files | :folders)
        local prefix=${line#*$'\t'}
        local begin=${whole#"$prefix"}
        local kind=-f
        [[ $word == :folders ]] && kind=-d
        compopt -o filenames 2>/dev/null
        while IFS= read -r path; do
          path=$prefix$path
          COMPREPLY+=("${path#"$before"}")
        done < <(compgen $kind -- "$begin")
        ;;
      *)
        [[ $word == *[=:] ]] && compopt -o nospace 2>/dev/null
        COMPREPLY+=("${word#"$before"}")
        ;;
    esac
  done < <("${COMP_WORDS[0]}" complete "${words[@]}" 2>/dev/null)
}
complete -F _trainhost trainhost
)";

constexpr std::string_view kZsh = R"(#compdef trainhost
# zsh completion of trainhost. Load it with: source <(trainhost completion zsh)
_trainhost() {
  local -a plain open shown_plain shown_open
  local line word meaning prefix files
  for line in "${(@f)$("${words[1]}" complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    word=${line%%$'\t'*}
    meaning=${line#*$'\t'}
    case $word in
      '') ;;
      :files | :folders)
        files=$word
        prefix=$meaning
        ;;
      *[=:])
        open+=("$word")
        shown_open+=("$word  $meaning")
        ;;
      *)
        plain+=("$word")
        shown_plain+=("$word  $meaning")
        ;;
    esac
  done
  if (( ${#open} )); then compadd -S '' -l -d shown_open -a open; fi
  if (( ${#plain} )); then compadd -l -d shown_plain -a plain; fi
  # Last: without the prefix, the words above would not match.
  if [[ -n $prefix ]]; then compset -P "${(b)prefix}"; fi
  case $files in
    :files) _files ;;
    :folders) _files -/ ;;
  esac
}
if [[ ${funcstack[1]} == _trainhost ]]; then
  _trainhost "$@"
else
  compdef _trainhost trainhost
fi
)";

constexpr std::string_view kFish =
    R"(# fish completion of trainhost. Load it with: trainhost completion fish | source
function __trainhost_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete $words[2..-1] 2>/dev/null)
        set -l parts (string split -m 1 \t -- $line)
        switch $parts[1]
            case :files :folders
                set -l begin (string sub -s (math (string length -- "$parts[2]") + 1) -- (commandline -ct))
                for path in (__fish_complete_path "$begin")
                    echo "$parts[2]$path"
                end
            case '*'
                echo $line
        end
    end
end
complete -c trainhost -f -a '(__trainhost_complete)'
)";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return std::string(kBash);
  if (shell == "zsh") return std::string(kZsh);
  if (shell == "fish") return std::string(kFish);
  const std::vector<std::string> known{"bash", "zsh", "fish"};
  throw usage_error(
      fmt::format("no completion for the shell '{}'{}", escaped(shell, 80), did_you_mean(shell, known)),
      "expected bash, zsh or fish");
}

Exit run(const CompletionArguments& a) {
  fmt::print(result_stream(), "{}", completion_script(a.shell));
  return Exit::kDone;
}

}  // namespace trainhost::cli
