"""`crawler completion bash|zsh|fish` and `crawler man [COMMAND]`, generated from the parsers of the commands."""

import argparse
import importlib
from collections.abc import Iterator
from typing import NamedTuple

from crawler.cli import options
from crawler.cli.command_table import COMMANDS
from crawler.cli.parsing import parser_of
from crawler.config.key_words import keys
from crawler.crawl.safe_settings import LEVELS, LIVE, LOG_LEVEL
from crawler.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def main(command: str, argv: list[str]) -> int:
    """Print completion code for a shell, or a manual page."""
    return {"completion": _completion, "man": _man}[command](argv)


def _completion(argv: list[str]) -> int:
    parser = options.parser(
        "completion",
        "Print completion code for a shell: commands, flags and their values.",
        'eval "$(crawler completion bash)"\n  crawler completion zsh > ~/.zfunc/_crawler\n'
        "  crawler completion fish > ~/.config/fish/completions/crawler.fish",
        on_crawl=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    args = parser.parse_args(argv)
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield (command, parser) for each command that has a parser."""
    for name, (module, _) in COMMANDS.items():
        if name in ("lab", "bench"):  # these commands have subcommands
            continue
        made = parser_of(importlib.import_module(module).main, name)
        if made is not None:
            yield name, made


class CompletedFlag(NamedTuple):
    """A flag as a shell completes it. `words` are the accepted values, if only some fixed words are accepted."""

    name: str
    takes_value: bool
    words: str
    help: str


def _flags(parser: argparse.ArgumentParser) -> Iterator[CompletedFlag]:
    for action in parser._actions:
        words = list(map(str, action.choices or ()))
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if not words and "|" in metavar and ":" not in metavar:
            words = [word for word in metavar.split("|") if word.islower()]
        for name in action.option_strings:
            yield CompletedFlag(
                name, action.nargs != 0, " ".join(words), (action.help or "").replace("%%", "%")
            )


def _live_settings() -> dict[str, tuple[str, ...]]:
    """Return the settings that `crawler set` can change, each with the fixed words that are its possible values."""
    return {key: keys().get(key, LEVELS) for key in (*LIVE, LOG_LEVEL)}


def _bash() -> str:
    cases = []
    for name, parser in parsers():
        flags = " ".join(flag.name for flag in _flags(parser))
        after = "".join(
            f'        {flag.name}) COMPREPLY=($(compgen -W "{flag.words}" -- "$word")); return;;\n'
            for flag in _flags(parser)
            if flag.words
        )
        prior = f'      case "$before" in\n{after}      esac\n' if after else ""
        cases.append(f'    {name})\n{prior}      flags="{flags}";;\n')
    values = "".join(
        f'    {key}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word"));;\n'
        for key, words in (keys() | _live_settings()).items()
        if words
    )
    return f"""# bash completion of crawler
_crawler_setting() {{
  compopt +o filenames 2>/dev/null
  case "$key" in
    "") compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -S = -W "$1" -- "$word"));;
{values}  esac
}}
_crawler() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" at=$((COMP_CWORD-1)) flags="" key=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word")); return
  fi
  # The shell splits words at "=": KEY=VALUE and --flag=VALUE are three words.
  if [ "$word" = "=" ]; then word="" key="${{COMP_WORDS[at]}}" at=$((at-1))
  elif [ "${{COMP_WORDS[at]}}" = "=" ]; then key="${{COMP_WORDS[at-1]}}" at=$((at-2)); fi
  local before="${{COMP_WORDS[at]}}"
  case "$key" in -*) before="$key" key="";; esac
  if [ "$before" = --set ]; then _crawler_setting "{" ".join(keys())}"; return; fi
  case "${{COMP_WORDS[1]}}:$word" in
    set:-*) ;;
    set:*) _crawler_setting "{" ".join(_live_settings())}"; return;;
  esac
  case "${{COMP_WORDS[1]}}" in
{"".join(cases)}  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word"));;
    *) COMPREPLY=($(compgen -f -- "$word"));;
  esac
}}
complete -o filenames -F _crawler crawler
"""


def _zsh() -> str:
    rows = "\n".join(f"    {_quoted(f'{name}:{line}')}" for name, (_, line) in COMMANDS.items())
    cases = []
    for name, parser in parsers():
        specs = []
        for flag in _flags(parser):
            text = flag.help.replace("[", "(").replace("]", ")").replace(":", " ")
            value = ""
            if flag.name == "--set":
                value = ":setting:_crawler_setting"
            elif flag.takes_value:
                value = f":value:({flag.words})" if flag.words else ":value:_files"
            specs.append(_quoted(f"*{flag.name}[{text}]{value}"))
        rest = "_crawler_live_setting" if name == "set" else "_files"
        cases.append(f"    {name}) _arguments {' '.join(specs)} '*:argument:{rest}';;")
    known = keys() | _live_settings()
    values = "\n".join(f"    {key}) compadd -- {' '.join(words)};;" for key, words in known.items() if words)
    return f"""#compdef crawler
_crawler_value() {{
  case ${{${{IPREFIX%=}}##*=}} in
{values}
  esac
}}
_crawler_setting() {{
  if compset -P 1 '*='; then _crawler_value; else compadd -S = -- {" ".join(keys())}; fi
}}
_crawler_live_setting() {{
  if compset -P 1 '*='; then _crawler_value; else compadd -S = -- {" ".join(_live_settings())}; fi
}}
_crawler() {{
  local -a commands=(
{rows}
  )
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  local command=$words[2]
  shift words; (( CURRENT-- ))
  case $command in
{chr(10).join(cases)}
  esac
}}
_crawler "$@"
"""


def _fish() -> str:
    lines = [
        _fish_function("__crawler_settings", keys()),
        _fish_function("__crawler_live_settings", _live_settings()),
    ]
    lines.append("complete -c crawler -n __fish_use_subcommand -f")
    for name, (_, line) in COMMANDS.items():
        lines.append(f"complete -c crawler -n __fish_use_subcommand -a {name} -d {_quoted(line)}")
    lines.append("complete -c crawler -n '__fish_seen_subcommand_from set' -f -a '(__crawler_live_settings)'")
    for name, parser in parsers():
        for flag in _flags(parser):
            kind = f"-l {flag.name[2:]}" if flag.name.startswith("--") else f"-s {flag.name[1:]}"
            value = " -r" if flag.takes_value else ""
            if flag.name == "--set":
                value = " -x -a '(__crawler_settings)'"
            elif flag.words:
                value = f" -x -a {_quoted(flag.words)}"
            when = f"'__fish_seen_subcommand_from {name}'"
            lines.append(f"complete -c crawler -n {when} {kind}{value} -d {_quoted(flag.help)}")
    return "\n".join(lines) + "\n"


def _fish_function(name: str, known: dict[str, tuple[str, ...]]) -> str:
    """Return a fish function that completes KEY=VALUE: first the key, and then a value of that key."""
    pairs = " ".join(f"{key}={word}" for key, words in known.items() for word in words)
    return (
        f"function {name}\n"
        "  if string match -q '*=*' -- (commandline -ct)\n"
        f"    printf '%s\\n' {pairs}\n"
        "  else\n"
        f"    printf '%s=\\n' {' '.join(known)}\n"
        "  end\n"
        "end"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


def _man(argv: list[str]) -> int:
    parser = options.parser(
        "man", "Print a manual page, for man(1).", "crawler man crawl | man -l -", on_crawl=False
    )
    parser.add_argument(
        "command", nargs="?", default="", metavar="COMMAND", help="the command; without one, an overview"
    )
    args = parser.parse_args(argv)
    if args.command and args.command not in COMMANDS:
        raise UsageError(f"no command {args.command!r}; `crawler --help` lists them")
    print(_page(args.command) if args.command else _overview())
    return 0


def _overview() -> str:
    lines = [".TH CRAWLER 1", ".SH NAME", "crawler \\- a polite, durable web crawler"]
    lines += [".SH SYNOPSIS", ".B crawler", "COMMAND [options]", ".SH COMMANDS"]
    for name, (_, line) in COMMANDS.items():
        lines += [".TP", f".B {name}", _roff(line)]
    return "\n".join(lines)


def _page(name: str) -> str:
    made = dict(parsers()).get(name)
    lines = [f'.TH "CRAWLER-{name.upper()}" 1', ".SH NAME", f"crawler-{name} \\- {_roff(COMMANDS[name][1])}"]
    if made is None:
        return "\n".join([*lines, ".SH DESCRIPTION", f"See \\fBcrawler {name} \\-\\-help\\fR."])
    usage = " ".join(made.format_usage().removeprefix("usage: ").split())
    lines += [".SH SYNOPSIS", _roff(usage), ".SH DESCRIPTION", _roff(made.description or ""), ".SH OPTIONS"]
    for group in made._action_groups:
        if group._group_actions:
            lines += [f".SS {_roff(group.title or 'options')}", *_options(group._group_actions)]
    lines += [".SH EXAMPLES", ".nf", _roff((made.epilog or "").partition("\n")[2]), ".fi"]
    return "\n".join(lines)


def _options(actions: list[argparse.Action]) -> list[str]:
    lines = []
    for action in actions:
        shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or ''}"
        if not value.strip() and action.choices:
            value = " " + "|".join(map(str, action.choices))
        lines += [".TP", f".B {_roff(shown + value)}", _roff((action.help or "").replace("%%", "%"))]
    return lines


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))
