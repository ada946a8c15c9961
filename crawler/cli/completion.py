"""`crawler completion bash|zsh|fish`, `crawler man [COMMAND]`: made from the parsers of the commands."""

import argparse
import importlib
from collections.abc import Iterator

from crawler.cli import COMMANDS, options
from crawler.cli.parsing import parser_of
from crawler.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def main(command: str, argv: list[str]) -> int:
    """Print a shell's completion, or a manual page."""
    return {"completion": _completion, "man": _man}[command](argv)


def _completion(argv: list[str]) -> int:
    parser = options.parser(
        "completion",
        "Completion for a shell: commands, flags and their choices.",
        'eval "$(crawler completion bash)"\n  crawler completion zsh > ~/.zfunc/_crawler\n'
        "  crawler completion fish > ~/.config/fish/completions/crawler.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="whose completion")
    args = parser.parse_args(argv)
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](), end="")
    return 0


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command that has a parser, with it."""
    for name, (module, _) in COMMANDS.items():
        if name in ("lab", "bench"):  # they have commands of their own
            continue
        made = parser_of(importlib.import_module(module).main, name)
        if made is not None:
            yield name, made


def _flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        for flag in action.option_strings:
            yield flag, action


def _choices(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """The words that may follow a flag."""
    for flag, action in _flags(parser):
        words = list(map(str, action.choices or ()))
        if (
            not words
            and isinstance(action.metavar, str)
            and "|" in action.metavar
            and ":" not in action.metavar
        ):
            words = [word for word in action.metavar.split("|") if word.islower()]
        if words:
            yield flag, words


def _bash() -> str:
    cases = []
    for name, parser in parsers():
        flags = " ".join(flag for flag, _ in _flags(parser))
        after = "".join(
            f'        {flag}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word")); return;;\n'
            for flag, words in _choices(parser)
        )
        prior = f'      case "$before" in\n{after}      esac\n' if after else ""
        cases.append(f'    {name})\n{prior}      flags="{flags}";;\n')
    return f"""# bash completion of crawler
_crawler() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" flags=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word")); return
  fi
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
        words = dict(_choices(parser))
        specs = []
        for flag, action in _flags(parser):
            text = (
                (action.help or "").replace("[", "(").replace("]", ")").replace(":", " ").replace("%%", "%")
            )
            value = ""
            if action.nargs != 0:
                value = f":value:({' '.join(words[flag])})" if flag in words else ":value:_files"
            specs.append(_quoted(f"*{flag}[{text}]{value}"))
        cases.append(f"    {name}) _arguments {' '.join(specs)} '*:argument:_files';;")
    return f"""#compdef crawler
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
    lines = ["complete -c crawler -n __fish_use_subcommand -f"]
    for name, (_, line) in COMMANDS.items():
        lines.append(f"complete -c crawler -n __fish_use_subcommand -a {name} -d {_quoted(line)}")
    for name, parser in parsers():
        words = dict(_choices(parser))
        for flag, action in _flags(parser):
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            value = " -x -a " + _quoted(" ".join(words[flag])) if flag in words else ""
            value = value or ("" if action.nargs == 0 else " -r")
            text = _quoted((action.help or "").replace("%%", "%"))
            lines.append(
                f"complete -c crawler -n '__fish_seen_subcommand_from {name}' {kind}{value} -d {text}"
            )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


def _man(argv: list[str]) -> int:
    parser = options.parser("man", "A manual page, for man(1).", "crawler man crawl | man -l -")
    parser.add_argument(
        "command", nargs="?", default="", metavar="COMMAND", help="whose page; of all if none"
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
    for action in made._actions:
        shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or ''}"
        if not value.strip() and action.choices:
            value = " " + "|".join(map(str, action.choices))
        lines += [".TP", f".B {_roff(shown + value)}", _roff((action.help or "").replace("%%", "%"))]
    lines += [".SH EXAMPLES", ".nf", _roff((made.epilog or "").partition("\n")[2]), ".fi"]
    return "\n".join(lines)


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))
