"""Prints a script that completes commands, flags and values in a shell.

bert-tf completion bash > ~/.bert-tf.bash
bert-tf completion zsh > ~/.bert-tf.zsh
bert-tf completion fish > ~/.config/fish/completions/bert-tf.fish

To ~/.bashrc add `source ~/.bert-tf.bash`, to ~/.zshrc, after compinit, `source
~/.bert-tf.zsh`; fish reads its file by itself.
"""

from bert_tf.errors import UserError

from . import COMMANDS, command_line

# The flags are those of the help of what is typed, so --task adds its own; the
# values are those that `--complete` prints. Without any, files are completed.
_FLAGS = (
    "--help 2>/dev/null | sed -nE "
    r"-e 's/^  --\[no\]([a-z0-9_]+).*/--\1/p' "
    r"-e 's/^  --([a-z0-9_]+).*/--\1=/p'"
)
_SCRIPTS = {
    "bash": r"""_bert_tf() {
  local word="${COMP_WORDS[COMP_CWORD]}" typed last value
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W 'COMMANDS' -- "$word"))
    compopt +o nospace
  elif [[ ${COMP_LINE:0:COMP_POINT} != *[[:blank:]] ]]; then
    read -ra typed <<< "${COMP_LINE:0:COMP_POINT}"
    last="${typed[-1]}" value="${typed[-1]#*=}"
    unset 'typed[-1]'
    if [[ $last == --*=* ]]; then
      last="${last%%=*}" word="${value##*,}"
      COMPREPLY=($(compgen -P "${value%"$word"}" \
        -W "$("${typed[@]}" VALUES="${last#--}" 2>/dev/null)" -- "$word"))
    elif [[ $last == -* ]]; then
      COMPREPLY=($(compgen -W "$("${typed[@]}" FLAGS)" -- "$word"))
    fi
  fi
}
complete -o default -o nospace -F _bert_tf bert-tf""",
    "zsh": r"""_bert_tf() {
  if (( CURRENT == 2 )); then
    compadd -- COMMANDS
  elif [[ $PREFIX == -*=* ]]; then
    local flag=${${PREFIX%%=*}#--}
    local -a values
    values=($("${(@)words[1,CURRENT-1]}" VALUES=$flag 2>/dev/null))
    compset -P '*[=,]'
    if (( $#values )); then compadd -- $values; else _files; fi
  elif [[ $PREFIX == -* ]]; then
    compadd -S '' -- $("${(@)words[1,CURRENT-1]}" FLAGS)
  else
    _files
  fi
}
compdef _bert_tf bert-tf""",
    "fish": r"""function __bert_tf_flags
    set -l typed (commandline -opc)
    set -l flag (string match -r -- '^--(\w+)=' (commandline -ct))
    if set -q flag[2]
        string replace -r '^' $flag[1] ($typed VALUES=$flag[2] 2>/dev/null)
    else
        $typed FLAGS
    end
end
complete -c bert-tf -n __fish_use_subcommand -f -a 'COMMANDS'
complete -c bert-tf -n 'not __fish_use_subcommand' -a '(__bert_tf_flags)'""",
}


def main(shells: list[str]) -> None:
    """Prints the script of the shell."""
    if len(shells) != 1 or shells[0] not in _SCRIPTS:
        raise UserError(f"name one shell: {', '.join(_SCRIPTS)}.")
    script = _SCRIPTS[shells[0]].replace("COMMANDS", " ".join(COMMANDS))
    print(script.replace("FLAGS", _FLAGS).replace("VALUES", "--complete"))


if __name__ == "__main__":
    command_line.run_on_words(main, tensorflow=False)
